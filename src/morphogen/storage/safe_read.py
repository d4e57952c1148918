"""Files that somebody else may have written: regular ones only, no longer than they may be, JSON with bounds.

Whatever cannot be read is an OSError with a reason in words; whatever is no JSON object is a ValueError.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from morphogen.vocab.text import escaped

MIB = 2**20
MOST = 64 * MIB  # of a file that is read as a whole
DEEPEST = 64  # objects and lists inside each other


def opened(path: Path) -> BinaryIO:
    """A regular file, open for reading; nothing is waited for where a pipe or a device stands in its place."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a NUL or half a character pair
        raise OSError(errno.EINVAL, f"no name of a file ({error})") from None
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(errno.EINVAL, f"{'a directory' if stat.S_ISDIR(kind) else 'no regular file'}; want a file")


def whole(path: Path, most: int = MOST) -> bytes:
    """All bytes of a file."""
    with opened(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes")
    return found


def lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, one by one; a last one without its end is none yet."""
    with opened(path) as file:
        while (line := file.readline(MOST)).endswith(b"\n"):
            yield line
    if len(line) == MOST:
        raise OSError(errno.EFBIG, f"a line of more than {MOST} bytes")


def reason(error: BaseException) -> str:
    """Why something failed, in one printable line."""
    told = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = escaped(told.splitlines()[0])
    return line if len(line) <= 200 else f"{line[:197]}..."


def parsed(raw: bytes | str) -> dict[str, Any]:
    """The JSON object of a text in UTF-8: no NaN, no infinities, nothing nested too deep."""
    try:
        found = json.loads(raw, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}; want an object")
    _shallow(found, DEEPEST)
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _number(text: str) -> float:
    found = float(text)
    return found if abs(found) != float("inf") else _no_number(text[:40])


def _shallow(value: Any, room: int) -> None:
    if isinstance(value, dict | list):
        if not room:
            raise ValueError(f"nested deeper than {DEEPEST}")
        for inner in value.values() if isinstance(value, dict) else value:
            _shallow(inner, room - 1)
