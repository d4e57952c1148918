"""Sink workers: pending events of an epoch, a round or the run, and one thread and one queue per sink.

The caller of `put` waits for the sink only when nothing is left to drop.  Every sink has a worker of its own, so that a
slow or broken sink takes nothing from the others.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVELS
from morphogen.errors import CheckpointError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode, encode
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, TelemetryDropped
from morphogen.telemetry.writer import Sink
from morphogen.vocab.text import format_value

MAX_RETAINED = 64_000  # events that are never dropped and wait outside of the queue
BATCH_DELAY_S = 0.03  # seconds that a batch waits alone: the next action is chosen meanwhile
LEVEL_RANK = {name: rank for rank, name in enumerate(LEVELS)}

MakeEvents = Callable[[], Iterable[Envelope]]
Batch = Callable[[], Sequence[Envelope]]  # makes its events on the first call


class EventLines(NamedTuple):
    """Pending events as text: the level and the line of every event."""

    events: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]


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

    @property
    def lines(self) -> EventLines:
        """All events as text."""
        parts = (self.events, self.details)
        return EventLines(*(tuple((e.level, encode(e, seq=0, time=0.0)) for e in part) for part in parts))

    @classmethod
    def from_lines(cls, lines: EventLines, where: str) -> Self:
        """Read the events of these lines; a CheckpointError by name where a line is invalid."""
        events, details = (tuple(parse_saved_event(text, where, level) for level, text in part) for part in lines)
        return cls(lambda: events, lambda: details)


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

    size: batches that wait; timeout_s: seconds that a full queue, and closing, wait for the sink before it is given up;
    retries: a sink that raises keeps what it did not take and is tried again at the next flush; on_failure: called once
    per failure, without the lock.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        name: str,
        size: int,
        timeout_s: float,
        on_failure: Callable[["SinkWorker", str], None],
        retries: bool = False,
    ) -> None:
        self.sink, self.name, self.retries = sink, name, retries
        self.error: str | None = None  # reason why it takes no more, or did not take the last batch
        self.given_up = False
        self.dropped: Counter[str] = Counter()
        self.waited_s = 0.0
        self._size, self._timeout_s, self._on_failure = size, timeout_s, on_failure
        self._retained: list[Envelope] = []  # never dropped, older than the queue
        self._queue: deque[Batch] = deque()
        self._reported, self._reported_wait_s = Counter[str](), 0.0  # by the last TelemetryDropped
        self._in_hand: Batch = tuple  # of the thread
        self._position: Callable[[], Any] = getattr(sink, "position", lambda: None)
        self._place = self._position()  # of the sink after its last action
        self._failed = self._flush_due = self._busy = self._closing = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {name}", daemon=True)
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
            if len(self._queue) > self._size:
                self._wait_for_room()
            self._changed.notify_all()
            lost = self.given_up
        if lost:
            self._on_failure(self, str(self.error))

    def _wait_for_room(self) -> None:
        self._flush_due, began = True, time.monotonic()
        self._changed.notify_all()
        stuck = lambda: self.error is not None and not self._flush_due  # noqa: E731
        self._changed.wait_for(lambda: self.given_up or len(self._queue) <= self._size or stuck(), self._timeout_s)
        self.waited_s += time.monotonic() - began
        if len(self._queue) > self._size:
            self._give_up(self.error or f"took nothing for {self._timeout_s:g} s")

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
            late = self._thread.is_alive() and not self.given_up
            if late:
                self._give_up(f"did not take what was left in {self._timeout_s:g} s")
        if late:
            self._on_failure(self, str(self.error))

    def _give_up(self, error: str) -> None:
        self.error, self.given_up = error, True
        self._retained.clear()
        self._queue.clear()

    # The thread's side.

    def _run(self) -> None:
        while self._step():
            pass
        if not self._closed:
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
            self._place, self._in_hand, self._busy, self._closed = place, tuple, False, last
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
