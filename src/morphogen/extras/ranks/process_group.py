"""Ranks of a run as processes of `torch.distributed`: gloo on CPUs, nccl between CUDA devices.

The environment names the ranks, as `torchrun` does: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from morphogen.config.files import error_line
from morphogen.errors import RankError
from morphogen.extras.ranks import job
from morphogen.extras.ranks.agreement import name_ranks
from morphogen.extras.ranks.rank_exchange import RankExchange
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.train.stop_signals import SIGNALS

T = TypeVar("T")
REACH_S = 20.0  # to connect ranks that have started
LEAVE_S = 10.0  # for the other ranks to end too
REPORT_S = 2.0  # for the ranks that are left to report that a collective failed
LOOK_S = 0.02  # between two looks at the other ranks, while this one waits for them
# Values on the CPU are exchanged without the device.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def join_ranks(device: torch.device, *, timeout_s: float) -> Exchange:
    """Join the ranks that the environment names; outside of a job return the identity.

    A signal ends a process that is joining at once.

    Args:
        device: of the tensors of this rank.
        timeout_s: seconds that a rank waits for the others.

    Raises: RankError if not all ranks join within the time-out.
    """
    rank, ranks = job.ranks_of_environment()
    if ranks == 1:
        return ALONE
    limit = timedelta(seconds=timeout_s)
    with _deadly_signals():
        if rank or job.has_agent_store():
            _reach_store(rank, timeout_s)
        try:
            store, _, _ = next(rendezvous("env://", timeout=limit))
            attempt, _ = job.restarts_of_environment()
            # because torchrun keeps its store over restarts
            store = PrefixStore(f"attempt/{attempt}", store)
            dist.init_process_group(
                BACKENDS[device.type],
                store=PrefixStore("group", store),
                rank=rank,
                world_size=ranks,
                timeout=limit,
            )
        except (RuntimeError, ValueError, OSError) as error:
            line = f"rank {rank}: not all of {ranks} ranks joined within {timeout_s:g} s"
            raise RankError(f"{line}: {error_line(error)}") from None
    return ProcessGroup(PrefixStore("ranks", store), rank, ranks)


@contextmanager
def _deadly_signals() -> Iterator[None]:
    """Let signals end the process: torch waits outside of Python, where no handler runs."""
    in_main = threading.current_thread() is threading.main_thread()
    handled = [n for n in SIGNALS if in_main and signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reach_store(rank: int, timeout_s: float) -> None:
    """Wait until the store of the ranks listens.  torch would print a traceback for every attempt.

    Raises: RankError after `REACH_S` without a way to its address, and after `timeout_s` if it does
    not listen.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    reach_s = min(timeout_s, REACH_S)
    started = time.monotonic()
    while True:
        try:
            socket.create_connection(address, timeout=reach_s).close()
            return
        except OSError as error:
            limit_s = timeout_s if isinstance(error, ConnectionRefusedError) else reach_s
            if time.monotonic() - started > limit_s:
                place = f"rank {rank}: rank 0 at {address[0]}:{address[1]}"
                raise RankError(f"{place} cannot be reached: {error_line(error)}") from None
        time.sleep(LOOK_S)


class ProcessGroup(RankExchange):
    """Rank of a job, with the key-value store of the job for messages outside of collectives.

    Attributes: waited_s, seconds in collectives so far.
    """

    def __init__(self, store: Store, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self.place = job.local_rank()
        self.waited_s = 0.0
        self._store = store

    def gather_bytes(self, name: str, buffer: Tensor) -> Tensor:
        """Return the buffers of all ranks, on the same device.  uint8 [n] -> uint8 [W, n]."""
        received = torch.empty(self.ranks, len(buffer), dtype=buffer.dtype, device=buffer.device)
        with self._exchanging(name, buffer.nbytes):
            dist.all_gather([*received.unbind(0)], buffer)
        return received

    def add(self, name: str, values: Tensor) -> Tensor:
        """Return the sum over the ranks, same shape.  float [...]."""
        total = values.clone()
        with self._exchanging(name, total.nbytes):
            dist.all_reduce(total)
        return total

    def gather_objects(self, name: str, value: T, *, to_first: bool = False) -> list[T]:
        """Return the plain values of all ranks, in order; `to_first`: on rank 0 alone."""
        values: list[Any] = [value] * self.ranks
        with self._exchanging(name):
            if to_first:
                dist.gather_object(value, values if self.first else None)
            else:
                dist.all_gather_object(values, value)
        return values

    @contextmanager
    def _exchanging(self, name: str, sent: int = 0) -> Iterator[None]:
        """Count and time a collective; name the ranks that ended or hang if it fails."""
        started = time.perf_counter()
        try:
            yield
        except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
            raise RankError(self._describe_failure(name, error)) from None
        self.count(name, sent)
        self.waited_s += time.perf_counter() - started

    def _describe_failure(self, name: str, error: Exception) -> str:
        """Name the ranks that do not report the failure of a collective: they ended or hang."""
        reason = error_line(error)
        try:
            missing = self._find_missing("failed", REPORT_S)
        except (RuntimeError, ValueError):
            act = f"during the collective {name}"
            return f"rank 0 cannot be reached from rank {self.rank} {act}: {reason}"
        if missing:
            return f"{name_ranks(missing)} of {self.ranks} did not finish the collective {name}"
        return f"rank {self.rank}: the collective {name} failed: {reason}"

    def _find_missing(self, act: str, limit_s: float) -> list[int]:
        """Report an act to the store; return the ranks that do not report it within the limit."""
        self._store.set(f"{act}/{self.rank}", "")
        deadline = time.monotonic() + limit_s
        missing = [*range(self.ranks)]
        while missing and time.monotonic() < deadline:
            missing = [rank for rank in missing if not self._store.check([f"{act}/{rank}"])]
            time.sleep(LOOK_S)
        return missing

    def close(self) -> None:
        """Leave the ranks, once all of them are here."""
        with suppress(RuntimeError, ValueError):
            self._find_missing("done", LEAVE_S)
        dist.destroy_process_group()
