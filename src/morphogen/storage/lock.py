"""Lock of a run directory: one process at a time; the lock of a dead process is ignored."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from morphogen.errors import ConfigError
from morphogen.storage import atomic_write

LOCK = "lock"
MAX_OWNER_BYTES = 4096  # bytes of the file that are read


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Process that holds a lock, or died while holding it."""

    pid: int
    host: str
    since: str  # UTC


@contextlib.contextmanager
def own_directory(folder: Path) -> Iterator[LockOwner | None]:
    """Hold the lock of a run directory; yield the previous owner if that process died, None otherwise.

    The operating system releases the lock when the owner ends in any way; the file only names the owner.
    Raises: ConfigError if the directory is in use or cannot be locked.
    """
    path = folder / LOCK
    try:
        handle = _acquire(path)
    except BlockingIOError:
        raise ConfigError(f"run directory {folder} is in use by {_describe_owner(path)}") from None
    except OSError as error:
        raise ConfigError(f"run directory {folder} cannot be locked: {error.strerror}") from error
    try:
        previous = _parse_owner(os.pread(handle, MAX_OWNER_BYTES, 0))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.ftruncate(handle, 0)
        os.pwrite(handle, atomic_write.json_bytes(asdict(LockOwner(os.getpid(), socket.gethostname(), now))), 0)
        yield previous
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # under the lock: a process that opened the file meanwhile sees that it is gone
        os.close(handle)


def _acquire(path: Path) -> int:
    """Return a handle that holds the lock of the file at `path`, created if missing."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        if _is_current(handle, path):
            return handle
        os.close(handle)  # deleted by its owner between open and flock


def _is_current(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat(follow_symlinks=False))
    return False


def _describe_owner(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if owner := _parse_owner(file.read(MAX_OWNER_BYTES)):
            return f"process {owner.pid} on host {owner.host} since {owner.since}"
    return "another process"


def _parse_owner(data: bytes) -> LockOwner | None:
    """Return the owner that a lock file names; None if its content is invalid."""
    try:
        match json.loads(data):
            case {"pid": int(pid), "host": str(host), "since": str(since)}:
                return LockOwner(pid, host, since)
    except (ValueError, RecursionError):
        pass
    return None
