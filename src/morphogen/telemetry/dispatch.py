"""The way from what happened to the sinks: at which level it is written, and what is told about the way itself."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVEL_OFF, TelemetrySpec
from morphogen.telemetry.anomaly import Report, escalate
from morphogen.telemetry.batch import Batch, Lines, Moment
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.jsonl import line
from morphogen.telemetry.kinds.run import SinkFailed, TelemetryEscalated
from morphogen.telemetry.position import Logged, Position, Written
from morphogen.telemetry.sink_thread import Outlet
from morphogen.telemetry.writer import Call, JsonLines, Sink

RECORDED = 5  # epochs that the flight recorder keeps

AnySink = Sink | Callable[[list[Envelope]], object]


@dataclass(frozen=True, slots=True)
class Losses:
    """What did not reach its sink."""

    dropped: dict[str, dict[str, int]]  # sink -> event -> number
    failed: dict[str, str]  # sink -> why
    incomplete: bool  # the event file lacks lines that are never dropped

    def lines(self) -> list[str]:
        """A line of text per sink and loss."""
        kinds = {sink: ", ".join(f"{n} {name}" for name, n in kind.items()) for sink, kind in self.dropped.items()}
        dropped = [f"{sink} was too slow for {text}; these events were dropped" for sink, text in kinds.items() if text]
        return dropped + [f"{sink} failed: {why}" for sink, why in self.failed.items()]


NOTHING_LOST = Losses({}, {}, False)


class Raised(NamedTuple):
    """What a dispatch remembers."""

    raised: bool = False  # the next epoch is written at debug, because of what happened before
    until: int = -1  # the last epoch of the run that is written at debug
    recent: tuple[Lines, ...] = ()  # epochs that were written below debug, the newest last


class Dispatch:
    """All outlets of a run, the level, and the flight recorder.  At level off there are none."""

    def __init__(self, sinks: Iterable[AnySink], spec: TelemetrySpec, *, epochs: int) -> None:
        """epochs: of an episode."""
        self._spec, self._epochs = spec, epochs
        self._level, self._until = spec.level, -1  # the last epoch of the run that is written at debug
        self._recent: deque[Moment] = deque(maxlen=RECORDED)  # written below debug
        self._outlets: tuple[Outlet, ...] = ()
        self.add(sinks)

    def add(self, sinks: Iterable[AnySink]) -> None:
        """More sinks, which get what is told from here on."""
        known = (
            [] if self._spec.level == LEVEL_OFF else [sink if hasattr(sink, "write") else Call(sink) for sink in sinks]
        )
        self._outlets += tuple(self._outlet(sink) for sink in known)

    @property
    def heard(self) -> bool:
        """Somebody may write what is told."""
        return bool(self._outlets)

    def state(self) -> Raised:
        """What is remembered; the flight recorder only where it may be read."""
        read = self.heard and self._spec.escalates
        recent = tuple(moment.lines for moment in self._recent) if read else ()
        return Raised(self._level != self._spec.level, self._until, recent)

    def restore(self, state: Raised, where: str) -> None:
        """Go on from what another one remembered; a CheckpointError by name where a line of it is none."""
        raised = state.raised and self._spec.escalates
        self._level, self._until = LEVEL_DEBUG if raised else self._spec.level, state.until
        recent = (Moment.of(lines, f"{where}.recent[{i}]") for i, lines in enumerate(state.recent))
        self._recent = deque(recent, maxlen=RECORDED)

    def _outlet(self, sink: Sink) -> Outlet:
        return Outlet(
            sink,
            name=getattr(sink, "name", type(sink).__name__),
            size=self._spec.queue,
            patience=self._spec.close_timeout_s,
            on_failure=self._sink_failed,
            retried=isinstance(sink, JsonLines),
        )

    def tell(self, found: Sequence[Envelope], *more: Callable[[], Envelope]) -> None:
        """Events about a round or the run; and some that whoever writes them makes."""
        self._put(Moment(lambda: (*found, *(make() for make in more))), self._outlets)

    def epoch(self, moment: Moment, report: Report) -> None:
        """An epoch, and what in it may raise the level."""
        self._put(moment, self._outlets)
        if self._level != LEVEL_DEBUG:
            self._recent.append(moment)
        self.judge(report)

    def judge(self, report: Report) -> None:
        """Raise the level after what is reported, or let it fall; what was recorded is written late."""
        before = self._until
        self._level, self._until = escalate(before, report, self._spec)
        if self._until == before:
            return
        round, epoch = divmod(self._until, self._epochs)
        reason = ", ".join(dict.fromkeys(report.reasons))
        self.tell([Envelope(TelemetryEscalated(reason=reason, until_round=round, until_epoch=epoch))])
        while self._recent:
            self._put(self._recent.popleft(), self._outlets, late=True)

    def _put(self, moment: Moment, outlets: Iterable[Outlet], *, late: bool = False) -> None:
        level = self._spec.level if late else self._level
        batch = Batch(moment, level, lifecycle_only=self._spec.lifecycle_only, late=late)
        for outlet in outlets:
            outlet.put(batch)

    def _sink_failed(self, outlet: Outlet, error: str) -> None:
        """The others are told, and the one that failed where it is going to be tried again."""
        told = Envelope(SinkFailed(sink=outlet.name, error=error))
        others = (one for one in self._outlets if one is not outlet or one.retried)
        self._put(Moment(lambda: (told,)), others)

    def flush(self) -> None:
        """What was written so far is to be durable; a file that could not be written is tried again."""
        for outlet in self._outlets:
            outlet.flush()

    def drain(self) -> Position | None:
        """Have all that waits written and made durable; where the sinks stand, None without an event file.

        Sinks that keep files are waited for, all together at most as long as one is at closing; others are not.
        """
        self.flush()
        until, loggers, found = time.monotonic() + self._spec.close_timeout_s, dict[str, Logged](), None
        for outlet in self._outlets:
            place, lacking = outlet.settle(until if getattr(outlet.sink, "local", False) else 0.0)
            if isinstance(place, Logged):
                loggers[outlet.name] = place
            if isinstance(place, Written):
                pending = tuple(line(one, seq=0, time=0.0) for one in lacking.events)
                found = Position(*place, pending, lacking.dropped, self._spec.dir, loggers)
        return found

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks, the event file after the others: it tells what became of them."""
        words = Moment(lambda: map(Envelope, last))
        for outlet in sorted(self._outlets, key=lambda one: one.retried):
            self._put(words, (outlet,))
            outlet.close()
        return Losses(
            dropped={one.name: dict(one.dropped) for one in self._outlets if one.dropped},
            failed={one.name: one.error for one in self._outlets if one.error is not None},
            incomplete=any(one.retried and one.error is not None for one in self._outlets),
        )
