"""Locks: files that one process at a time holds, until it ends in any way.  No torch.

The lock is a flock where the file system has it.  Elsewhere it is the existence of the file, which
names its process: a file of a process of this host that has ended counts for nothing, a file of
another host counts until it is deleted.
"""

import contextlib
import errno
import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from morphogen.config import files

NO_FLOCK = files.UNSUPPORTED | {errno.ENOLCK}  # NFS without locks, Lustre without -o flock, FUSE
SOFT_WAIT_S = 3.0  # filelock takes over a file without a name after 2 s


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is deleted at the end.

    Raises: BlockingIOError whose `strerror` describes the process that holds it; OSError if it
    cannot be locked.
    """
    soft = not has_flock(path.parent)
    lock = (
        SoftFileLock(path, timeout=SOFT_WAIT_S, thread_local=False)
        if soft
        else FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    )
    try:
        lock.acquire()
    except Timeout:
        hint = f"; delete {path.name} in it if that process has ended" if soft else ""
        raise BlockingIOError(errno.EAGAIN, f"{describe_owner(path)}{hint}") from None
    held = path.stat()
    try:
        if not soft:  # SoftFileLock has written this itself
            path.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            # under the lock: a process that opened the file meanwhile sees that it is gone
            if os.path.samestat(path.stat(), held):  # a moved directory may have a successor
                path.unlink()
        lock.release()


def has_flock(folder: Path) -> bool:
    """Return whether files in a folder can be locked by flock."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in NO_FLOCK:
                return False
            raise
    return True


def describe_owner(path: Path) -> str:
    """Return the process that a lock file names, in words."""
    with contextlib.suppress(OSError, ValueError):
        pid, host, *_ = files.read_bytes(path).decode().splitlines()
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime))
        # filelock adds ?NAMESPACE
        return f"process {int(pid)} on host {host.partition('?')[0]} since {since}"
    return "another process"
