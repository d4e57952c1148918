"""Dispatch of events to the sinks: one thread and one queue per sink.

The caller of `put` waits for a sink only while its queue is full.  A slow or broken sink takes nothing from the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from morphogen.config.telemetry_spec import LEVEL_OFF, TelemetrySpec
from morphogen.errors import CheckpointError
from morphogen.telemetry.derive import derive_events
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.jsonl import decode, encode
from morphogen.telemetry.kinds.run import SinkFailed
from morphogen.telemetry.round_record import LEVEL_RANK, RoundRecord
from morphogen.telemetry.writer import CallbackSink, LoggerPosition, Sink, SinkPosition
from morphogen.vocab.text import format_value

BATCH_DELAY_S = 0.03  # seconds that a batch waits alone: the next action is chosen meanwhile
MIB = 2**20
EVENT_BYTES = 2**12  # that an event about a round or the run counts for, in a queue


class Batch(NamedTuple):
    """Events about a round or the run, and the record of the round; without events: of a round that goes on."""

    events: tuple[Envelope, ...]
    record: RoundRecord | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that the batch counts for."""
        return EVENT_BYTES * len(self.events) + (0 if self.record is None else self.record.nbytes)

    def select(self, wanted: Collection[str] | None) -> list[Envelope]:
        """The events that a sink asks for, those of the epochs first; None: all."""
        views = () if self.record is None or not self.events else derive_events(self.record, wanted)
        return [*views, *(event for event in self.events if wanted is None or event.name in wanted)]


