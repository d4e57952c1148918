"""The event file of a run, read while it grows: whole lines only, and from the start again where it was cut."""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from morphogen.errors import ConfigError
from morphogen.storage.safe_read import MAX_BYTES, error_line, open_regular
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode

CHUNK_BYTES = 1 << 20  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a file; `last`: the line that ends there, which identifies the file."""

    offset: int = 0  # bytes
    last: bytes = b""


class FollowBatch(NamedTuple):
    """Events of one read."""

    events: tuple[Envelope, ...] = ()
    unreadable: int = 0  # lines that are no event
    restarted: bool = False  # the file was cut or replaced: what was read before counts no more, and comes again

    @property
    def empty(self) -> bool:
        """Nothing, for now."""
        return self == FollowBatch()


def read_lines(path: Path, cursor: Cursor, *, chunk: int = CHUNK_BYTES) -> tuple[tuple[bytes, ...], Cursor | None]:
    """The next whole lines, about a chunk of them, and the cursor after them.

    None: the file is not the one that the cursor has read.  A last line without its end waits for it.
    """
    try:
        found = _read_bytes(path, cursor, chunk)
    except FileNotFoundError:
        return (), cursor if cursor == Cursor() else None
    if not found.startswith(cursor.last):
        return (), None
    fresh = found[len(cursor.last) : found.rfind(b"\n") + 1]
    lines = fresh.splitlines(keepends=True)
    return tuple(lines), Cursor(cursor.offset + len(fresh), lines[-1]) if lines else cursor


def _read_bytes(path: Path, cursor: Cursor, chunk: int) -> bytes:
    """The line that the cursor knows and about a chunk more: to the end of a line, or of the file."""
    with open_regular(path) as file:
        file.seek(cursor.offset - len(cursor.last))
        found = file.read(len(cursor.last) + chunk)
        more = b"" if b"\n" in found[len(cursor.last) :] else file.readline(MAX_BYTES)
    if len(more) == MAX_BYTES:
        raise OSError(errno.EFBIG, f"a line of more than {MAX_BYTES} bytes")
    return found + more


def read_new_events(path: Path, cursor: Cursor, *, chunk: int = CHUNK_BYTES) -> tuple[FollowBatch, Cursor]:
    """The next events of a file that may come later, grow, be cut by a resume, or end in the middle of a line."""
    try:
        lines, after = read_lines(path, cursor, chunk=chunk)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error_line(error)}; want the event file of a run") from error
    if after is None:
        return FollowBatch(restarted=True), Cursor()
    events = tuple(event for event in map(_decode_event, lines) if event is not None)
    return FollowBatch(events, unreadable=len(lines) - len(events)), after


def _decode_event(line: bytes) -> Envelope | None:
    try:
        return decode(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None
