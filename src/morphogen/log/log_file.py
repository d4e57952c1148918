"""The log of a run on the disk: the event file, and the records of its rounds next to it.  No
tensors.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from morphogen.log.events import Count, Envelope
from morphogen.log.jsonl import encode, encode_round
from morphogen.log.locks import hold_lock
from morphogen.log.record_files import write_record
from morphogen.log.round_record import RoundRecord
from morphogen.log.run_directory import LOCK


class LogPosition(NamedTuple):
    """Position in the log at a checkpoint."""

    bytes: Count  # of the event file
    seq: Count  # number of the next line
    pending: tuple[str, ...]  # lines that the disk has not taken yet
    rounds: Count  # that are over
    dir: str | None  # telemetry.dir


class LogFile:
    """The event file, which no other process writes meanwhile, and the records next to it.

    What the disk does not take is kept and tried again: the log loses nothing while the process
    lives.
    """

    local = retries = True

    def __init__(
        self,
        path: Path,
        *,
        first_seq: int = 0,
        size: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the file, and cut it to `size` bytes, if set.  first_seq: number of the next line.

        Raises: OSError if the file has another writer or another name, or is a link, a pipe or a
        device.
        """
        self.name = path.name
        self.seq = first_seq
        self._folder = path.parent
        self._clock = clock
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(path.with_name(f"{path.name}.{LOCK}")))
            except BlockingIOError:
                raise OSError(errno.EAGAIN, "another process writes it") from None
            self._file = stack.enter_context(os.fdopen(_open_to_append(path), "ab", buffering=0))
            if size is not None:
                self._file.truncate(size)
            self.size = self._file.seek(0, os.SEEK_END)  # bytes of complete lines
            self._opened = stack.pop_all()

    def encode(self, events: Iterable[Envelope]) -> list[str]:
        """Encode events as lines, numbered from the next one: one line for all events about a
        round.
        """
        lines: list[str] = []
        now = self._clock()
        for number, group in groupby(events, key=lambda event: event.round):
            if number is not None:
                lines.append(encode_round(list(group), seq=self.seq + len(lines), time=now))
                continue
            for event in group:
                lines.append(encode(event, seq=self.seq + len(lines), time=now))
        return lines

    def position(self, waiting: Iterable[Envelope], rounds: int, folder: str | None) -> LogPosition:
        """Return the position of the end of the file.  waiting: events that it has not taken."""
        return LogPosition(self.size, self.seq, tuple(self.encode(waiting)), rounds, folder)

    def write(self, events: Iterable[Envelope]) -> None:
        """Append events in one write, all of them or, where that raises, none."""
        self.write_lines(self.encode(events))

    def write_lines(self, lines: list[str]) -> None:
        """Append lines in one write, all of them or, where that raises, none."""
        data = "".join(lines).encode("ascii")
        try:
            rest = data
            while rest:  # a raw file may take a part only
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._file.truncate(self.size)  # a disk that fills up takes a part
            raise
        self.seq += len(lines)
        self.size += len(data)

    def write_record(self, record: RoundRecord) -> None:
        """Write the file of the record of a round; OSError if that fails, or if the folder was
        replaced.
        """
        if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._folder / self.name)):
            raise OSError(errno.ESTALE, "its folder was replaced by another one")
        write_record(self._folder, record)

    def flush(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close; closing again does nothing."""
        if not self._file.closed:
            self.flush()
            self._opened.close()


def _open_to_append(path: Path) -> int:
    """Return the descriptor of a regular file to append to."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(
                errno.EINVAL,
                "expected a file with one name, got a device, a pipe or a file with hard links",
            )
    except OSError:
        os.close(handle)
        raise
    return handle
