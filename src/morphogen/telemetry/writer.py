"""Sinks for events, and the positions from which they can be resumed.  No tensors."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from morphogen.storage.type_check import Count
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import encode


class FilePosition(NamedTuple):
    """Of an event file."""

    bytes: Count
    seq: Count  # number of the next line


class LoggerPosition(NamedTuple):
    """Of a logger of scalars."""

    id: str | None = None  # of the run, as a service knows it
    files: Mapping[str, Count] = {}  # file -> bytes, of those that a logger keeps itself


UNOPENED = LoggerPosition()  # not opened yet


class SinkPosition(NamedTuple):
    """Of the event file, with what it did not take, and of the loggers."""

    bytes: Count
    seq: Count
    pending: tuple[str, ...]  # lines of events that are never dropped
    dropped: Mapping[str, Count]  # event -> number of others, not told yet
    dir: str | None  # telemetry.dir
    loggers: Mapping[str, LoggerPosition]


class Sink(Protocol):
    """Destination of events.

    A sink with `position` reports where it stands; a checkpoint waits for a sink with `local` files.
    """

    def write(self, events: Iterable[Envelope]) -> None:
        """Take a batch."""

    def flush(self) -> None:
        """Make what was taken durable."""

    def close(self) -> None:
        """Take no more."""


class JsonlSink:
    """A sink that appends JSON lines to a file."""

    local = True

    def __init__(
        self, path: Path, *, first_seq: int = 0, rank: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        """first_seq: number of the next line."""
        self.name, self.seq, self._rank, self._clock = path.name, first_seq, rank, clock
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()  # bytes of whole lines

    def write(self, events: Iterable[Envelope]) -> None:
        """Append the events in one write, all of them or, where that raises, none; their numbers follow each other."""
        now = self._clock()
        lines = [encode(event, seq=self.seq + i, time=now, rank=self._rank) for i, event in enumerate(events)]
        data = "".join(lines).encode("ascii")
        try:
            rest = data
            while rest:  # a raw file may take a part only
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._file.truncate(self._size)  # a disk that fills up takes a part
            raise
        self.seq, self._size = self.seq + len(lines), self._size + len(data)

    def position(self) -> FilePosition:
        """The end of the whole lines."""
        return FilePosition(self._size, self.seq)

    def flush(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close; closing again does nothing."""
        if not self._file.closed:
            self.flush()
            self._file.close()


class CallbackSink:
    """A sink that hands every batch to a function, as a list."""

    def __init__(self, function: Callable[[list[Envelope]], object]) -> None:
        self.name, self._function = getattr(function, "__name__", type(function).__name__), function

    def write(self, events: Iterable[Envelope]) -> None:
        """Call the function."""
        self._function(list(events))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MemorySink(CallbackSink):
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        super().__init__(self.events.extend)
        self.name = type(self).__name__
