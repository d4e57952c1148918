"""Sinks of a run, each with a thread that hands the rounds over.  No tensors.

The caller does not wait for a sink, unless more rounds wait than `telemetry.queue` holds.  The log
loses nothing: it is tried again, and the caller writes what its thread has not written when a
checkpoint is saved and at the end.  Any other sink is late at most, and is left out once it raises
or takes nothing for `telemetry.close_timeout_s`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

from morphogen.config.telemetry_spec import LEVEL_OFF, TelemetrySpec
from morphogen.log.events import Envelope, Event
from morphogen.log.kinds.run import SinkFailed
from morphogen.log.log_file import LogFile, LogPosition
from morphogen.log.round_record import RoundRecord

BATCH_DELAY_S = 0.03  # seconds that a round waits: the next action is chosen meanwhile
MIB = 2**20
EVENT_BYTES = 2**12  # that an event counts for in a queue


class Sink(Protocol):
    """Destination of events about rounds and the run.

    A sink with `write_record` also gets the record of every round, before the events about it.  A
    checkpoint waits for a sink with `local` files.
    """

    def write(self, events: Iterable[Envelope]) -> None:
        """Take events: about the run, or all of a round."""

    def flush(self) -> None:
        """Make the written lines durable."""

    def close(self) -> None:
        """Take no more."""


class LoggerPlace(NamedTuple):
    """Arguments of a logger, a class of sinks of `config.parts.LOGGERS`, besides `telemetry`.

    Its class method `check` raises a ConfigError if the logger cannot be used.
    """

    folder: Path  # of its files
    run: Path  # run directory, as people name it
    epochs: int  # of a round
    rounds: int = 0  # that are complete
    config: Mapping[str, Any] = MappingProxyType({})  # settings of the run by path


class CallbackSink(Sink):
    """A sink that hands events to a function, as a list."""

    def __init__(self, function: Callable[[list[Envelope]], object]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def write(self, events: Iterable[Envelope]) -> None:
        """Call the function."""
        self._function(list(events))


Callback = Callable[[list[Envelope]], object]
AnySink = Sink | Callback


class Batch(NamedTuple):
    """Events about the run, or about a round with its record."""

    events: tuple[Envelope, ...]
    record: RoundRecord | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that the batch counts for."""
        return EVENT_BYTES * len(self.events) + (0 if self.record is None else self.record.nbytes)


