"""An outlet: one sink, the bounded queue in front of it, and the thread that feeds it.

Whoever puts a batch in never waits for the sink as long as there is something to make room of.  Every sink has an
outlet of its own, so that a slow or broken one takes nothing from the others.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Any

from morphogen.telemetry.batch import EventBatch, RetainedEvents
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, TelemetryDropped
from morphogen.telemetry.writer import Sink

MAX_RETAINED = 1_000  # events from which remains are no longer added to
BATCH_DELAY_S = (
    0.03  # seconds that a batch waits alone: the next action is chosen meanwhile, and what is told can wait for it
)

OnFailure = Callable[["SinkWorker", str], None]


class SinkWorker:
    """`put`, `flush`, `settle` and `close` are for the scheduler's side; all else happens in the thread.

    `size`: batches that wait; `patience`: seconds that a full queue, and closing, wait for the sink before it is given
    up; `retried`: a sink that raises keeps what it did not take and is tried again at the next flush.
    """

    def __init__(
        self, sink: Sink, *, name: str, size: int, timeout_s: float, on_failure: OnFailure, retries: bool = False
    ) -> None:
        self.sink, self.name, self.retries = sink, name, retries
        self.error: str | None = None  # why it takes no more, or has not been able to
        self.failed = self.given_up = False
        self.dropped: Counter[str] = Counter()
        self.waited_s = 0.0
        self._size, self._patience, self._on_failure = size, timeout_s, on_failure
        self._remains: deque[RetainedEvents] = deque()  # older than all of the fresh ones
        self._fresh: deque[EventBatch] = deque()
        self._untold: Counter[str] = Counter()  # dropped since the last TelemetryDropped
        self._untold_wait_s = 0.0
        self._work: EventBatch | RetainedEvents | None = None  # in the hands of the thread
        self._taken: tuple[Envelope, ...] = ()  # what of it the sink was given
        self._where: Callable[[], Any] = getattr(sink, "position", lambda: None)
        self._place = self._where()  # of the sink after the last thing that it did
        self._asked = self._busy = self._closing = self._done = False
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {name}", daemon=True)
        self._thread.start()

    def put(self, batch: EventBatch) -> None:
        """Hand over a batch; where the queue is full the oldest ones are reduced to what is never dropped."""
        with self._lock:
            if self.given_up or self._closing:
                return
            self._fresh.append(batch)
            self._make_room()
            if self._full():
                self._wait_for_room()
            lost = self.given_up
            self._lock.notify_all()
        if lost:
            self._on_failure(self, str(self.error))

    def flush(self) -> None:
        """Ask for what is waiting to be made durable; a sink that failed is tried again.  Does not wait."""
        with self._lock:
            self._asked = True
            self._lock.notify_all()

    def wait_for_flush(self, until: float) -> tuple[Any, RetainedEvents]:
        """Wait for a flush that was asked for; the place of the sink (None: it has none), and what it did not take.

        `until`: a moment of the monotonic clock, after which it is not waited for.
        """
        with self._lock:
            left = until - time.monotonic()
            self._lock.wait_for(lambda: self.given_up or not (self._asked or self._busy), max(left, 0.0))
            given = RetainedEvents(self._taken) if self._taken else self._work
            held = [*([] if given is None else [given]), *self._remains, *self._fresh]
            return self._place, reduce(RetainedEvents.merge_with, held, RetainedEvents(dropped=self._untold))

    def close(self) -> None:
        """Take no more, drain the queue and close the sink; one that does not come to an end in time is given up."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join(self._patience)
        with self._lock:
            late = self._thread.is_alive() and not self.given_up
            if late:
                self._give_up(f"did not take what was left in {self._patience:g} s")
        if late:
            self._on_failure(self, str(self.error))

    # The scheduler's side, the lock held.

    def _full(self) -> bool:
        return self._waiting() > self._size

    def _waiting(self) -> int:
        return len(self._remains) + len(self._fresh)

    def _make_room(self) -> None:
        while self._full() and self._fresh:
            last = (
                self._remains.pop()
                if self._remains and len(self._remains[-1].events) < MAX_RETAINED
                else RetainedEvents()
            )
            self._remains.append(last.merge_with(self._fresh.popleft()))

    def _wait_for_room(self) -> None:
        self._asked = True
        self._lock.notify_all()
        began = time.monotonic()
        self._lock.wait_for(lambda: self.given_up or not self._full() or not self._trying(), self._patience)
        waited = time.monotonic() - began
        self.waited_s += waited
        self._untold_wait_s += waited
        if self._full():
            self._give_up(self.error or f"took nothing for {self._patience:g} s")

    def _trying(self) -> bool:
        return self.error is None or self._asked

    def _give_up(self, error: str) -> None:
        self.error, self.given_up = error, True
        self._remains.clear()
        self._fresh.clear()

    # The thread's side.

    def _run(self) -> None:
        while self._step():
            pass
        if not self._done:
            with suppress(Exception):  # that it failed is known already
                self.sink.close()

    def _step(self) -> bool:
        """Wait for something to do and do it; False = there is nothing more to do."""
        with self._lock:
            self._lock.wait_for(lambda: self._pressed() or self._ready())
            self._lock.wait_for(lambda: self._pressed() or self._waiting() > 1, BATCH_DELAY_S)
            if self.given_up:
                return False
            if self._asked or self._closing:
                self.error = None  # try again
            work = self._work = self._take()
            self._taken, self._busy = (), True
            last = work is None and self._closing
            self._asked = self._asked and work is not None
        error = self._attempt(work, last)
        if error is not None:
            return self._keep(error, work)
        self._done = last
        return not last

    def _pressed(self) -> bool:
        return self.given_up or self._asked or self._closing

    def _ready(self) -> bool:
        return self.error is None and self._waiting() > 0

    def _take(self) -> RetainedEvents | EventBatch | None:
        waiting = self._remains or self._fresh
        if not waiting:
            return None
        self._lock.notify_all()  # there is room
        return waiting.popleft()

    def _attempt(self, work: RetainedEvents | EventBatch | None, last: bool) -> str | None:
        """Why the sink did not take it; None = it did."""
        try:
            if work is not None:
                self._taken = self._with_drop_event(work)
            if self._taken:
                self.sink.write(self._taken)
            if work is None:
                self.sink.flush()
            if last:
                self.sink.close()
            place = self._where()
        except Exception as cause:
            return f"{type(cause).__name__}: {cause}"
        with self._lock:
            self._place = place
            self._rest()
        return None

    def _rest(self) -> None:
        """Nothing is in the hands of the thread; the lock held."""
        self._work, self._taken, self._busy = None, (), False
        self._lock.notify_all()

    def _with_drop_event(self, work: RetainedEvents | EventBatch) -> tuple[Envelope, ...]:
        """The events, with one on what was dropped before the first that closes a round or the run."""
        events = work.events
        if isinstance(work, RetainedEvents):
            self._untold += work.dropped
            self.dropped += work.dropped
        ends = [i for i, one in enumerate(events) if isinstance(one.data, BatchSummary | RunCompleted)]
        if not ends or not self._untold:
            return events
        with self._lock:
            told = TelemetryDropped(dropped=dict(self._untold), writer_wait_s=self._untold_wait_s)
            self._untold, self._untold_wait_s = Counter(), 0.0
        return (*events[: ends[0]], Envelope(told, round=events[ends[0]].round), *events[ends[0] :])

    def _keep(self, error: str, work: RetainedEvents | EventBatch | None) -> bool:
        """The sink failed: keep what it did not take, or give it up; whether to go on."""
        with self._lock:
            first = not self.failed
            self.failed, self._asked = True, False
            if work is not None and self._taken:
                self._remains.appendleft(RetainedEvents(self._taken))
            self.error = error
            if not self.retries or (work is not None and not self._taken):  # what could not be told never will be
                self._give_up(error)
            on = not self.given_up and not self._closing
            self._rest()
        if first:
            self._on_failure(self, error)
        return on
