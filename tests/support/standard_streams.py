"""Standard streams of a process that are closed, full, broken in the middle or slow."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from support.subprocess_env import OURS

NAMES = ("stdin", "stdout", "stderr")
FAULTS = ("closed", "full", "broken", "slow")
SLOW_BYTES, SLOW_S = 64, 0.01  # of one read, and the pause after it
PATIENCE_S = 300
# Closes a descriptor and becomes the program: a shell's `2>&-`.
CLOSE = "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


class Ended(NamedTuple):
    """Exit code of a process, and the output on its other streams."""

    code: int
    said: dict[str, str]


def run_with(stream: str, fault: str, words: list[str], folder: Path) -> Ended:
    """Run a command, one of its standard streams out of order.

    full: /dev/full; broken: the reader leaves after the first bytes; slow: it reads a few bytes at
    a time.
    """
    number = NAMES.index(stream)
    command = [sys.executable, "-m", "morphogen", *words]
    pipes: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    feeder = None
    if fault == "closed":
        command = [sys.executable, "-c", CLOSE, str(number), *command]
        pipes[stream] = None
    elif fault == "full":
        pipes[stream] = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115  (closed below)
    elif stream == "stdin":
        reader, feeder = os.pipe()
        pipes[stream] = reader
    process = subprocess.Popen(command, cwd=folder, env=OURS, **pipes)
    said: dict[str, str] = {}

    def read(name: str) -> None:
        file, parts, mine = getattr(process, name), [], name == stream
        while part := os.read(file.fileno(), SLOW_BYTES if mine else 1 << 16):
            parts.append(part)
            if mine and fault == "broken":
                break
            if mine:
                time.sleep(SLOW_S)
        file.close()
        said[name] = b"".join(parts).decode()

    threads = [
        threading.Thread(target=read, args=(name,))
        for name in NAMES[1:]
        if pipes[name] is subprocess.PIPE
    ]
    for thread in threads:
        thread.start()
    if feeder is not None:
        os.close(pipes[stream])
        if fault == "broken":
            os.write(feeder, b"half a line")
        else:
            time.sleep(1)
        os.close(feeder)
    try:
        code = process.wait(PATIENCE_S)
    finally:
        process.kill()
        for thread in threads:
            thread.join()
        if fault == "full":
            pipes[stream].close()
    return Ended(code, said)
