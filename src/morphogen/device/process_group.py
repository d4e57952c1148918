"""Ranks of a run as processes of `torch.distributed`: gloo on CPUs, nccl on CUDA devices.

The environment names the ranks, as `torchrun` does: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from morphogen.device.agreement import name_ranks
from morphogen.device.collectives import Collectives, Exchanged
from morphogen.device.job import ranks_of_environment, restarts_of_environment
from morphogen.errors import RankError

T = TypeVar("T")
REACH_S = 20.0  # to connect ranks that have started
LEAVE_S = 10.0  # for the other ranks to end too
LOOK_S = 0.02  # between two looks at the other ranks, while this one waits for them
REAP_S = 2.0  # from a broken connection until the end of its process is known
NAMESPACE = "/proc/self/ns/pid"  # names the numbers of processes that this process sees
Ended = Callable[[], Mapping[int, str]]  # ranks whose processes ended, and how
CLOSING = "closing"  # state of a round whose wishes come too late


def open_collectives(
    device: torch.device,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.perf_counter,
    listener: socket.socket | None = None,
    ended: Ended = dict,
) -> Collectives:
    """Join the ranks that the environment names; outside of a job return the collectives of one process.

    Args:
        device: of the tensors that are exchanged.
        timeout_s: seconds that a rank waits for the others.
        listener: socket of rank 0 that listens at MASTER_PORT; the store takes it over.
        ended: returns the ranks that this process started and that ended too early, and how.

    Raises: RankError if not all ranks join within the time-out.
    """
    rank, ranks = ranks_of_environment()
    restarts, _ = restarts_of_environment()
    if ranks == 1:
        return Collectives()
    limit = timedelta(seconds=timeout_s)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if listener is not None or rank:
        _reach_first(rank, timeout_s)
    try:
        store = _run_interruptibly(
            lambda: next(rendezvous("env://", timeout=limit))[0] if listener is None else _serve_store(listener, limit),
            timeout_s,
        )
        store = PrefixStore(f"attempt/{restarts}", store)  # torchrun keeps its store over restarts
        group = ProcessGroup(PrefixStore("ranks", store), rank, ranks, device=device, timeout_s=timeout_s, clock=clock)
        group.join(ended)
        group_store = PrefixStore("group", store)
        place = {"store": group_store, "rank": rank, "world_size": ranks}
        _run_interruptibly(lambda: dist.init_process_group(backend, **place, timeout=limit), min(timeout_s, REACH_S))
    except (RuntimeError, ValueError, OSError) as error:
        if isinstance(error, RankError):
            raise
        raise RankError(f"rank {rank}: not all of {ranks} ranks joined within {timeout_s:g} s: {error}") from None
    return group


def _reach_first(rank: int, timeout_s: float) -> None:
    """Wait until rank 0 listens.  torch would wait too, but with a traceback for every attempt, and deaf to signals.

    Raises: RankError after `REACH_S` without a way to its address, and after `timeout_s` if it does not listen.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    started = time.monotonic()
    while True:
        try:
            socket.create_connection(address, timeout=min(timeout_s, REACH_S)).close()
            return
        except OSError as error:
            limit_s = timeout_s if isinstance(error, ConnectionRefusedError) else min(timeout_s, REACH_S)
            waited_s, reason = time.monotonic() - started, error.strerror or error
        if waited_s > limit_s:
            raise RankError(f"rank {rank}: rank 0 at {':'.join(map(str, address))} cannot be reached: {reason}")
        time.sleep(LOOK_S)


