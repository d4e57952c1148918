"""Ranks that a command starts on this machine: processes of torch's elastic launcher."""

import logging
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    SignalException,
    Std,
    start_processes,
)

from morphogen.cli.process import EXITS, UNEXPECTED
from morphogen.config.files import error_line
from morphogen.errors import RankError
from morphogen.train.stop_signals import SIGNAL_CODE, SIGNALS

LOCALHOST = "127.0.0.1"
LOOPBACK = "lo"
LOOK_S = 0.02  # between two looks at the ranks
END_S = 6.0  # for the other ranks to end by themselves once one has failed
ELASTIC = "torch.distributed.elastic.multiprocessing.api"  # logger: it repeats the errors


def run_workers(command_line: str, ranks: int, environment: Mapping[str, str]) -> int:
    """Run a command on ranks of this machine; return its exit code.

    Args:
        command_line: of the command.
        ranks: their number.
        environment: variables of all ranks.

    Raises: the error that ended a rank.
    """
    with socket.create_server((LOCALHOST, 0)) as free:
        check_loopback(free.getsockname())
    server: Any = dist  # its types leave out the store
    store = server.TCPStore(LOCALHOST, 0, is_master=True, wait_for_workers=False)
    common = {
        **environment,
        **({"GLOO_SOCKET_IFNAME": LOOPBACK} if sys.platform == "linux" else {}),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": LOCALHOST,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),
    }
    words = ("-m", "morphogen", *shlex.split(command_line)[1:])
    logging.getLogger(ELASTIC).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, _restored_handlers():
        hidden = dict.fromkeys(range(1, ranks), Std.ALL)
        try:
            context = start_processes(
                "morphogen",
                sys.executable,
                args=dict.fromkeys(range(ranks), words),
                envs={
                    rank: {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                    for rank in range(ranks)
                },
                logs_specs=DefaultLogsSpecs(folder, redirects=hidden),
            )
            received = forward_signals(list(context.pids().values()))
        except SignalException as error:  # torch ends the ranks that have started
            return SIGNAL_CODE + error.sigval
        codes = wait_for_end(context)
        return command_code(codes, received, context)


def check_loopback(address: tuple[str, int]) -> None:
    """Raise a RankError if processes of this machine cannot reach each other."""
    try:
        socket.create_connection(address, timeout=END_S).close()
    except OSError as error:
        place = ":".join(map(str, address))
        line = f"rank 0 at {place} cannot be reached: {error_line(error)}"
        raise RankError(f"{line}; `--ranks 1` needs no network") from None


@contextmanager
def _restored_handlers() -> Iterator[None]:
    """Restore the handlers of signals, which torch replaces when it starts processes."""
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def forward_signals(children: list[int]) -> list[int]:
    """Forward the signals that stop a run to all ranks; return the list of received ones."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, number)

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, forward)
    return received


def wait_for_end(context: Any) -> dict[int, int]:
    """Wait for all ranks, or until `END_S` after the first failure; end all others.

    Returns: exit codes of the ranks that ended by themselves, in the order of their ends.
    """
    processes = {rank: handler.proc for rank, handler in context.subprocess_handlers.items()}
    codes = dict[int, int]()
    deadline = float("inf")
    while len(codes) < len(processes) and time.monotonic() < deadline:
        ended = [
            rank
            for rank, process in processes.items()
            if rank not in codes and process.poll() is not None
        ]
        codes |= {rank: processes[rank].returncode for rank in ended}
        if deadline == float("inf") and any(codes.values()):
            deadline = time.monotonic() + END_S
        time.sleep(LOOK_S)
    context.close(signal.SIGKILL)
    return codes


def command_code(codes: Mapping[int, int], received: list[int], context: Any) -> int:
    """Return the exit code of a command whose ranks ended.

    codes: by rank, in the order of their ends.
    Raises: the error that a rank left, or RankError for a rank that a signal or a fault ended.
    """
    failed = [rank for rank, code in codes.items() if code]
    if not failed:
        return 0
    # A rank with the code of RankError ended because of another one.
    rank = min(failed, key=lambda rank: codes[rank] == EXITS[RankError])
    code = codes[rank]
    if -code in received:
        return SIGNAL_CODE - code
    if code < 0:
        name = signal.Signals(-code).name
        raise RankError(f"rank {rank} of {len(context.pids())} ended by signal {-code} ({name})")
    error_file = Path(context.error_files[rank])
    if error_file.exists():
        kind = next(kind for kind, number in EXITS.items() if number == code)
        raise kind(error_file.read_text())
    if code == UNEXPECTED:
        path = context.stderrs[rank]  # "" for the rank that has the console
        lines = Path(path).read_text(errors="backslashreplace").splitlines() if path else []
        reason = f": {lines[-1]}" if lines else ""
        raise RankError(f"rank {rank} of {len(context.pids())} ended with exit code {code}{reason}")
    return code
