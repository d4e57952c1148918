"""Normalisation of observations by running statistics, which are frozen during a rollout.

Only features marked in `vocab.observation` are normalised; slot features share one set of statistics over all slots.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.layout import Leaves
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, constant_table, get_leaf, replace
from morphogen.vocab.observation import FEATURE_LIMIT, FEATURES, SLOT, column_index, flag_index

_LIMIT = 10.0
_EPS = 1e-6
_HAS_SEED = column_index(SLOT)["has_seed"]


def init_stats(device: torch.device | str = "cpu") -> TensorDict:
    """Return empty statistics: {env, instance, slots: {count, mean, m2: float64 [D]}}.

    `count`: valid entries; `m2`: sum of their squared deviations from `mean`.

    Example:
        >>> import morphogen as mg
        >>> stats = mg.nets.init_stats()
        >>> sorted(stats.keys()), stats["slots", "mean"].shape
        (['env', 'instance', 'slots'], torch.Size([46]))
    """
    return TensorDict(
        {
            name: {
                key: torch.zeros(len(features), dtype=torch.float64, device=device) for key in ("count", "mean", "m2")
            }
            for name, features in FEATURES.items()
        },
        batch_size=[],
        device=device,
    )


def normalise(stats: TensorDict, observation: Observation) -> Observation:
    """Return marked features in standard deviations from their mean, clamped to +-10; 0 where the entry is invalid.

    Shapes: stats of `init_stats`; observation [...] -> the same leaves, float32.
    Promise: unmarked features and features without data do not change.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=2, seed=0)
        >>> _, seen = env.reset()
        >>> scaled = mg.nets.normalise(mg.nets.init_stats(), seen.observation)  # no data: nothing changes
        >>> bool((scaled.env == seen.observation.env).all())
        True
    """
    vectors: Leaves = {}
    for name in FEATURES:
        raw: Tensor = getattr(observation, name)
        count, mean, m2 = (get_leaf(stats, (name, key)) for key in ("count", "mean", "m2"))
        deviation = torch.sqrt(m2 / count.clamp(min=1.0) + _EPS)
        units = ((raw - mean) / deviation).float().clamp(-_LIMIT, _LIMIT)
        known = normalised_features(name, raw.device) & (count > 0)
        vectors[name] = torch.where(known, choose(valid_entries(observation, name), units, 0.0), raw)
    return replace(observation, **vectors)


def normalised_features(name: str, device: torch.device) -> Tensor:
    """Mask of the features of a vector that are normalised.  bool [D]."""
    return constant_table(tuple(feature.normalised for feature in FEATURES[name]), torch.bool, device)


def valid_entries(observation: Observation, name: str) -> Tensor:
    """Mask of valid entries: in range, in a finite row, flag 1, slot with a seed.  bool, shaped like the vector."""
    raw = getattr(observation, name)
    owner = constant_table(flag_index(FEATURES[name]), torch.int64, raw.device)
    entry = torch.cat((raw, torch.ones_like(raw[..., :1])), dim=-1)[..., owner] != 0
    entry = entry & (raw.abs() <= FEATURE_LIMIT)
    if name == "slots":
        return entry & (raw[..., _HAS_SEED, None] != 0) & observation.finite[..., None, None]
    return entry & observation.finite[..., None]
