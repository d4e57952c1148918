"""The event file: appended to, one write per batch of events, numbered without gaps."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from morphogen.run.telemetry.events import Envelope
from morphogen.run.telemetry.lines import line


class Sink(Protocol):
    """Whatever takes events."""

    def write(self, events: Iterable[Envelope]) -> None:
        """Take a batch."""
        ...

    def flush(self) -> None:
        """Make what was taken durable."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


class Kept:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []

    def write(self, events: Iterable[Envelope]) -> None:
        """Keep a batch."""
        self.events += events

    def flush(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """What was kept stays."""


class JsonLines:
    """A sink that appends JSON lines to a file."""

    def __init__(self, path: Path, *, first: int = 0, rank: int = 0, clock: Callable[[], float] = time.time) -> None:
        """`first`: the number of the next line."""
        self.seq, self._rank, self._clock = first, rank, clock
        self._file = path.open("ab", buffering=0)

    def write(self, events: Iterable[Envelope]) -> None:
        """Append the events in one write; their numbers follow each other."""
        now = self._clock()
        lines = [line(event, seq=self.seq + i, time=now, rank=self._rank) for i, event in enumerate(events)]
        if lines:
            _whole(self._file.write, "".join(lines).encode("ascii"))
            self.seq += len(lines)

    def flush(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close; closing again does nothing."""
        if not self._file.closed:
            self.flush()
            self._file.close()


def _whole(write: Callable[[bytes], int | None], data: bytes) -> None:
    while data:  # a raw file may take a part only
        data = data[write(data) or 0 :]