def parse_saved_event(text: str, where: str) -> Envelope:
    """Read an event from a line in a checkpoint; a CheckpointError by name where it is invalid."""
    try:
        return decode(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{where}: expected the line of an event, got {format_value(text)}") from error


class SinkWorker:
    """`put`, `flush`, `wait_for_flush` and `close` are for the scheduler's side; all else happens in the thread.

    A full queue, and closing, wait for the sink before it is given up.  A sink with `retries` that raises keeps what it
    did not take and is tried again at the next flush.  on_failure: called without the lock.
    """

    def __init__(
        self, sink: Any, spec: TelemetrySpec, on_failure: Callable[["SinkWorker", str], None], max_bytes: int = 0
    ) -> None:
        """max_bytes: of the batches that wait; 0: `telemetry.queue`."""
        self.sink, self.name = sink, getattr(sink, "name", type(sink).__name__)
        self.retries: bool = getattr(sink, "retries", False)
        self.error: str | None = None  # reason why it takes no more, or did not take the last batch
        self.given_up = False
        self._wanted: Collection[str] | None = getattr(sink, "kinds", None)
        self._keeps_records = hasattr(sink, "write_record")
        self._max_bytes, self._timeout_s, self._on_failure = (
            max_bytes or spec.queue * MIB,
            spec.close_timeout_s,
            on_failure,
        )
        self._queue, self._bytes = deque[Batch](), 0  # and what waits in it
        self._in_hand: Batch | None = None  # of the thread
        self._position: Callable[[], Any] = getattr(sink, "position", lambda: None)
        self._place = self._position()  # of the sink after its last action
        self._failed = self._flush_due = self._busy = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {self.name}", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Hand over a batch; waits while the queue is full."""
        with self._changed:
            if self._closing or not (batch.events or self._keeps_records):
                return
            stuck = not self._wait_for_room(batch.nbytes)
            if stuck:
                self._give_up(self.error or f"took nothing for {self._timeout_s:g} s")
            elif not self.given_up:
                self._queue.append(batch)
                self._bytes += batch.nbytes
                self._changed.notify_all()
        if stuck:
            self._on_failure(self, str(self.error))

    def _wait_for_room(self, nbytes: int) -> bool:
        """Wait until the queue has room, or the sink is given up; False if neither happens in time."""
        has_room = lambda: self.given_up or not self._queue or self._bytes + nbytes <= self._max_bytes  # noqa: E731
        if not has_room():
            self._flush_due = True
            self._changed.notify_all()
            failed = lambda: self.error is not None and not self._flush_due  # noqa: E731
            self._changed.wait_for(lambda: has_room() or failed(), self._timeout_s)
        return has_room()

    def flush(self) -> None:
        """Ask for a durable write of all that waits; a sink that failed is tried again.  Does not wait."""
        with self._changed:
            self._flush_due = True
            self._changed.notify_all()

    def wait_for_flush(self, until: float) -> tuple[Any, tuple[Envelope, ...]]:
        """Wait for a flush; return the place of the sink, and the events that it did not take.

        until: moment of the monotonic clock at which the wait ends.  Place None: the sink has no position.
        """
        with self._changed:
            idle = lambda: self.given_up or not (self._flush_due or self._busy)  # noqa: E731
            self._changed.wait_for(idle, max(until - time.monotonic(), 0.0))
            waiting = [*([] if self._in_hand is None else [self._in_hand]), *self._queue]
            wanted = None if self._keeps_records else self._wanted  # of a record that was not written, all
            return self._place, tuple(event for batch in waiting for event in batch.select(wanted))

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
            self._changed.wait_for(lambda: due() or (self.error is None and bool(self._queue)))
            self._changed.wait_for(lambda: due() or len(self._queue) > 1, BATCH_DELAY_S)
            if self.given_up:
                return False
            self.error = None  # try again
            batch = self._in_hand = self._queue.popleft() if self._queue else None
            self._flush_due = self._flush_due and batch is not None
            self._busy, last = True, batch is None and self._closing
        try:
            if batch is None:
                self.sink.flush()
            else:
                self._write(batch)
            if last:
                self.sink.close()
            place = self._position()
        except Exception as cause:
            return self._fail(f"{type(cause).__name__}: {cause}")
        with self._changed:
            self._place, self._busy = place, False
            self._bytes -= 0 if batch is None else batch.nbytes
            self._in_hand = None
            self._changed.notify_all()
        return not last

    def _write(self, batch: Batch) -> None:
        if self._keeps_records and batch.record is not None:
            self.sink.write_record(batch.record)  # before the line that says that the round is over
        events = batch.select(self._wanted)
        if events:
            self.sink.write(events)

    def _fail(self, error: str) -> bool:
        """Keep the batch that the sink did not take, or give it up; return whether to continue."""
        with self._changed:
            first, self._failed, self._flush_due, self.error = not self._failed, True, False, error
            if not self.retries:
                self._give_up(error)
            elif self._in_hand is not None:
                self._queue.appendleft(self._in_hand)
            self._in_hand, self._busy = None, False
            self._changed.notify_all()
            proceed = not self.given_up and not self._closing
        if first:
            self._on_failure(self, error)
        return proceed


Callback = Callable[[list[Envelope]], object]
AnySink = Sink | Callback


@dataclass(frozen=True, slots=True)
class Losses:
    """Sinks that did not take all events."""

    failed: dict[str, str] = field(default_factory=dict)  # sink -> why
    incomplete: bool = False  # the event file lacks lines

    def lines(self) -> list[str]:
        """A line of text per sink."""
        return [f"{sink} failed: {why}" for sink, why in self.failed.items()]


class Dispatcher:
    """Sinks of a run.  At level off there are no sinks."""

    def __init__(self, sinks: Iterable[AnySink], spec: TelemetrySpec) -> None:
        self._spec = spec
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

    def emit(self, events: Iterable[Envelope], record: RoundRecord | None = None) -> None:
        """Emit events about a round or the run that the level has, those of the epochs of a record before them."""
        self._put(tuple(events), self._workers, record)

    def _put(
        self, events: tuple[Envelope, ...], workers: Iterable[SinkWorker], record: RoundRecord | None = None
    ) -> None:
        depth = LEVEL_RANK[self._spec.level] if record is None else record.depths().max()
        batch = Batch(tuple(event for event in events if LEVEL_RANK[event.data.LEVEL] <= depth), record)
        for worker in workers:
            worker.put(batch)

    def _sink_failed(self, worker: SinkWorker, error: str) -> None:
        """Report a failure to the other sinks, and to a sink that is tried again."""
        event = Envelope(SinkFailed(sink=worker.name, error=error))
        self._put((event,), [w for w in self._workers if w is not worker or w.retries])

    def drain(self, rounds: int) -> SinkPosition | None:
        """Write all waiting events durably; return the position of the sinks, None without an event file.

        Sinks that keep files are waited for, all together at most as long as one is at closing; others are not.
        rounds: that are over.
        """
        for worker in self._workers:
            worker.flush()
        until, loggers = time.monotonic() + self._spec.close_timeout_s, dict[str, LoggerPosition]()
        position = None
        for worker in self._workers:
            local = getattr(worker.sink, "local", False)
            place, missing = worker.wait_for_flush(until if local else 0.0)
            if isinstance(place, LoggerPosition):
                loggers[worker.name] = place
            elif place is not None:
                size, seq = place
                pending = tuple(encode(event, seq=0, time=0.0) for event in missing)
                position = SinkPosition(size, seq, pending, rounds, self._spec.dir, loggers)
        return position

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks; the event file, which reports their failures, comes last."""
        events = tuple(map(Envelope, last))
        for worker in sorted(self._workers, key=lambda worker: worker.retries):
            self._put(events, (worker,))
            worker.close()
        return Losses(
            failed={worker.name: worker.error for worker in self._workers if worker.error is not None},
            incomplete=any(worker.retries and worker.error is not None for worker in self._workers),
        )
