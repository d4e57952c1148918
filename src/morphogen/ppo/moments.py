"""Moments and sums of rows, their exact merging over the parts of a rollout, and the statistics of
observations, which are such moments.
"""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from tensordict import TensorDict
from torch import Tensor

from morphogen.policy.observation_scaling import normalised_features, valid_entries
from morphogen.policy.policy import get_branch
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, get_leaves
from morphogen.vocab.observation import FEATURES


class Moments(NamedTuple):
    """Moments of some entries, all of one shape and dtype."""

    count: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Tensor  # 0 without entries
    m2: Tensor  # sum of squared deviations from the mean

    @property
    def variance(self) -> Tensor:
        """Population variance; 0 without entries."""
        return self.m2 / self.count.clamp_min(1.0)


def masked_moments(x: Tensor, where: Tensor, dim: int | None = None) -> Moments:
    """Moments of the entries under a mask, over an axis or all.  x float, where bool, both
    [...].
    """
    count = where.sum(dim).to(x.dtype)
    mean = choose(where, x, 0.0).sum(dim) / count.clamp_min(1.0)
    return Moments(count, mean, m2=choose(where, x - mean, 0.0).square().sum(dim))


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


def update_observation_stats(
    stats: TensorDict, observation: Observation, exchange: Exchange = ALONE
) -> TensorDict:
    """Merge all rows of a rollout into the statistics; all slots share one set.

    Shapes: stats of `policy.init_stats`; observation [T, E], raw -> statistics of the same form,
    float64.
    `exchange`: with the processes that hold the other envs.

    Example:
        >>> import morphogen as mg
        >>> _, inputs = mg.make("tiny", envs=4, seed=0).reset()
        >>> stats = mg.ppo.update_observation_stats(
        ...     mg.policy.init_stats(), inputs.observation.unsqueeze(0)
        ... )
        >>> stats["env", "count"].max()  # valid entries of a feature
        tensor(4., dtype=torch.float64)
    """
    seen = merge_parts(exchange, feature_moments(observation))
    before = {name: Moments(**get_leaves(get_branch(stats, name))) for name in FEATURES}
    merged = {name: merge_moments(before[name], seen[name])._asdict() for name in FEATURES}
    return TensorDict(merged, batch_size=[], device=stats.device)


def feature_moments(observation: Observation) -> dict[str, Moments]:
    """Moments of the entries that count.  -> float64 [D] each; 0 if unmarked."""
    moments: dict[str, Moments] = {}
    for name, valid in valid_entries(observation).items():
        raw = getattr(observation, name).double().flatten(0, -2)
        counted = valid.flatten(0, -2) & normalised_features(name, raw.device)
        moments[name] = masked_moments(raw, counted, dim=0)
    return moments