class Outlet:
    """A sink, the batches that wait for it, and the thread that hands them over."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.name = getattr(sink, "name", type(sink).__name__)
        self.local: bool = getattr(sink, "local", False)
        self.retries: bool = getattr(sink, "retries", False)
        self.error: str | None = None  # reason why it did not take the last batch
        self.is_reported = False
        self.waiting: deque[Batch] = deque()  # with the one that is handed over
        self.lock = threading.Lock()  # of the thread that hands over a batch
        self._due = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    @property
    def is_out(self) -> bool:
        """Return whether the sink gets no more."""
        return self.error is not None and not self.retries

    def put(self, batch: Batch) -> None:
        """Let a batch wait for the sink."""
        if not self.is_out:
            self.waiting.append(batch)
            self._due.set()

    def _run(self) -> None:
        """Hand over batches until the writer closes, then close any sink but the log."""
        while not self._closing.is_set():
            self._due.wait()
            self._closing.wait(BATCH_DELAY_S)
            self._due.clear()
            self.deliver()
        if not self.retries:
            self.deliver(sync=True, close=True)

    def finish(self, timeout_s: float) -> None:
        """End the thread; leave a sink out that does not take its queue in time."""
        self._closing.set()
        self._due.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.fail(f"did not take what was left in {timeout_s:g} s")

    def deliver(self, *, sync: bool = False, close: bool = False) -> None:
        """Hand over all that waits, then flush if `sync` and close if `close`; an error keeps the
        rest.
        """
        if self.is_out and self.lock.locked():
            return  # a thread may wait for this sink for ever
        with self.lock:
            self._attempt(self._hand_over)
            if sync and not self.is_out:
                self._attempt(self.sink.flush)
            if close:
                self._attempt(self.sink.close)

    def _hand_over(self) -> None:
        while self.waiting and not self.is_out:
            batch = self.waiting[0]
            if batch.record is not None and hasattr(self.sink, "write_record"):
                # before the line that says that the round is over
                cast(Any, self.sink).write_record(batch.record)
            if batch.events:
                self.sink.write(batch.events)
            if not self.is_out:  # the writer may have given it up meanwhile
                self.waiting.popleft()
                self.error = None

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as cause:
            self.fail(f"{type(cause).__name__}: {cause}")

    def fail(self, error: str) -> None:
        """Note an error; a sink that is not tried again loses its queue."""
        if self.is_out:
            return
        self.error = error
        if not self.retries:
            self.waiting = deque()


@dataclass(frozen=True, slots=True)
class Losses:
    """Sinks that did not take all events."""

    failed: dict[str, str] = field(default_factory=dict)  # sink -> reason
    incomplete: bool = False  # the log lacks lines

    def lines(self) -> list[str]:
        """A line of text per sink."""
        return [f"{sink} failed: {reason}" for sink, reason in self.failed.items()]


class LogWriter:
    """Sinks of a run.  At level off there are none."""

    def __init__(self, sinks: Iterable[AnySink], spec: TelemetrySpec) -> None:
        self._spec = spec
        self._outlets: list[Outlet] = []
        self.add_sinks(sinks)

    def add_sinks(self, sinks: Iterable[AnySink]) -> None:
        """Add sinks, which receive all later events."""
        for item in sinks if self._spec.level != LEVEL_OFF else ():
            sink = (
                cast(Sink, item) if hasattr(item, "write") else CallbackSink(cast(Callback, item))
            )
            self._outlets.append(Outlet(sink))

    def emit(self, events: Iterable[Envelope], record: RoundRecord | None = None) -> None:
        """Emit events about the run, or about a round with its record."""
        batch = Batch(tuple(events), record)
        for outlet in self._outlets:
            outlet.put(batch)
        for outlet in self._outlets:
            self._make_room(outlet)
        self._report_failures()

    def drain(self, rounds: int) -> LogPosition | None:
        """Write the queues of sinks with files, durably; return the position in the log, None
        without one.

        rounds: that are over.
        """
        for outlet in self._outlets:
            if outlet.local:
                outlet.deliver(sync=True)
        self._report_failures()
        for outlet in self._outlets:
            if isinstance(outlet.sink, LogFile):
                with outlet.lock:
                    events = [event for batch in outlet.waiting for event in batch.events]
                    return outlet.sink.position(events, rounds, self._spec.dir)
        return None

    def close(self, *last: Event) -> Losses:
        """Write the last events and close all sinks; the log, which reports their failures, is
        last.
        """
        batch = Batch(tuple(map(Envelope, last)))
        for outlet in self._outlets:
            if not outlet.retries:
                outlet.put(batch)
        for outlet in self._outlets:
            outlet.finish(self._spec.close_timeout_s)
        self._report_failures()
        logs = [outlet for outlet in self._outlets if outlet.retries]
        for outlet in logs:
            outlet.put(batch)
            outlet.deliver(sync=True, close=True)
        failed = {each.name: each.error for each in self._outlets if each.error is not None}
        return Losses(failed, incomplete=any(outlet.error is not None for outlet in logs))

    def _make_room(self, outlet: Outlet) -> None:
        """Wait while more waits for a sink than the queue holds; the caller itself writes to
        files.
        """
        timeout_s = self._spec.close_timeout_s
        until = time.monotonic() + timeout_s
        while (
            not outlet.is_out
            and sum(batch.nbytes for batch in [*outlet.waiting][:-1]) > self._spec.queue * MIB
        ):
            if outlet.local:
                outlet.deliver()
                return
            if time.monotonic() > until:
                outlet.fail(f"took nothing in {timeout_s:g} s")
            time.sleep(BATCH_DELAY_S)

    def _report_failures(self) -> None:
        """Report each failure once, to all other sinks and to the log."""
        for outlet in self._outlets:
            if outlet.error is not None and not outlet.is_reported:
                outlet.is_reported = True
                event = Envelope(SinkFailed(sink=outlet.name, error=outlet.error))
                for other in self._outlets:
                    other.put(Batch((event,)))
