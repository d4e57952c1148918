"""Normalisation of observations by running statistics, which are frozen during a rollout.

Only features marked in `vocab.observation` are normalised; slot features share one set of
statistics over all slots.
"""

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, constant_table, expand_mask, get_leaf, replace
from morphogen.vocab.observation import FEATURE_LIMIT, FEATURES, SLOT, column_index, flag_index

_LIMIT = 10.0
_EPS = 1e-6
_MOMENTS = ("count", "mean", "m2")
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
    scaled: dict[str, Tensor] = {}
    for name, valid in valid_entries(observation).items():
        raw = getattr(observation, name)
        count, mean, m2 = (get_leaf(stats, (name, key)) for key in _MOMENTS)
        deviation = torch.sqrt(m2 / count.clamp(min=1.0) + _EPS)
        units = ((raw - mean) / deviation).float().clamp(-_LIMIT, _LIMIT)
        known = normalised_features(name, raw.device) & (count > 0)
        scaled[name] = torch.where(known, choose(valid, units, 0.0), raw)
    return replace(observation, **scaled)


def normalised_features(name: str, device: torch.device) -> Tensor:
    """Mask of the features of a vector that are normalised.  bool [D]."""
    return constant_table(
        tuple(feature.normalised for feature in FEATURES[name]), torch.bool, device
    )


def valid_entries(observation: Observation) -> dict[str, Tensor]:
    """Masks of valid entries: in range, in a finite row, flag 1, slot with a seed.  bool, shaped
    like each vector.
    """
    has_seed = observation.slots[..., _HAS_SEED, None] != 0
    masks: dict[str, Tensor] = {}
    for name, features in FEATURES.items():
        raw = getattr(observation, name)
        flags = constant_table(flag_index(features), torch.int64, raw.device)
        flagged = F.pad(raw, (0, 1), value=1.0)[..., flags] != 0
        masks[name] = flagged & (raw.abs() <= FEATURE_LIMIT) & expand_mask(observation.finite, raw)
    masks["slots"] = masks["slots"] & has_seed
    return masks
