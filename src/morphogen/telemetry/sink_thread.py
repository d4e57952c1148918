"""One thread, one queue and one policy of dropping per sink.

The caller of `put` waits for the sink only when nothing is left to drop.  Every sink has a worker of its own, so that a
slow or broken sink takes nothing from the others.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from morphogen.telemetry.batch import EventBatch, never_dropped
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, TelemetryDropped
from morphogen.telemetry.writer import Sink

MAX_RETAINED = 64_000  # events that are never dropped and wait outside of the queue
BATCH_DELAY_S = 0.03  # seconds that a batch waits alone: the next action is chosen meanwhile

OnFailure = Callable[["SinkWorker", str], None]


class SinkWorker:
    """`put`, `flush`, `wait_for_flush` and `close` are for the scheduler's side; all else happens in the thread.

    size: batches that wait; timeout_s: seconds that a full queue, and closing, wait for the sink before it is given up;
    retries: a sink that raises keeps what it did not take and is tried again at the next flush.
    """

    def __init__(
        self, sink: Sink, *, name: str, size: int, timeout_s: float, on_failure: OnFailure, retries: bool = False
    ) -> None:
        self.sink, self.name, self.retries = sink, name, retries
        self.error: str | None = None  # reason why it takes no more, or did not take the last batch
        self.given_up = False
        self.dropped: Counter[str] = Counter()
        self.waited_s = 0.0
        self._size, self._timeout_s, self._on_failure = size, timeout_s, on_failure
        self._retained: list[Envelope] = []  # never dropped, older than the queue
        self._queue: deque[EventBatch] = deque()
        self._unreported, self._unreported_wait_s = Counter[str](), 0.0  # since the last TelemetryDropped
        self._in_hand: Iterable[Envelope] | EventBatch = ()  # of the thread
        self._position: Callable[[], Any] = getattr(sink, "position", lambda: None)
        self._place = self._position()  # of the sink after its last action
        self._failed = self._flush_due = self._busy = self._closing = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {name}", daemon=True)
        self._thread.start()

    def put(self, batch: EventBatch) -> None:
        """Hand over a batch; in a full queue the oldest batches are reduced to the events that are never dropped."""
        with self._changed:
            if self.given_up or self._closing:
                return
            self._queue.append(batch)
            while len(self._queue) > self._size and len(self._retained) < MAX_RETAINED:
                self._retain(self._queue.popleft().events)
            if len(self._queue) > self._size:
                self._wait_for_room()
            lost = self.given_up
            self._changed.notify_all()
        if lost:
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
            in_hand = self._in_hand.events if isinstance(self._in_hand, EventBatch) else self._in_hand
            waiting = [*in_hand, *self._retained, *(event for batch in self._queue for event in batch.events)]
            dropped = self._unreported + Counter(event.name for event in waiting if not never_dropped(event))
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

    # The scheduler's side, the lock held.

    def _retain(self, events: Iterable[Envelope]) -> None:
        gone = Counter(event.name for event in events if not never_dropped(event))
        self._retained += filter(never_dropped, events)
        self.dropped += gone
        self._unreported += gone

    def _wait_for_room(self) -> None:
        self._flush_due = True
        self._changed.notify_all()
        began = time.monotonic()
        stuck = lambda: self.error is not None and not self._flush_due  # noqa: E731
        room = lambda: self.given_up or len(self._queue) <= self._size or stuck()  # noqa: E731
        self._changed.wait_for(room, self._timeout_s)
        waited = time.monotonic() - began
        self.waited_s += waited
        self._unreported_wait_s += waited
        if len(self._queue) > self._size:
            self._give_up(self.error or f"took nothing for {self._timeout_s:g} s")

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
                self._in_hand, self._retained = self._retained, []
            elif self._queue:
                self._in_hand = self._queue.popleft()
            self._changed.notify_all()  # there is room
        events: tuple[Envelope, ...] | None = None
        try:
            events = self._with_drop_event(self._in_hand)
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
            self._place, self._in_hand, self._busy, self._closed = place, (), False, last
            self._changed.notify_all()
        return not last

    def _with_drop_event(self, batch: Iterable[Envelope] | EventBatch) -> tuple[Envelope, ...]:
        """The events, with one on the dropped ones before the first that closes a round or the run."""
        events = tuple(batch.events if isinstance(batch, EventBatch) else batch)
        ends = [i for i, event in enumerate(events) if isinstance(event.data, BatchSummary | RunCompleted)]
        with self._changed:
            if ends and self._unreported:
                report = TelemetryDropped(dropped=dict(self._unreported), writer_wait_s=self._unreported_wait_s)
                events = (*events[: ends[0]], Envelope(report, round=events[ends[0]].round), *events[ends[0] :])
                self._unreported, self._unreported_wait_s = Counter(), 0.0
                self._in_hand = events
        return events

    def _fail(self, error: str, events: tuple[Envelope, ...] | None) -> bool:
        """Keep the events that the sink did not take, or give it up; return whether to go on.

        events: None if they could not be made, which would fail again.
        """
        with self._changed:
            first, self._failed, self._flush_due, self.error = not self._failed, True, False, error
            if self.retries and events is not None:
                self._retained[:0] = events
            else:
                self._give_up(error)
            self._in_hand, self._busy = (), False
            self._changed.notify_all()
            proceed = not self.given_up and not self._closing
        if first:
            self._on_failure(self, error)
        return proceed
