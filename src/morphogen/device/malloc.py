"""Memory retention of this process: an epoch frees and allocates the same activations repeatedly.

The C library gives freed blocks back to the system and gets zeroed pages again, which costs more than the arithmetic on
them.  Keeping freed memory avoids that.
"""

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of `mallopt` in malloc.h
STATUS = Path("/proc/self/status")
_KEEP_BYTES = 2**31 - 1  # bytes
_MAPPED_BLOCKS = 0  # blocks that are mapped on their own; those go back to the system as soon as they are freed


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for later; whether it did.  Only glibc has the knob."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return tune is not None and bool(tune(_TRIM_THRESHOLD, _KEEP_BYTES)) and bool(tune(_MMAP_MAX, _MAPPED_BLOCKS))


def process_memory(name: str) -> int | None:
    """A size that the system tells of this process (VmRSS, VmHWM), in bytes; None where it tells none."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
