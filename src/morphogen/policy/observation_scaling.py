"""Normalisation of observations by running statistics, which are frozen during a rollout.

Only features marked in `vocab.observation` are normalised; slot features share one set of
statistics over all slots.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.decision import Observation, join_vectors, split_vectors
from morphogen.state.tree_ops import (
    Table,
    choose,
    computed_table,
    constant_table,
    get_leaf,
    replace,
)
from morphogen.vocab.observation import FEATURE_LIMIT, FEATURES, SLOT, column_index, flat_flag_index

_LIMIT = 10.0
_EPS = 1e-6
_MOMENTS = ("count", "mean", "m2")
_NORMALISED = tuple(feature.normalised for features in FEATURES.values() for feature in features)
_HAS_SEED = column_index(SLOT)["has_seed"]


def init_stats(device: torch.device | str = "cpu") -> TensorDict:
    """Return empty statistics: {env, instance, slots: {count, mean, m2: float64 [D]}}.

    `count`: valid entries; `m2`: sum of their squared deviations from `mean`.

    Example:
        >>> import morphogen as mg
        >>> stats = mg.policy.init_stats()
        >>> sorted(stats.keys()), stats["slots", "mean"].shape
        (['env', 'instance', 'slots'], torch.Size([46]))
    """
    return TensorDict(
        {
            name: {
                key: torch.zeros(len(features), dtype=torch.float64, device=device)
                for key in _MOMENTS
            }
            for name, features in FEATURES.items()
        },
        batch_size=[],
        device=device,
    )


def normalise(stats: TensorDict, observation: Observation) -> Observation:
    """Return marked features in standard deviations from their mean, clamped to +-10; 0 where the
    entry is invalid.

    Shapes: stats of `init_stats`; observation [...] -> the same leaves, float32.
    Promise: unmarked features and features without data do not change.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> _, inputs = env.reset()
        >>> scaled = mg.policy.normalise(
        ...     mg.policy.init_stats(), inputs.observation
        ... )  # no data: nothing changes
        >>> bool((scaled.env == inputs.observation.env).all())
        True
    """
    raw = _joined(observation)
    slots = observation.slots.shape[-2]
    count, mean, m2 = (
        torch.cat([get_leaf(stats, (name, key)) for name in FEATURES]) for key in _MOMENTS
    )
    deviation = torch.sqrt(m2 / count.clamp(min=1.0) + _EPS)
    known = constant_table(_NORMALISED, torch.bool, raw.device) & (count > 0)
    columns = computed_table(_columns, slots, dtype=torch.int64, device=raw.device)
    known, mean, deviation = (
        column.index_select(0, columns) for column in (known, mean, deviation)
    )
    units = ((raw - mean) / deviation).float().clamp(-_LIMIT, _LIMIT)
    scaled = torch.where(
        known, choose(_valid_entries(raw, observation.finite, slots), units, 0.0), raw
    )
    env, instance, each = split_vectors(scaled)
    return replace(observation, env=env, instance=instance, slots=each)


def normalised_features(name: str, device: torch.device) -> Tensor:
    """Mask of the features of a vector that are normalised.  bool [D]."""
    return constant_table(
        tuple(feature.normalised for feature in FEATURES[name]), torch.bool, device
    )


def valid_entries(observation: Observation) -> dict[str, Tensor]:
    """Masks of valid entries: in range, in a finite row, flag 1, slot with a seed.  bool, shaped
    like each vector.
    """
    slots = observation.slots.shape[-2]
    valid = _valid_entries(_joined(observation), observation.finite, slots)
    return dict(zip(FEATURES, split_vectors(valid), strict=True))


def _joined(observation: Observation) -> Tensor:
    return join_vectors(observation.env, observation.instance, observation.slots)


def _valid_entries(raw: Tensor, finite: Tensor, slots: int) -> Tensor:
    """Mask of the valid entries of a row of `join_vectors`."""
    flags = computed_table(_flags, slots, dtype=torch.int64, device=raw.device)
    return (raw != 0)[..., flags].all(-1) & (raw.abs() <= FEATURE_LIMIT) & finite.unsqueeze(-1)


def _flags(slots: int) -> Table:
    """Per feature of a row of `join_vectors`, the index of its flag, and of the flag that its slot
    has a seed.
    """
    flags = flat_flag_index(slots)
    first = len(flags) - 1 - slots * len(SLOT)
    end = len(flags) - 1
    seeds = [
        first + (i - first) // len(SLOT) * len(SLOT) + _HAS_SEED if first <= i < end else end
        for i in range(end + 1)
    ]
    return tuple(zip(flags, seeds, strict=True))


def _columns(slots: int) -> Table:
    """Per feature of a row of `join_vectors`, its column among the features of all vectors; 0 for
    the 1.
    """
    own = len(_NORMALISED) - len(SLOT)
    return (*range(own), *[*range(own, len(_NORMALISED))] * slots, 0)
