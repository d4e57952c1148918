"""Files that are either whole or absent: written beside their place, synced, then renamed into it."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, data: bytes) -> None:
    """Put a file in place in one step: a reader sees the old content or the new one, never a part."""
    beside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        beside.write_bytes(data)
        sync(beside)
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON object as a file: two spaces, order as given, newline at the end."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("ascii")


def sha256(path: Path) -> str:
    """Sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
