"""Output streams that never stop a command: writes to a closed, broken or full stream are dropped,
and remembered.
"""

import errno
import io
import os
import select
import sys
from typing import TextIO, cast


class LenientStream(io.FileIO):
    """Raw stream over a file descriptor; a write that fails is dropped, with all that follow."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Take a descriptor, which stays open, and the name of the stream for messages."""
        super().__init__(descriptor, "w", closefd=False)
        self._label = name
        self.error: OSError | None = None  # of the first write that failed

    def write(self, data: object) -> int:
        """Write bytes; return their number, also if they were dropped."""
        rest = memoryview(cast(bytes, data)).cast("B")  # any buffer
        size = len(rest)
        while rest and self.error is None:
            try:
                rest = rest[os.write(self.fileno(), rest) :]
            # another program made the terminal or pipe that both share non-blocking
            except BlockingIOError:
                select.select([], [self.fileno()], [])
            except OSError as error:
                self.error = error
        return size

    @property
    def loss(self) -> str | None:
        """Describe the lost output; None if nothing was lost, or if the reader of a pipe, such as
        `head`, wanted no more.
        """
        if self.error is None or self.error.errno == errno.EPIPE:
            return None
        return f"{self._label} could not be written: {self.error.strerror}"


def is_lost(stream: TextIO) -> bool:
    """Return whether a write to a guarded stream has failed; nobody sees later output."""
    raw = _raw_stream(stream)
    return raw is not None and raw.error is not None


def describe_loss(stream: TextIO) -> str | None:
    """Describe the output that a guarded stream lost; None without a loss."""
    raw = _raw_stream(stream)
    return None if raw is None else raw.loss


def _raw_stream(stream: TextIO) -> LenientStream | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, LenientStream) else None


def guard_streams() -> None:
    """Replace stdout and stderr of the process, and open /dev/null for each standard stream that is
    closed.

    A closed descriptor would be given to the next file that is opened, which would then receive the
    output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        raw = LenientStream(descriptor, name)
        encoding = "utf-8" if before is None else before.encoding
        at_once = name == "stderr" or raw.isatty()
        text = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=at_once
        )
        setattr(sys, name, text)
