"""The way from what happened to the sinks: at which level it is written, and what is told about the way itself."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVEL_OFF, TelemetrySpec
from morphogen.telemetry.anomaly import EpochReport, escalate_level
from morphogen.telemetry.batch import EventBatch, EventLines, PendingEvents
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.jsonl import encode
from morphogen.telemetry.kinds.run import SinkFailed, TelemetryEscalated
from morphogen.telemetry.position import FilePosition, LoggerPosition, SinkPosition
from morphogen.telemetry.sink_thread import SinkWorker
from morphogen.telemetry.writer import CallbackSink, JsonlSink, Sink

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
    """All outlets of a run, the level, and the flight recorder.  At level off there are none."""

    def __init__(self, sinks: Iterable[AnySink], spec: TelemetrySpec, *, epochs: int) -> None:
        """epochs: of an episode."""
        self._spec, self._epochs = spec, epochs
        self._level, self._until = spec.level, -1  # the last epoch of the run that is written at debug
        self._recent: deque[PendingEvents] = deque(maxlen=RECORDED_EPOCHS)  # written below debug
        self._outlets: tuple[SinkWorker, ...] = ()
        self.add_sinks(sinks)

    def add_sinks(self, sinks: Iterable[AnySink]) -> None:
        """More sinks, which get what is told from here on."""
        known = (
            []
            if self._spec.level == LEVEL_OFF
            else [sink if hasattr(sink, "write") else CallbackSink(sink) for sink in sinks]
        )
        self._outlets += tuple(self._outlet(sink) for sink in known)

    @property
    def has_sinks(self) -> bool:
        """Somebody may write what is told."""
        return bool(self._outlets)

    def state(self) -> DispatchState:
        """Return the state; the flight recorder only if it may be read."""
        read = self.has_sinks and self._spec.escalates
        recent = tuple(moment.lines for moment in self._recent) if read else ()
        return DispatchState(self._level != self._spec.level, self._until, recent)

    def restore(self, state: DispatchState, where: str) -> None:
        """Go on from what another one remembered; a CheckpointError by name where a line of it is none."""
        raised = state.raised and self._spec.escalates
        self._level, self._until = LEVEL_DEBUG if raised else self._spec.level, state.until
        recent = (PendingEvents.from_lines(lines, f"{where}.recent[{i}]") for i, lines in enumerate(state.recent))
        self._recent = deque(recent, maxlen=RECORDED_EPOCHS)

    def _outlet(self, sink: Sink) -> SinkWorker:
        return SinkWorker(
            sink,
            name=getattr(sink, "name", type(sink).__name__),
            size=self._spec.queue,
            timeout_s=self._spec.close_timeout_s,
            on_failure=self._sink_failed,
            retries=isinstance(sink, JsonlSink),
        )

    def emit(self, found: Sequence[Envelope], *more: Callable[[], Envelope]) -> None:
        """Events about a round or the run; and some that whoever writes them makes."""
        self._put(PendingEvents(lambda: (*found, *(make() for make in more))), self._outlets)

    def emit_epoch(self, moment: PendingEvents, report: EpochReport) -> None:
        """An epoch, and what in it may raise the level."""
        self._put(moment, self._outlets)
        if self._level != LEVEL_DEBUG:
            self._recent.append(moment)
        self.update_level(report)

    def update_level(self, report: EpochReport) -> None:
        """Raise the level after what is reported, or let it fall; what was recorded is written late."""
        before = self._until
        self._level, self._until = escalate_level(before, report, self._spec)
        if self._until == before:
            return
        round, epoch = divmod(self._until, self._epochs)
        reason = ", ".join(dict.fromkeys(report.reasons))
        self.emit([Envelope(TelemetryEscalated(reason=reason, until_round=round, until_epoch=epoch))])
        while self._recent:
            self._put(self._recent.popleft(), self._outlets, late=True)

    def _put(self, moment: PendingEvents, outlets: Iterable[SinkWorker], *, late: bool = False) -> None:
        level = self._spec.level if late else self._level
        batch = EventBatch(moment, level, lifecycle_only=self._spec.lifecycle_only, late=late)
        for outlet in outlets:
            outlet.put(batch)

    def _sink_failed(self, outlet: SinkWorker, error: str) -> None:
        """The others are told, and the one that failed where it is going to be tried again."""
        told = Envelope(SinkFailed(sink=outlet.name, error=error))
        others = (one for one in self._outlets if one is not outlet or one.retries)
        self._put(PendingEvents(lambda: (told,)), others)

    def flush(self) -> None:
        """Make written events durable; a file that could not be written is tried again."""
        for outlet in self._outlets:
            outlet.flush()

    def drain(self) -> SinkPosition | None:
        """Have all that waits written and made durable; where the sinks stand, None without an event file.

        Sinks that keep files are waited for, all together at most as long as one is at closing; others are not.
        """
        self.flush()
        until, loggers, found = time.monotonic() + self._spec.close_timeout_s, dict[str, LoggerPosition](), None
        for outlet in self._outlets:
            place, lacking = outlet.wait_for_flush(until if getattr(outlet.sink, "local", False) else 0.0)
            if isinstance(place, LoggerPosition):
                loggers[outlet.name] = place
            if isinstance(place, FilePosition):
                pending = tuple(encode(one, seq=0, time=0.0) for one in lacking.events)
                found = SinkPosition(*place, pending, lacking.dropped, self._spec.dir, loggers)
        return found

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks, the event file after the others: it tells what became of them."""
        words = PendingEvents(lambda: map(Envelope, last))
        for outlet in sorted(self._outlets, key=lambda one: one.retries):
            self._put(words, (outlet,))
            outlet.close()
        return Losses(
            dropped={one.name: dict(one.dropped) for one in self._outlets if one.dropped},
            failed={one.name: one.error for one in self._outlets if one.error is not None},
            incomplete=any(one.retries and one.error is not None for one in self._outlets),
        )
