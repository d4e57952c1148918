"""Small disks, for what happens when one is full."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.subprocess_env import OURS

MOUNTED = 'mount -t tmpfs -o size="$2" tmpfs "$1" && shift 2 && exec "$@"'


def on_disk(folder: Path, size: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that sees a disk of this size in a folder, which is gone with it."""
    folder.mkdir()
    reported: dict[str, Any] = {"capture_output": True, "text": True, "env": OURS}
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(folder), size, *words], **reported
    )


def need_disks(folder: Path) -> None:
    """Skip the test where the machine lets nobody make one."""
    if (probe := on_disk(folder / "probe", "1m", "true")).returncode:
        pytest.skip(f"no small disk can be made here: {probe.stderr.strip()}")
