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

    def __init__(self, descriptor: int) -> None:
        """Take a descriptor, which stays open."""
        super().__init__(descriptor, "w", closefd=False)
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


def find_error(stream: TextIO) -> OSError | None:
    """Return the error of the first write to a guarded stream that failed; nobody sees later
    output.
    """
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, LenientStream) else None


def describe_loss(name: str) -> str | None:
    """Describe the lost output of stdout or stderr; None if nothing was lost, or if the reader of a
    pipe, such as `head`, wanted no more.
    """
    error = find_error(getattr(sys, name))
    if error is None or error.errno == errno.EPIPE:
        return None
    return f"{name} could not be written: {error.strerror}"


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
        raw = LenientStream(descriptor)
        encoding = "utf-8" if before is None else before.encoding
        at_once = name == "stderr" or raw.isatty()
        text = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=at_once
        )
        setattr(sys, name, text)
