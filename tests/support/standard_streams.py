"""Standard streams of a command that are closed, full, broken in the middle or slow."""

import os
import tempfile
import threading
import time
from pathlib import Path

from support.forked_commands import Ended, start_command, wait_for

NAMES = ("stdin", "stdout", "stderr")
FAULTS = ("closed", "full", "broken", "slow")
SLOW_BYTES, SLOW_S = 64, 0.001  # of one read, and the pause after it


def run_with(stream: str, fault: str, words: list[str], folder: Path) -> Ended:
    """Run a command, one of its standard streams out of order.

    full: /dev/full; broken: the reader leaves after the first bytes; slow: it reads a few bytes at
    a time.
    """
    with tempfile.TemporaryDirectory() as outputs:
        files = {name: Path(outputs, name) for name in NAMES}
        files["stdin"].write_bytes(b"half a line" if fault == "broken" else b"")
        streams: dict[str, Path | None] = dict(files)
        reader = None
        if fault == "closed":
            streams[stream] = None
        elif fault == "full":
            streams[stream] = Path("/dev/full")
        elif stream != "stdin":
            pipe = Path(outputs, "pipe")
            os.mkfifo(pipe)
            streams[stream] = pipe
            reader = threading.Thread(target=_copy, args=(pipe, files[stream], fault))
            reader.start()
        code = wait_for(start_command(folder, words, [streams[name] for name in NAMES]))
        if reader is not None:
            reader.join()
        said = (files[name].read_text() if files[name].exists() else "" for name in NAMES[1:])
        return Ended(code, *said)


def _copy(pipe: Path, copy: Path, fault: str) -> None:
    """Read a pipe slowly; one that breaks only once."""
    with pipe.open("rb", buffering=0) as source, copy.open("wb") as target:
        while part := source.read(SLOW_BYTES):
            target.write(part)
            if fault == "broken":
                return
            time.sleep(SLOW_S)
