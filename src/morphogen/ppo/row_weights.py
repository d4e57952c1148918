"""Rows over which the terms of an objective are means, on all processes that hold some."""

from typing import NamedTuple

from torch import Tensor

from morphogen.hosts.layout import LeafMap
from morphogen.ppo.exchange import ALONE, Exchange


class Weights(NamedTuple):
    """Weights of rows, and the number of rows with weight 1 on all processes."""

    weight: Tensor
    """float32, 0 or 1, in the shape of the values."""
    total: Tensor
    """float32, 0-d, or [8] of heads."""

    @property
    def some(self) -> Tensor:
        """Flag for any row that counts, bool in the shape of `total`."""
        return self.total > 0


class RowWeights(NamedTuple):
    """Rows of a minibatch that count in the terms of its objective."""

    free: Weights
    """[T, B], rows with a choice."""
    known: Weights
    """[T, B], rows with a known return."""
    heads: Weights
    """[T, B, 8], free rows whose action uses the head."""
    measured: Weights
    """[T, B, S], measured contributions."""


def row_weights(rows: LeafMap, relevant: Tensor, exchange: Exchange = ALONE) -> RowWeights:
    """Weigh the rows of a minibatch.

    Args:
        rows: float32 leaves [T, B], 0 or 1: free and known; contribution_valid [T, B, S].
        relevant: bool [T, B, 8], heads that the action uses.
        exchange: with the processes that hold the other rows of the minibatch.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> free, slots = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2, 3)
        >>> rows = {"free": free, "known": torch.ones(1, 2), "contribution_valid": slots}
        >>> over = mg.ppo.row_weights(rows, torch.ones(1, 2, 8).bool())
        >>> over.free.total, over.known.total
        (tensor(1.), tensor(2.))
    """
    free = rows["free"]
    heads = relevant.to(free.dtype) * free.unsqueeze(-1)
    weights = (free, rows["known"], heads, rows["contribution_valid"])
    own = (free.sum(), rows["known"].sum(), heads.sum((0, 1)), rows["contribution_valid"].sum())
    return RowWeights(*map(Weights, weights, exchange.sum(own)))
