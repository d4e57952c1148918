"""Files that are complete or absent when written, and guarded when read: regular, bounded in size
and depth of JSON.

Temporary files are created exclusively, under names that cannot be guessed, so that no link is
written through.

A file that cannot be read is an OSError with a reason in words; any other text than a JSON object
is a ValueError.  No torch.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from morphogen.vocab.text import escape_text

MIB = 2**20
MAX_BYTES = 16 * MIB  # of a JSON file, or of a line of an event file
MAX_DEPTH = 64  # nested objects and lists
TEMPORARY = ".tmp-"  # prefix of files that are being written
# Errors of a file system that lacks a call; 524: ENOTSUPP of the Linux kernel, which has no name
# here.
UNSUPPORTED = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EBADF, 524}
)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe or device at its path is an OSError and never
    blocks.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a NUL or a lone surrogate
        raise OSError(errno.EINVAL, f"invalid file name ({error})") from None
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(
        errno.EINVAL,
        f"expected a file, got {'a directory' if stat.S_ISDIR(kind) else 'a pipe or device'}",
    )


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file; more than `max_bytes` are an OSError."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise OSError(errno.EFBIG, f"more than {max_bytes} bytes")
        return file.read()


def read_text(path: Path) -> str:
    """Return the text of a JSON file, in any of the encodings of Unicode, without a byte order
    mark.

    A file of other bytes is a ValueError.
    """
    raw = read_bytes(path)
    return raw.decode(json.detect_encoding(raw))


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file; a last line without its end is left out."""
    with open_regular(path) as file:
        while (line := file.readline(MAX_BYTES)).endswith(b"\n"):
            yield line
    if len(line) == MAX_BYTES:
        raise OSError(errno.EFBIG, f"a line of more than {MAX_BYTES} bytes")


def error_line(error: BaseException) -> str:
    """Return the reason of an error in one printable line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = escape_text(text.splitlines()[0])
    return line if len(line) <= 200 else f"{line[:197]}..."


def parse_json(raw: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a text; NaN, infinities and deep nesting are a ValueError."""
    try:
        value = json.loads(raw, parse_constant=_reject_constant, parse_float=_parse_float)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got a {type(value).__name__}")
    check_depth(value)
    return value


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _reject_constant(text[:40])


def check_depth(value: Any, depth_left: int = MAX_DEPTH) -> None:
    """Raise a ValueError if dicts and lists are nested deeper than `depth_left`."""
    if isinstance(value, dict | list):
        if not depth_left:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        for inner in value.values() if isinstance(value, dict) else value:
            check_depth(inner, depth_left - 1)


def sync_folder(path: Path) -> None:
    """Wait until the entries of a folder are on the disk, where its file system and its permissions
    allow that.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder may be writable and not readable
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED | {errno.EACCES, errno.EPERM}:
            raise
    finally:
        os.close(handle)


def temporary_path(path: Path, prefix: str = TEMPORARY) -> Path:
    """Return a path beside `path` that no other process can guess."""
    return path.with_name(f"{prefix}{path.name}-{secrets.token_hex(8)}")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, and wait until it is on the disk.  Raises: OSError if
    it exists.
    """
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
    )
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file, or a link, in one step: readers see the old content or the new one, never a
    part.
    """
    temporary = temporary_path(path)
    try:
        write_new(temporary, data)
        temporary.rename(path)
    finally:
        with contextlib.suppress(OSError):  # the reason of the failure is not hidden
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as the bytes of a file: two spaces, order of `value`, newline at the
    end.
    """
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("ascii")


def sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
