"""Files that are complete or absent: written under a temporary name, synced, then renamed."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        sync(temporary)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as the bytes of a file: two spaces, order of `value`, newline at the end."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("ascii")


def sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
