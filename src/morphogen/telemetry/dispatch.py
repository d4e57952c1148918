"""Dispatch of events to the sinks: level, flight recorder, losses, and one thread and one queue per sink.

The caller of `put` waits for the sink only when nothing is left to drop.  A slow or broken sink takes nothing from the
others.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, cast

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVEL_OFF, LEVELS, TelemetrySpec
from morphogen.errors import CheckpointError
from morphogen.telemetry.anomaly import EpochReport, escalate_level
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.jsonl import decode, encode
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, SinkFailed, TelemetryDropped, TelemetryEscalated
from morphogen.telemetry.writer import CallbackSink, LoggerPosition, Sink, SinkPosition
from morphogen.vocab.text import format_value

MAX_RETAINED = 64_000  # events that are never dropped and wait outside of the queue
BATCH_DELAY_S = 0.03  # seconds that a batch waits alone: the next action is chosen meanwhile
LEVEL_RANK = {name: rank for rank, name in enumerate(LEVELS)}

MakeEvents = Callable[[], Iterable[Envelope]]
Batch = Callable[[], Sequence[Envelope]]  # makes its events on the first call


class PendingEvents:
    """Events of an epoch, a round or the run, before a sink selects from them; made on first use."""

    def __init__(self, events: MakeEvents, details: MakeEvents = tuple) -> None:
        """Take two pure functions: the events of all levels below debug, and those of debug."""
        self._events, self._details = events, details

    @cached_property
    def events(self) -> tuple[Envelope, ...]:
        """The events of all levels below debug."""
        return tuple(self._events())

    @cached_property
    def details(self) -> tuple[Envelope, ...]:
        """The events of level debug."""
        return tuple(self._details())

    def select(self, level: str, *, lifecycle_only: bool = False, late: bool = False) -> Batch:
        """Batch of the events that a level writes.  late: only the events that the level left out, after their time."""

        @cache
        def batch() -> tuple[Envelope, ...]:
            rank = LEVEL_RANK[level]
            every = (*self.events, *(self.details if late or level == LEVEL_DEBUG else ()))
            if late:
                return tuple(replace(event, late=True) for event in every if LEVEL_RANK[event.level] > rank)
            below = (event for event in every if LEVEL_RANK[event.level] <= rank)
            return tuple(event for event in below if event.data.LIFECYCLE or not lifecycle_only)

        return batch


def parse_saved_event(text: str, where: str, level: str = LEVEL_DEBUG) -> Envelope:
    """Read an event of that level from a line in a checkpoint; a CheckpointError by name where it is invalid."""
    try:
        return replace(decode(text), level=LEVELS[LEVEL_RANK[level]])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{where}: expected a level and the line of an event, got {format_value([level, text])}"
        ) from error


def never_dropped(event: Envelope) -> bool:
    """Return whether an event is of the class lifecycle, or about a round or the run."""
    return event.data.LIFECYCLE or event.epoch is None


class SinkWorker:
    """`put`, `flush`, `wait_for_flush` and `close` are for the scheduler's side; all else happens in the thread.

    A full queue, and closing, wait for the sink before it is given up.  A sink with `retries` that raises keeps what it
    did not take and is tried again at the next flush.  on_failure: called without the lock.
    """

    def __init__(self, sink: Any, spec: TelemetrySpec, on_failure: Callable[["SinkWorker", str], None]) -> None:
        self.sink, self.name = sink, getattr(sink, "name", type(sink).__name__)
        self.retries: bool = getattr(sink, "retries", False)
        self.error: str | None = None  # reason why it takes no more, or did not take the last batch
        self.given_up = False
        self.dropped: Counter[str] = Counter()
        self.waited_s = 0.0
        self._size, self._timeout_s, self._on_failure = spec.queue, spec.close_timeout_s, on_failure
        self._retained: list[Envelope] = []  # never dropped, older than the queue
        self._queue: deque[Batch] = deque()
        self._reported, self._reported_wait_s = Counter[str](), 0.0  # by the last TelemetryDropped
        self._in_hand: Batch = tuple  # of the thread
        self._position: Callable[[], Any] = getattr(sink, "position", lambda: None)
        self._place = self._position()  # of the sink after its last action
        self._failed = self._flush_due = self._busy = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {self.name}", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Hand over a batch; in a full queue the oldest batches are reduced to the events that are never dropped."""
        with self._changed:
            if self.given_up or self._closing:
                return
            self._queue.append(batch)
            while len(self._queue) > self._size and len(self._retained) < MAX_RETAINED:
                events = self._queue.popleft()()
                self._retained += filter(never_dropped, events)
                self.dropped.update(event.name for event in events if not never_dropped(event))
            self._changed.notify_all()
            if len(self._queue) > self._size:
                self._flush_due, began = True, time.monotonic()
                stuck = lambda: self.given_up or (self.error is not None and not self._flush_due)  # noqa: E731
                self._changed.wait_for(lambda: stuck() or len(self._queue) <= self._size, self._timeout_s)
                self.waited_s += time.monotonic() - began
            if len(self._queue) > self._size:
                self._give_up(self.error or f"took nothing for {self._timeout_s:g} s")
            if not self.given_up:
                return
        self._on_failure(self, str(self.error))

    def flush(self) -> None:
        """Ask for a durable write of all that waits; a sink that failed is tried again.  Does not wait."""
        with self._changed:
            self._flush_due = True
            self._changed.notify_all()

    def wait_for_flush(self, until: float) -> tuple[Any, tuple[Envelope, ...], dict[str, int]]:
        """Wait for a flush; return the place of the sink, and the events it did not take: retained and dropped ones.

        until: moment of the monotonic clock at which the wait ends.  Place None: the sink has no position.
        """
        with self._changed:
            idle = lambda: self.given_up or not (self._flush_due or self._busy)  # noqa: E731
            self._changed.wait_for(idle, max(until - time.monotonic(), 0.0))
            waiting = [*self._in_hand(), *self._retained, *(event for batch in self._queue for event in batch())]
            dropped = self.dropped - self._reported + Counter(e.name for e in waiting if not never_dropped(e))
            return self._place, tuple(filter(never_dropped, waiting)), dict(dropped)

    def close(self) -> None:
        """Take no more, drain the queue and close the sink; a sink that does not end in time is given up."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(self._timeout_s)
        with self._changed:
            if self.given_up or not self._thread.is_alive():
                return
            self._give_up(f"did not take what was left in {self._timeout_s:g} s")
        self._on_failure(self, str(self.error))

    def _give_up(self, error: str) -> None:
        self.error, self.given_up = error, True
        self._retained.clear()
        self._queue.clear()

    # The thread's side.

    def _run(self) -> None:
        while self._step():
            pass
        if self.error is not None:
            with suppress(Exception):  # its failure is known already
                self.sink.close()

    def _step(self) -> bool:
        """Wait for something to do and do it; False = there is nothing more to do."""
        with self._changed:
            due = lambda: self.given_up or self._flush_due or self._closing  # noqa: E731
            self._changed.wait_for(lambda: due() or (self.error is None and bool(self._retained or self._queue)))
            self._changed.wait_for(lambda: due() or bool(self._retained) + len(self._queue) > 1, BATCH_DELAY_S)
            if self.given_up:
                return False
            self.error = None  # try again
            idle = not self._retained and not self._queue
            self._flush_due = self._flush_due and not idle
            self._busy, last = True, idle and self._closing
            if self._retained:
                retained, self._retained = self._retained, []
                self._in_hand = lambda: retained
            elif self._queue:
                self._in_hand = self._queue.popleft()
            self._changed.notify_all()  # there is room
        events: Sequence[Envelope] | None = None
        try:
            events = self._with_drop_event(self._in_hand())
            if events:
                self.sink.write(events)
            if idle:
                self.sink.flush()
            if last:
                self.sink.close()
            place = self._position()
        except Exception as cause:
            return self._fail(f"{type(cause).__name__}: {cause}", events)
        with self._changed:
            self._place, self._in_hand, self._busy = place, tuple, False
            self._changed.notify_all()
        return not last

    def _with_drop_event(self, events: Sequence[Envelope]) -> Sequence[Envelope]:
        """The events, with one on the dropped ones before the first that closes a round or the run."""
        end = next((i for i, event in enumerate(events) if isinstance(event.data, BatchSummary | RunCompleted)), None)
        with self._changed:
            dropped = self.dropped - self._reported
            if end is not None and dropped:
                report = TelemetryDropped(dropped=dict(dropped), writer_wait_s=self.waited_s - self._reported_wait_s)
                events = (*events[:end], Envelope(report, round=events[end].round), *events[end:])
                self._reported, self._reported_wait_s = self.dropped.copy(), self.waited_s
                self._in_hand = lambda: events
        return events

    def _fail(self, error: str, events: Sequence[Envelope] | None) -> bool:
        """Keep the events that the sink did not take, or give it up; return whether to continue.

        events: None if they could not be made, which would fail again.
        """
        with self._changed:
            first, self._failed, self._flush_due, self.error = not self._failed, True, False, error
            if self.retries and events is not None:
                self._retained[:0] = events
            else:
                self._give_up(error)
            self._in_hand, self._busy = tuple, False
            self._changed.notify_all()
            proceed = not self.given_up and not self._closing
        if first:
            self._on_failure(self, error)
        return proceed


RECORDED_EPOCHS = 5  # epochs that the flight recorder keeps

Callback = Callable[[list[Envelope]], object]
AnySink = Sink | Callback


@dataclass(frozen=True, slots=True)
class Losses:
    """Events that did not reach their sink."""

    dropped: dict[str, dict[str, int]] = field(default_factory=dict)  # sink -> event -> number
    failed: dict[str, str] = field(default_factory=dict)  # sink -> why
    incomplete: bool = False  # the event file lacks lines that are never dropped

    def lines(self) -> list[str]:
        """A line of text per sink and loss."""
        kinds = {sink: ", ".join(f"{n} {name}" for name, n in kind.items()) for sink, kind in self.dropped.items()}
        dropped = [f"{sink} was too slow for {text}; these events were dropped" for sink, text in kinds.items() if text]
        return dropped + [f"{sink} failed: {why}" for sink, why in self.failed.items()]


class DispatchState(NamedTuple):
    """State of a dispatcher."""

    raised: bool = False  # the next epoch is written at debug, because of what happened before
    until: int = -1  # the last epoch of the run that is written at debug
    recent: tuple[tuple[tuple[str, str], ...], ...] = ()  # (level, line) of epochs written below debug, newest last


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
            sink = cast(Sink, item) if hasattr(item, "write") else CallbackSink(cast(Callback, item))
            self._workers = (*self._workers, SinkWorker(sink, self._spec, self._sink_failed))

    @property
    def has_sinks(self) -> bool:
        """Return whether events are written anywhere."""
        return bool(self._workers)

    def state(self) -> DispatchState:
        """Return the state; the flight recorder only if it may be read."""
        recent = self._recent if self.has_sinks and self._spec.escalates else ()
        lines = (((e.level, encode(e, seq=0, time=0.0)) for e in (*p.events, *p.details)) for p in recent)
        return DispatchState(self._level != self._spec.level, self._until, tuple(map(tuple, lines)))

    def restore(self, state: DispatchState, where: str) -> None:
        """Restore a state; a CheckpointError by name where a line of it is invalid."""
        raised = state.raised and self._spec.escalates
        self._level, self._until = LEVEL_DEBUG if raised else self._spec.level, state.until
        self._recent.clear()
        for i, lines in enumerate(state.recent):
            events = [parse_saved_event(text, f"{where}.recent[{i}]", level) for level, text in lines]
            self._recent.append(PendingEvents(partial(iter, events)))

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

    def drain(self) -> SinkPosition | None:
        """Write all waiting events durably; return the position of the sinks, None without an event file.

        Sinks that keep files are waited for, all together at most as long as one is at closing; others are not.
        """
        for worker in self._workers:
            worker.flush()
        until, loggers = time.monotonic() + self._spec.close_timeout_s, dict[str, LoggerPosition]()
        position = None
        for worker in self._workers:
            local = getattr(worker.sink, "local", False)
            place, missing, dropped = worker.wait_for_flush(until if local else 0.0)
            if isinstance(place, LoggerPosition):
                loggers[worker.name] = place
            elif place is not None:
                pending = tuple(encode(event, seq=0, time=0.0) for event in missing)
                size, seq = place
                position = SinkPosition(size, seq, pending, dropped, self._spec.dir, loggers)
        return position

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks; the event file, which reports their failures, comes last."""
        events = PendingEvents(lambda: map(Envelope, last))
        for worker in sorted(self._workers, key=lambda worker: worker.retries):
            self._put(events, (worker,))
            worker.close()
        return Losses(
            dropped={worker.name: dict(worker.dropped) for worker in self._workers if worker.dropped},
            failed={worker.name: worker.error for worker in self._workers if worker.error is not None},
            incomplete=any(worker.retries and worker.error is not None for worker in self._workers),
        )
