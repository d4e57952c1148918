"""Moments and sums of rows, and their exact merging over ranks."""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from torch import Tensor

from morphogen.learn.exchange import Exchange
from morphogen.state.tree_ops import choose


class Moments(NamedTuple):
    """Moments of some entries, all of one shape and dtype."""

    count: Tensor
    mean: Tensor  # 0 without entries
    m2: Tensor  # sum of squared deviations from the mean

    @property
    def variance(self) -> Tensor:
        """Population variance; 0 without entries."""
        return self.m2 / self.count.clamp_min(1.0)


def masked_moments(x: Tensor, where: Tensor) -> Moments:
    """Moments of the entries under a mask.  x float, where bool, both [...] -> 0-d."""
    count = where.sum().to(x.dtype)
    inside = choose(where, x, 0.0)
    mean = inside.sum() / count.clamp_min(1.0)
    spread = choose(where, inside - mean, 0.0)
    return Moments(count, mean, spread.square().sum())


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Moments of the union of two disjoint sets of entries.

    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
    """
    total = a.count + b.count
    step = b.mean - a.mean
    share = b.count / total.clamp_min(1.0)
    between = step.square() * a.count * share
    return Moments(total, a.mean + step * share, a.m2 + b.m2 + between)


def merge_ranks(exchange: Exchange, moments: Mapping[str, Moments]) -> dict[str, Moments]:
    """Moments of the entries of all ranks, merged in the order of ranks."""
    fields = {f"{name}.{key}": leaf for name, part in moments.items() for key, leaf in part._asdict().items()}
    ranks = exchange.gather("moments", fields)
    parts = {name: [ranks[f"{name}.{key}"].unbind(0) for key in Moments._fields] for name in moments}
    return {name: reduce(merge_moments, map(Moments, *columns)) for name, columns in parts.items()}


def sum_ranks(exchange: Exchange, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sum over the ranks in their order, same shape and dtype each."""
    ranks = exchange.gather("moments", values)
    return {name: ranks[name].sum(0, dtype=value.dtype) for name, value in values.items()}
