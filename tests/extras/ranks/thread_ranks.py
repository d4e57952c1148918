"""Ranks as threads of one process."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from morphogen.errors import RankError
from morphogen.extras.ranks.rank_exchange import RankExchange
from morphogen.ppo.exchange import ALONE

WAIT_S = 60.0


class Board:
    """Values that the ranks have sent, in the order of their collectives."""

    def __init__(self, ranks: int) -> None:
        self.sent: list[list[Any]] = [[] for _ in range(ranks)]
        self.ended: set[int] = set()
        self.changed = threading.Condition()

    def exchange(self, rank: int, value: Any) -> list[Any]:
        with self.changed:
            number = len(self.sent[rank])
            self.sent[rank].append(copy.deepcopy(value))
            self.changed.notify_all()
            waits = lambda: {other for other, sent in enumerate(self.sent) if len(sent) <= number}
            self.changed.wait_for(lambda: not waits() or waits() & self.ended, WAIT_S)
            if waits():
                raise RankError(f"ranks {waits()} did not reach the collective")
            return [copy.deepcopy(sent[number]) for sent in self.sent]

    def end(self, rank: int) -> None:
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()


class ThreadRank(RankExchange):
    """Exchange of one thread."""

    def __init__(self, rank: int, board: Board) -> None:
        super().__init__(rank, len(board.sent))
        self._board = board

    def gather_bytes(self, name: str, buffer: Tensor) -> Tensor:
        self.count(name, buffer.nbytes)
        return torch.stack(self._board.exchange(self.rank, buffer))

    def add(self, name: str, values: Tensor) -> Tensor:
        self.count(name, values.nbytes)
        return torch.stack(self._board.exchange(self.rank, values)).sum(0)

    def gather_objects(self, name: str, value: Any, *, to_first: bool = False) -> list[Any]:
        self.count(name)
        return self._board.exchange(self.rank, value)


def run_ranks(ranks: int, action: Callable[[Any], Any]) -> list[Any]:
    """The results, or exceptions, of an action of every rank, in order."""
    board, results = Board(ranks), [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = action(ALONE if ranks == 1 else ThreadRank(rank, board))
        except BaseException as error:
            results[rank] = error
        board.end(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
