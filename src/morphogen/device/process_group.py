"""Ranks of a run as processes of `torch.distributed`: gloo on CPUs, nccl on CUDA devices.

The environment names the ranks, as `torchrun` does: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from morphogen.device.collectives import Collectives, Exchanged
from morphogen.errors import RankError

LEAVE_LIMIT = timedelta(seconds=10)  # for the other ranks to end too
CLOSING = "closing"  # state of a round whose wishes come too late


def ranks_of_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return (rank, ranks) of this process; (0, 1) outside of a job.  Raises: RankError for invalid numbers."""
    texts = environment.get("RANK", "0"), environment.get("WORLD_SIZE", "1")
    try:
        rank, ranks = map(int, texts)
    except ValueError:
        rank, ranks = -1, 0
    if not 0 <= rank < ranks:
        raise RankError(f"RANK and WORLD_SIZE: expected 0 <= RANK < WORLD_SIZE, got {texts[0]!r} and {texts[1]!r}")
    return rank, ranks


def open_collectives(
    device: torch.device, *, timeout_s: float, clock: Callable[[], float] = time.perf_counter
) -> Collectives:
    """Join the ranks that the environment names; outside of a job return the collectives of one process.

    Raises: RankError if not all ranks join within the time-out.
    """
    rank, ranks = ranks_of_environment()
    if ranks == 1:
        return Collectives()
    limit = timedelta(seconds=timeout_s)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        store, rank, ranks = next(rendezvous("env://", timeout=limit))
        group = PrefixStore("group", store)
        dist.init_process_group(backend, store=group, rank=rank, world_size=ranks, timeout=limit)
    except (RuntimeError, ValueError, OSError) as error:
        raise RankError(f"rank {rank}: not all of {ranks} ranks joined within {timeout_s:g} s: {error}") from None
    return ProcessGroup(PrefixStore("ranks", store), rank, ranks, device=device, timeout_s=timeout_s, clock=clock)


class ProcessGroup(Collectives):
    """Ranks as processes, with a key-value store for what no collective may wait for."""

    def __init__(
        self, store: Store, rank: int, ranks: int, *, device: torch.device, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(rank, ranks)
        self._store, self._device, self._timeout_s, self._clock = store, device, timeout_s, clock
        self._count = 0  # collectives begun
        self._pauses: dict[int, int] = {}  # wishes of a round that were fulfilled, by round
        self._agreed: tuple[str, int] | None = None  # a wish, and the epoch before which it is fulfilled

    def exchange(self, name: str, buffer: Tensor) -> Tensor:
        """Return the buffers of all ranks.  uint8 [n] -> uint8 [W, n], on the device of the buffer."""
        sent = buffer.to(self._device)
        received = torch.empty(self.ranks, len(sent), dtype=sent.dtype, device=sent.device)
        with self._exchanging(name, sent):
            dist.all_gather([*received.unbind(0)], sent)
        return received.to(buffer.device)

    def all_reduce(self, name: str, values: Tensor) -> Tensor:
        """Return the sum over the ranks, same shape.  float [...]."""
        total = values.clone()
        with self._exchanging(name, total):
            dist.all_reduce(total)
        return total

    @contextmanager
    def _exchanging(self, name: str, sent: Tensor) -> Iterator[None]:
        """Count and time a collective; name the ranks that did not take part if it fails."""
        started, self._count = self._clock(), self._count + 1
        entry = self.ledger[name]
        try:
            self._store.set(f"begun/{self.rank}", str(self._count))
            yield
        except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
            raise RankError(self._describe_failure(name, error)) from None
        self.ledger[name] = Exchanged(entry.calls + 1, entry.sent + sent.nbytes)
        self.waited_s += self._clock() - started

    def _describe_failure(self, name: str, error: Exception) -> str:
        """Name the ranks that did not begin the collective that failed."""
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        try:
            keys = [f"begun/{rank}" for rank in range(self.ranks)]
            counts = [int(self._store.get(key)) if self._store.check([key]) else 0 for key in keys]
        except (RuntimeError, ValueError):
            return f"rank 0 cannot be reached from rank {self.rank} during the collective {name}: {reason}"
        late = [str(rank) for rank, count in enumerate(counts) if count < self._count]
        if not late:
            return f"rank {self.rank}: the collective {name} failed: {reason}"
        some = "rank" if len(late) == 1 else "ranks"
        return f"{some} {', '.join(late)} of {self.ranks} did not reach the collective {name} within the time-out"

    def agree(self, wish: str | None, round: int, epoch: int) -> str | None:
        """Return the wish that all ranks fulfil before this epoch; None: they go on."""
        if self._agreed is None:
            key = f"wish/{round}/{self._pauses.get(round, 0)}"
            if wish is not None:
                value = self._store.compare_set(key, "", wish).decode()
            elif self._store.check([key]):
                value = self._store.get(key).decode()
            else:
                return None
            if value == CLOSING:
                return None
            self._agreed = value, self._meeting_epoch(key, epoch)
        value, meeting = self._agreed
        if epoch < meeting:
            return None
        self._agreed, self._pauses = None, {round: self._pauses.get(round, 0) + 1}
        return value

    def _meeting_epoch(self, key: str, epoch: int) -> int:
        """Return the latest epoch that a rank is about to begin."""
        self._store.set(f"{key}/{self.rank}", str(epoch))
        keys = [f"{key}/{rank}" for rank in range(self.ranks)]
        try:
            self._store.wait(keys, timedelta(seconds=self._timeout_s))
        except RuntimeError:
            late = [str(rank) for rank, name in enumerate(keys) if not self._store.check([name])]
            raise RankError(f"ranks {', '.join(late)} of {self.ranks} did not answer within the time-out") from None
        return max(int(self._store.get(name)) for name in keys)

    def close_round(self, round: int) -> str | None:
        """Return a wish that is to be fulfilled after this round; wishes of the round come too late from here on."""
        if self._agreed is None:
            key = f"wish/{round}/{self._pauses.get(round, 0)}"
            value = self._store.compare_set(key, "", CLOSING).decode()
            if value == CLOSING:
                return None
            last = 2**31
            self._agreed = value, self._meeting_epoch(key, last)
        (value, _), self._agreed = self._agreed, None
        return value

    def close(self) -> None:
        """Leave the ranks, once all of them are here; a rank that failed does not wait."""
        with suppress(RuntimeError):
            self._store.set(f"done/{self.rank}", "")
            self._store.wait([f"done/{rank}" for rank in range(self.ranks)], LEAVE_LIMIT)
        dist.destroy_process_group()
