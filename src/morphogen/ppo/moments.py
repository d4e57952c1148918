"""Moments and sums of rows, and their exact merging over the parts of a rollout."""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from torch import Tensor

from morphogen.ppo.exchange import Exchange
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

    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances, 1979.
    """
    total = a.count + b.count
    step = b.mean - a.mean
    share = b.count / total.clamp_min(1.0)
    between = step.square() * a.count * share
    return Moments(total, a.mean + step * share, a.m2 + b.m2 + between)


def stack_parts(
    exchange: Exchange, values: Mapping[str, Tensor], name: str = "moments"
) -> dict[str, Tensor]:
    """Stack the values of all P parts of a rollout, [P, ...] each.  `name`: of the exchange."""
    return exchange.join(name, {key: value.unsqueeze(0) for key, value in values.items()}, axis=0)


def merge_parts(exchange: Exchange, moments: Mapping[str, Moments]) -> dict[str, Moments]:
    """Moments of the entries of all parts of a rollout, merged in the order of the envs."""
    fields = {
        f"{name}.{key}": leaf
        for name, part in moments.items()
        for key, leaf in part._asdict().items()
    }
    stacked = stack_parts(exchange, fields)
    parts = {
        name: [stacked[f"{name}.{key}"].unbind(0) for key in Moments._fields] for name in moments
    }
    return {name: reduce(merge_moments, map(Moments, *columns)) for name, columns in parts.items()}


def sum_parts(exchange: Exchange, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sum over the parts of a rollout in the order of the envs, same shape and dtype each."""
    stacked = stack_parts(exchange, values)
    return {name: stacked[name].sum(0, dtype=value.dtype) for name, value in values.items()}
