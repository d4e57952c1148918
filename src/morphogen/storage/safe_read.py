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

from morphogen.vocab.text import escape_text

MIB = 2**20
MAX_BYTES = 64 * MIB  # of a file that is read as a whole
MAX_DEPTH = 64  # objects and lists inside each other


def open_regular(path: Path) -> BinaryIO:
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


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """All bytes of a file."""
    with open_regular(path) as file:
        found = file.read(max_bytes + 1)
    if len(found) > max_bytes:
        raise OSError(errno.EFBIG, f"more than {max_bytes} bytes")
    return found


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, one by one; a last one without its end is none yet."""
    with open_regular(path) as file:
        while (line := file.readline(MAX_BYTES)).endswith(b"\n"):
            yield line
    if len(line) == MAX_BYTES:
        raise OSError(errno.EFBIG, f"a line of more than {MAX_BYTES} bytes")


def error_line(error: BaseException) -> str:
    """Why something failed, in one printable line."""
    told = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = escape_text(told.splitlines()[0])
    return line if len(line) <= 200 else f"{line[:197]}..."


def parse_json(raw: bytes | str) -> dict[str, Any]:
    """The JSON object of a text in UTF-8: no NaN, no infinities, nothing nested too deep."""
    try:
        found = json.loads(raw, parse_constant=_reject_constant, parse_float=_parse_float)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}; want an object")
    _check_depth(found, MAX_DEPTH)
    return found


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _parse_float(text: str) -> float:
    found = float(text)
    return found if abs(found) != float("inf") else _reject_constant(text[:40])


def _check_depth(value: Any, depth_left: int) -> None:
    if isinstance(value, dict | list):
        if not depth_left:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(inner, depth_left - 1)