def _run_interruptibly(action: Callable[[], T], limit_s: float) -> T:
    """Return the result of an action that may block outside of Python, where no signal would be obeyed.

    Raises: TimeoutError after `limit_s`.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    deadline = time.monotonic() + limit_s
    while not outcome.done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer in {limit_s:g} s")
        wait([outcome], LOOK_S)
    return outcome.result()


def _serve_store(listener: socket.socket, limit: timedelta) -> Store:
    """Serve the key-value store of the ranks at a socket that listens already."""
    host, port = listener.getsockname()
    return cast(Any, dist).TCPStore(
        host, port, None, True, timeout=limit, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _describe_process() -> list[Any]:
    """Return the number of this process, and the place where that number is valid."""
    return [os.getpid(), socket.gethostname(), os.readlink(NAMESPACE) if os.path.islink(NAMESPACE) else ""]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
        self._ended: Ended = dict
        self._neighbours: dict[int, int] = {}  # ranks on this machine -> processes

    def join(self, ended: Ended) -> None:
        """Wait until all ranks are here.  Raises: RankError if one of them ends or does not come."""
        self._ended, own = ended, _describe_process()
        self._store.set(f"process/{self.rank}", json.dumps(own))
        self._await([f"process/{rank}" for rank in range(self.ranks)], "join")
        for rank in range(self.ranks):
            pid, *place = json.loads(self._store.get(f"process/{rank}"))
            if place == own[1:] and _is_running(pid):
                self._neighbours[rank] = pid

    def _find_ended(self) -> dict[int, str]:
        """Return the ranks that are known to have ended, and how."""
        gone = (rank for rank, pid in self._neighbours.items() if not _is_running(pid))
        return dict.fromkeys(gone, "ended") | dict(self._ended())

    def _check_ended(self) -> None:
        """Raise a RankError if a rank has ended."""
        for rank, how in self._find_ended().items():
            raise RankError(f"rank {rank} of {self.ranks} {how}")

    def _await(self, keys: Sequence[str], act: str, limit_s: float | None = None) -> None:
        """Wait until every rank has set its key.  Raises: RankError that names the ranks which did not `act`."""
        limit_s = self._timeout_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        missing = range(self.ranks)
        while missing := [rank for rank in missing if not self._store.check([keys[rank]])]:
            self._check_ended()
            if time.monotonic() > deadline:
                raise RankError(f"{name_ranks(missing)} of {self.ranks} did not {act} within {limit_s:g} s")
            time.sleep(LOOK_S)  # a wait of the store would print a warning

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
        """Name the ranks that ended, or did not begin or did not finish the collective that failed."""
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        with suppress(RuntimeError, ValueError):
            self._store.set(f"failed/{self.rank}", str(self._count))  # seen by the others: this rank does not hang
        deadline = time.monotonic() + REAP_S
        while time.monotonic() < deadline:
            for rank, how in self._find_ended().items():
                return f"rank {rank} of {self.ranks} {how}"
            time.sleep(LOOK_S)
        try:
            keys = [f"begun/{rank}" for rank in range(self.ranks)]
            counts = [int(self._store.get(key)) if self._store.check([key]) else 0 for key in keys]
            stuck = [rank for rank in range(self.ranks) if not self._store.check([f"failed/{rank}"])]
        except (RuntimeError, ValueError):
            return f"rank 0 cannot be reached from rank {self.rank} during the collective {name}: {reason}"
        late = [rank for rank, count in enumerate(counts) if count < self._count]
        if not late and not stuck:
            return f"rank {self.rank}: the collective {name} failed: {reason}"
        act = f"{'reach' if late else 'finish'} the collective {name} within {self._timeout_s:g} s"
        return f"{name_ranks(late or stuck)} of {self.ranks} did not {act}"

    def agree(self, wish: str | None, round: int, epoch: int) -> str | None:
        """Return the wish that all ranks fulfil before this epoch; None: they go on.

        Raises: RankError if a rank has ended.
        """
        self._check_ended()
        with self._reaching_store():
            return self._agree(wish, round, epoch)

    @contextmanager
    def _reaching_store(self) -> Iterator[None]:
        """Raise a RankError if the store, which ends with its rank, cannot be reached."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            if isinstance(error, RankError):
                raise
            raise RankError(f"rank 0 of {self.ranks} ended: rank {self.rank} cannot reach its store") from None

    def _agree(self, wish: str | None, round: int, epoch: int) -> str | None:
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
        self._await(keys, "answer")
        return max(int(self._store.get(name)) for name in keys)

    def close_round(self, round: int) -> str | None:
        """Return a wish that is to be fulfilled after this round; wishes of the round come too late from here on."""
        if self._agreed is None:
            with self._reaching_store():
                key = f"wish/{round}/{self._pauses.get(round, 0)}"
                value = self._store.compare_set(key, "", CLOSING).decode()
                if value == CLOSING:
                    return None
                last = 2**31
                self._agreed = value, self._meeting_epoch(key, last)
        (value, _), self._agreed = self._agreed, None
        return value

    def claim(self, what: str) -> bool:
        """Return True for the first rank that asks for it."""
        with suppress(RuntimeError, ValueError):
            return self._store.compare_set(f"claim/{what}", "", str(self.rank)) == str(self.rank).encode()
        return True  # the store ended with rank 0

    def close(self) -> None:
        """Leave the ranks, once all of them are here."""
        with suppress(RuntimeError, ValueError):
            self._store.set(f"done/{self.rank}", "")
            self._await([f"done/{rank}" for rank in range(self.ranks)], "leave", LEAVE_S)
        dist.destroy_process_group()
