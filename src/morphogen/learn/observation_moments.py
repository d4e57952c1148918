"""Merging a rollout into the observation statistics: exact counts, two passes, no decay.

Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.normalise import normalised_features, valid_entries
from morphogen.state.decision import Observation
from morphogen.vocab.observation import VECTORS


def update_observation_stats(stats: TensorDict, observation: Observation) -> TensorDict:
    """Merge all rows of a rollout into the statistics.  observation [T, E]; slots are pooled."""
    merged = {name: merge_moments(stats[name], feature_moments(observation, name)) for name in VECTORS}
    return TensorDict(merged, batch_size=[], device=stats.device)


def feature_moments(observation: Observation, name: str) -> dict[str, Tensor]:
    """Count, mean and sum of squared deviations of the entries that count.  -> float64 [D] each; 0 if unmarked."""
    raw = getattr(observation, name).double().flatten(0, -2)
    counted = valid_entries(observation, name).flatten(0, -2) & normalised_features(name, raw.device)
    count = counted.sum(0).double()
    mean = torch.where(counted, raw, 0.0).sum(0) / count.clamp(min=1.0)
    m2 = torch.where(counted, raw - mean, 0.0).square().sum(0)
    return {"count": count, "mean": mean, "m2": m2}


def merge_moments(a: TensorDict | dict[str, Tensor], b: TensorDict | dict[str, Tensor]) -> dict[str, Tensor]:
    """Statistics of the union of two disjoint sets of entries."""
    total = a["count"] + b["count"]
    step = b["mean"] - a["mean"]
    share = b["count"] / torch.clamp(total, min=1.0)
    between = step.square() * a["count"] * share
    return {"count": total, "mean": a["mean"] + step * share, "m2": a["m2"] + b["m2"] + between}
