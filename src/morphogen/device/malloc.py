"""Memory retention of this process: an epoch frees and allocates the same activations repeatedly.

The C library returns freed blocks to the system and gets zeroed pages again, which costs more than
the arithmetic on the pages.
"""

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD = -1
_MMAP_MAX = -4  # names of `mallopt` in malloc.h
STATUS = Path("/proc/self/status")
MEMINFO = Path("/proc/meminfo")
_KEEP_BYTES = 2**31 - 1  # bytes
_MAPPED_BLOCKS = 0  # blocks with their own mapping, which return to the system when freed


def keep_freed_memory() -> bool:
    """Make the C library retain freed memory; return True on success.  Only glibc has this
    option.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return (
        tune is not None
        and bool(tune(_TRIM_THRESHOLD, _KEEP_BYTES))
        and bool(tune(_MMAP_MAX, _MAPPED_BLOCKS))
    )


def process_memory(name: str) -> int | None:
    """Return a size of this process (VmRSS, VmHWM) in bytes; None if the system does not report the
    size.
    """
    return _read_bytes(STATUS, name)


def reachable_memory() -> int | None:
    """Return the bytes that this process has or could get; None if the system does not report them.

    Memory of this process counts, since what it frees it retains, and uses again.
    """
    free = _read_bytes(MEMINFO, "MemAvailable")
    own = process_memory("VmRSS")
    return None if free is None or own is None else free + own


def _read_bytes(path: Path, name: str) -> int | None:
    lines = path.read_text().splitlines() if path.exists() else []
    return next(
        (1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None
    )
