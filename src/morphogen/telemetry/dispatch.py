"""Dispatch of events to the sinks: level, flight recorder, losses."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVEL_OFF, TelemetrySpec
from morphogen.telemetry.anomaly import EpochReport, escalate_level
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.jsonl import encode
from morphogen.telemetry.kinds.run import SinkFailed, TelemetryEscalated
from morphogen.telemetry.sink_thread import EventLines, PendingEvents, SinkWorker
from morphogen.telemetry.writer import CallbackSink, FilePosition, JsonlSink, LoggerPosition, Sink, SinkPosition

RECORDED_EPOCHS = 5  # epochs that the flight recorder keeps

AnySink = Sink | Callable[[list[Envelope]], object]


@dataclass(frozen=True, slots=True)
class Losses:
    """Events that did not reach their sink."""

    dropped: dict[str, dict[str, int]]  # sink -> event -> number
    failed: dict[str, str]  # sink -> why
    incomplete: bool  # the event file lacks lines that are never dropped

    def lines(self) -> list[str]:
        """A line of text per sink and loss."""
        kinds = {sink: ", ".join(f"{n} {name}" for name, n in kind.items()) for sink, kind in self.dropped.items()}
        dropped = [f"{sink} was too slow for {text}; these events were dropped" for sink, text in kinds.items() if text]
        return dropped + [f"{sink} failed: {why}" for sink, why in self.failed.items()]


NO_LOSSES = Losses({}, {}, False)


class DispatchState(NamedTuple):
    """State of a dispatcher."""

    raised: bool = False  # the next epoch is written at debug, because of what happened before
    until: int = -1  # the last epoch of the run that is written at debug
    recent: tuple[EventLines, ...] = ()  # epochs that were written below debug, the newest last


class Dispatcher:
    """Sinks of a run, the level, and the flight recorder.  At level off there are no sinks."""

    def __init__(self, sinks: Iterable[AnySink], spec: TelemetrySpec, *, epochs: int) -> None:
        """epochs: of an episode."""
        self._spec, self._epochs = spec, epochs
        self._level, self._until = spec.level, -1  # the last epoch of the run that is written at debug
        self._recent: deque[PendingEvents] = deque(maxlen=RECORDED_EPOCHS)  # written below debug
        self._workers: tuple[SinkWorker, ...] = ()
        self.add_sinks(sinks)

    def add_sinks(self, sinks: Iterable[AnySink]) -> None:
        """Add sinks, which receive all later events."""
        for item in sinks if self._spec.level != LEVEL_OFF else ():
            sink: Any = item if hasattr(item, "write") else CallbackSink(item)
            worker = SinkWorker(
                sink,
                name=getattr(sink, "name", type(sink).__name__),
                size=self._spec.queue,
                timeout_s=self._spec.close_timeout_s,
                on_failure=self._sink_failed,
                retries=isinstance(sink, JsonlSink),
            )
            self._workers = (*self._workers, worker)

    @property
    def has_sinks(self) -> bool:
        """Return whether events are written anywhere."""
        return bool(self._workers)

    def state(self) -> DispatchState:
        """Return the state; the flight recorder only if it may be read."""
        read = self.has_sinks and self._spec.escalates
        recent = tuple(moment.lines for moment in self._recent) if read else ()
        return DispatchState(self._level != self._spec.level, self._until, recent)

    def restore(self, state: DispatchState, where: str) -> None:
        """Restore a state; a CheckpointError by name where a line of it is invalid."""
        raised = state.raised and self._spec.escalates
        self._level, self._until = LEVEL_DEBUG if raised else self._spec.level, state.until
        recent = (PendingEvents.from_lines(lines, f"{where}.recent[{i}]") for i, lines in enumerate(state.recent))
        self._recent = deque(recent, maxlen=RECORDED_EPOCHS)

    def emit(self, events: Sequence[Envelope], *more: Callable[[], Envelope]) -> None:
        """Emit events about a round or the run; `more` are made in the thread that writes first."""
        self._put(PendingEvents(lambda: (*events, *(make() for make in more))), self._workers)

    def emit_epoch(self, moment: PendingEvents, report: EpochReport) -> None:
        """Emit the events of an epoch; report: its causes that may raise the level."""
        self._put(moment, self._workers)
        if self._level != LEVEL_DEBUG:
            self._recent.append(moment)
        self.update_level(report)

    def update_level(self, report: EpochReport) -> None:
        """Raise or lower the level; epochs in the flight recorder are written late."""
        before = self._until
        self._level, self._until = escalate_level(before, report, self._spec)
        if self._until == before:
            return
        round, epoch = divmod(self._until, self._epochs)
        reason = ", ".join(dict.fromkeys(report.reasons))
        self.emit([Envelope(TelemetryEscalated(reason=reason, until_round=round, until_epoch=epoch))])
        while self._recent:
            self._put(self._recent.popleft(), self._workers, late=True)

    def _put(self, moment: PendingEvents, workers: Iterable[SinkWorker], *, late: bool = False) -> None:
        level = self._spec.level if late else self._level
        batch = moment.select(level, lifecycle_only=self._spec.lifecycle_only, late=late)
        for worker in workers:
            worker.put(batch)

    def _sink_failed(self, worker: SinkWorker, error: str) -> None:
        """Report a failure to the other sinks, and to a sink that is tried again."""
        event = Envelope(SinkFailed(sink=worker.name, error=error))
        self._put(PendingEvents(lambda: (event,)), [w for w in self._workers if w is not worker or w.retries])

    def flush(self) -> None:
        """Make written events durable; a file that could not be written is tried again."""
        for worker in self._workers:
            worker.flush()

    def drain(self) -> SinkPosition | None:
        """Write all waiting events durably; return the position of the sinks, None without an event file.

        Sinks that keep files are waited for, all together at most as long as one is at closing; others are not.
        """
        self.flush()
        until, loggers = time.monotonic() + self._spec.close_timeout_s, dict[str, LoggerPosition]()
        position = None
        for worker in self._workers:
            local = getattr(worker.sink, "local", False)
            place, missing, dropped = worker.wait_for_flush(until if local else 0.0)
            if isinstance(place, LoggerPosition):
                loggers[worker.name] = place
            if isinstance(place, FilePosition):
                pending = tuple(encode(event, seq=0, time=0.0) for event in missing)
                position = SinkPosition(*place, pending, dropped, self._spec.dir, loggers)
        return position

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks; the event file, which reports their failures, comes last."""
        events = PendingEvents(lambda: map(Envelope, last))
        for worker in sorted(self._workers, key=lambda worker: worker.retries):
            self._put(events, (worker,))
            worker.close()
        return Losses(
            dropped={one.name: dict(one.dropped) for one in self._workers if one.dropped},
            failed={one.name: one.error for one in self._workers if one.error is not None},
            incomplete=any(one.retries and one.error is not None for one in self._workers),
        )
