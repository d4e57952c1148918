"""Ranks as threads of one process, for tests: an exchange at a barrier."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from morphogen.learn.exchange import Exchange


class Board:
    """Place at which all ranks leave what they contribute before any of them reads it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._parts: list[Any] = [None] * ranks
        self._barrier = threading.Barrier(ranks, timeout=15)

    def meet(self, rank: int, part: Any) -> list[Any]:
        self._parts[rank] = part
        self._barrier.wait()
        parts = list(self._parts)
        self._barrier.wait()
        return parts

    def leave(self) -> None:
        self._barrier.abort()


class ThreadExchange(Exchange):
    """Exchange with the other threads; `calls` counts by name."""

    def __init__(self, rank: int, board: Board) -> None:
        super().__init__(rank, board.ranks)
        self.calls: dict[str, int] = {}
        self._board = board

    def _meet(self, name: str, part: Any) -> list[Any]:
        self.calls[name] = self.calls.get(name, 0) + 1
        return self._board.meet(self.rank, part)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.stack(parts).sum(0) for parts in zip(*self._meet("gradient", [*tensors]), strict=True)]

    def gather(self, name: str, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parts = self._meet(name, dict(leaves))
        return {key: torch.stack([part[key] for part in parts]) for key in sorted(leaves, reverse=True)}  # in any order


def run_ranks(ranks: int, function: Callable[[ThreadExchange], Any]) -> list[Any]:
    """Call a function once per rank, all at the same time, and return the results in the order of ranks."""
    board = Board(ranks)

    def call(rank: int) -> Any:
        try:
            return function(ThreadExchange(rank, board))
        except BaseException:
            board.leave()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(call, rank) for rank in range(ranks)]
        faults = [fault for future in futures if (fault := future.exception()) is not None]
        real = [fault for fault in faults if not isinstance(fault, threading.BrokenBarrierError)]
        for fault in real or faults:
            raise fault
        return [future.result() for future in futures]
