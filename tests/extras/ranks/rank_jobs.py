"""Jobs of several ranks as processes, which tests kill or stop."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from support.forked_commands import FORKS, start_command, wait_for
from support.subprocess_env import OURS

from morphogen.extras.ranks.process_group import join_ranks

COMMAND = [sys.executable, "-m", "morphogen"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
RUN = [
    "train",
    "--preset",
    "tiny",
    "--envs",
    "4",
    "--episode-length",
    "6",
    "--quiet",
    "--set",
    "final_episodes=0",
    "--set",
    "telemetry.level=normal",
]


def run_ranks(body: Callable[..., Any], *arguments: Any, ranks: int) -> list[Any]:
    """Call `body(exchange, *arguments)` as so many ranks, which all succeed; return their
    results.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes = [FORKS.Pipe() for _ in range(ranks)]
    processes = [
        FORKS.Process(target=_run_rank, args=(rank, ranks, port, pipe, body, arguments))
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    assert [wait_for(process) for process in processes] == [0] * ranks
    return [pipe.recv() for pipe, _ in pipes]


def _run_rank(
    rank: int, ranks: int, port: int, pipe: Any, body: Callable[..., Any], arguments: tuple[Any]
) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), RANK=str(rank)
    )
    torch.set_num_threads(1)
    exchange = join_ranks(torch.device("cpu"), timeout_s=30)
    pipe.send(body(exchange, *arguments))
    exchange.close()
    os._exit(0)  # threads of torch can abort an orderly end


def start_job(head: list[str], out: Path, *flags: str) -> subprocess.Popen[str]:
    """Start a run of two ranks that writes to `out`."""
    words = [*head, *RUN, "--out", str(out), *flags]
    return subprocess.Popen(
        words, env=OURS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def fork_job(folder: Path, *flags: str) -> BaseProcess:
    """Start a run of two ranks that writes to `run` in a folder, and its errors to `errors`."""
    words = [*RUN, "--out", str(folder / "run"), "--ranks", "2", *flags]
    return start_command(folder, words, (os.devnull, os.devnull, folder / "errors"))


def wait_for_checkpoint(out: Path, limit_s: float = 60) -> None:
    """Wait until the run has saved a checkpoint."""
    deadline = time.monotonic() + limit_s
    while not list(out.glob("checkpoints/round-*")) and time.monotonic() < deadline:
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
