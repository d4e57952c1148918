"""Observations in units of what has been seen: running statistics, frozen while a rollout uses them.

Only the features that the table marks are normalised; slot features have one set of statistics for all slots.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.decision import Observation
from morphogen.state.tree_ops import constant_table, replace
from morphogen.vocab.observation import FEATURE_LIMIT, SLOT, VECTORS, column_index, flag_index

_LIMIT = 10.0
_EPS = 1e-6
_HAS_SEED = column_index(SLOT)["has_seed"]


def init_stats(device: torch.device | str = "cpu") -> TensorDict:
    """Statistics of nothing: {env, instance, slots: {count, mean, m2: float64 [D]}}."""
    return TensorDict(
        {
            name: {
                key: torch.zeros(len(features), dtype=torch.float64, device=device) for key in ("count", "mean", "m2")
            }
            for name, features in VECTORS.items()
        },
        batch_size=[],
        device=device,
    )


def normalise(stats: TensorDict, observation: Observation) -> Observation:
    """Marked features in standard deviations from their mean, clamped to +-10, 0 where the entry does not count.

    Shapes: observation [...] -> the same leaves, float32.  A feature never seen, and every other one, passes as it is.
    """
    return replace(observation, **{name: _normalise_vector(stats[name], observation, name) for name in VECTORS})


def _normalise_vector(stats: TensorDict, observation: Observation, name: str) -> Tensor:
    raw = getattr(observation, name)
    count = stats["count"]
    spread = torch.sqrt(stats["m2"] / count.clamp(min=1.0) + _EPS)
    units = ((raw - stats["mean"]) / spread).float().clamp(-_LIMIT, _LIMIT)
    seen = normalised_features(name, raw.device) & (count > 0)
    return torch.where(seen, torch.where(valid_entries(observation, name), units, 0.0), raw)


def normalised_features(name: str, device: torch.device) -> Tensor:
    """Features of a vector that are normalised.  bool [D]."""
    return constant_table(tuple(feature.normalised for feature in VECTORS[name]), torch.bool, device)


def valid_entries(observation: Observation, name: str) -> Tensor:
    """Entries that count: sane, in a finite row, the flag is 1, the slot has a seed.  bool, as the vector."""
    raw = getattr(observation, name)
    owner = constant_table(flag_index(VECTORS[name]), torch.int64, raw.device)
    entry = torch.cat((raw, torch.ones_like(raw[..., :1])), dim=-1)[..., owner] != 0
    entry = entry & (raw.abs() <= FEATURE_LIMIT)
    if name == "slots":
        return entry & (raw[..., _HAS_SEED, None] != 0) & observation.finite[..., None, None]
    return entry & observation.finite[..., None]
