"""Jobs of several ranks as processes, which tests kill or stop."""

import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.subprocess_env import OURS

COMMAND = [sys.executable, "-m", "morphogen"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
RUN = [
    "train",
    "--preset",
    "tiny",
    "--envs",
    "4",
    "--quiet",
    "--set",
    "final_episodes=0",
    "--set",
    "telemetry.level=normal",
]


def run_script(script: str, *words: str, ranks: int) -> list[bytes]:
    """Run a script as so many ranks, which all succeed; return what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
            "WORLD_SIZE": str(ranks),
        }
    command = [sys.executable, "-c", script, *words]
    processes = [
        subprocess.Popen(command, env={**OURS, **place, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks
    return outputs


def start_job(head: list[str], out: Path, *flags: str) -> subprocess.Popen[str]:
    """Start a run of two ranks that writes to `out`."""
    words = [*head, *RUN, "--out", str(out), *flags]
    return subprocess.Popen(
        words, env=OURS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_for_checkpoint(job: subprocess.Popen[str], out: Path, limit_s: float = 60) -> None:
    """Wait until the run has saved a checkpoint."""
    deadline = time.monotonic() + limit_s
    while (
        not list(out.glob("checkpoints/round-*"))
        and job.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)


def child_processes(parent: int) -> list[int]:
    """Numbers of the living children of a process, in order."""
    children = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, above, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(above) == parent and state != "Z":
                children.append(int(folder.name))
    return sorted(children)
