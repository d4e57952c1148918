"""One run, one owner: an exclusive lock on a run directory, free again as soon as its owner is gone."""

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
    """The process that holds a lock, or that died holding it."""

    pid: int
    host: str
    since: str  # UTC

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextlib.contextmanager
def own_directory(folder: Path) -> Iterator[LockOwner | None]:
    """Be the one owner of a run directory meanwhile; who died owning it, as far as is known.

    It is the system that holds the lock and lets go of it, however its owner ends: the file only tells who that is.
    A directory that is in use, or that cannot be locked, is a ConfigError.
    """
    path = folder / LOCK
    try:
        handle = _acquire(path)
    except BlockingIOError:
        raise ConfigError(
            f"run directory is {folder}, which {_describe_owner(path)}; want one that nobody uses"
        ) from None
    except OSError as error:
        raise ConfigError(f"run directory is {folder}; it cannot be locked: {error.strerror}") from error
    try:
        left = _parse_owner(os.pread(handle, MAX_OWNER_BYTES, 0))
        _write_owner(handle)
        yield left
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held: whoever opened it meanwhile finds that it is gone
        os.close(handle)


def _acquire(path: Path) -> int:
    """A handle that holds the lock on the file that has the name now."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        if _is_current(handle, path):
            return handle
        os.close(handle)  # its owner took it away between our two calls


def _is_current(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat(follow_symlinks=False))
    return False


def _write_owner(handle: int) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    os.ftruncate(handle, 0)
    os.pwrite(handle, atomic_write.json_bytes(asdict(LockOwner(os.getpid(), socket.gethostname(), now))), 0)


def _describe_owner(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if owner := _parse_owner(file.read(MAX_OWNER_BYTES)):
            return f"{owner} has been using since {owner.since}"
    return "another process is using"


def _parse_owner(data: bytes) -> LockOwner | None:
    """What a lock file says; None if it says nothing that makes sense."""
    try:
        match json.loads(data):
            case {"pid": int(pid), "host": str(host), "since": str(since)}:
                return LockOwner(pid, host, since)
    except (ValueError, RecursionError):
        pass
    return None
