"""Ranks as threads of one process: collectives without processes."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from morphogen.device.collectives import Collectives, Exchanged
from morphogen.errors import RankError

WAIT_S = 60.0


class Board:
    """Buffers that the ranks have sent, in the order of their collectives."""

    def __init__(self, ranks: int) -> None:
        self.sent: list[list[Tensor]] = [[] for _ in range(ranks)]
        self.ended: set[int] = set()
        self.changed = threading.Condition()

    def exchange(self, rank: int, buffer: Tensor) -> Tensor:
        with self.changed:
            number = len(self.sent[rank])
            self.sent[rank].append(buffer.clone())
            self.changed.notify_all()
            waits = lambda: {other for other, sent in enumerate(self.sent) if len(sent) <= number}  # noqa: E731
            self.changed.wait_for(lambda: not waits() or waits() & self.ended, WAIT_S)
            if waits():
                raise RankError(f"ranks {waits()} did not reach the collective")
            return torch.stack([sent[number] for sent in self.sent])

    def end(self, rank: int) -> None:
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()


class ThreadRanks(Collectives):
    """Collectives of one thread."""

    def __init__(self, rank: int, board: Board) -> None:
        super().__init__(rank, len(board.sent))
        self._board = board

    def exchange(self, name: str, buffer: Tensor) -> Tensor:
        entry = self.ledger[name]
        self.ledger[name] = Exchanged(entry.calls + 1, entry.sent + buffer.nbytes)
        return self._board.exchange(self.rank, buffer)

    def all_reduce(self, name: str, values: Tensor) -> Tensor:
        return self.exchange(name, values).sum(0)


def run_ranks(ranks: int, action: Callable[[Collectives], Any]) -> list[Any]:
    """The results, or exceptions, of an action of every rank, in order."""
    board, results = Board(ranks), [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = action(ThreadRanks(rank, board))
        except BaseException as error:
            results[rank] = error
        board.end(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
