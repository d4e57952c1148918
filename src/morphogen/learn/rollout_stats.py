"""Statistics of the observations of a round and of the hidden state at its end, for any policy.

Names are those of the events behind the name of a group: `observation.clip_share`, `hidden.h_rms`.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.learn.metrics import Metrics
from morphogen.nets.normalise import normalise, normalised_features, valid_entries
from morphogen.rules.health import hidden_stats
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.observation import ENV, VECTORS

OUTLIER_DEVIATIONS, DEVIATION_FLOOR = 3.0, 1e-8  # standard deviations
NEAR_CLIP, CLIP = 9.0, 10.0 - 1e-6  # normalised units; the normaliser clamps at 10
_BLOCKS = {block: tuple(i for i, one in enumerate(ENV) if one.block == block) for block in ("host", "feedback")}
_NORMALISED = {name: tuple(i for i, one in enumerate(row) if one.normalised) for name, row in VECTORS.items()}


def rollout_stats(
    observation: Observation, hidden: TensorDict, scaling_stats: TensorDict | None, updated_stats: TensorDict | None
) -> TensorDict:
    """A round, flat: 0-d numbers with a flag `<name>_valid` where one may be missing, and the normaliser.

    Shapes: observation [T, E], raw; hidden [E], after the last epoch, empty for a policy without memory; used, now:
    the statistics that scaled the round, and those it leaves behind; None for a policy without them.
    """
    found: dict[str, Tensor] = {f"observation.{name}": value for name, value in raw_feature_stats(observation).items()}
    if scaling_stats is not None and updated_stats is not None:
        for name, (value, valid) in clip_shares(observation, scaling_stats).items():
            found |= {f"observation.{name}": value, f"observation.{name}_valid": valid}
        found |= {f"normaliser.{name}": value for name, value in normaliser_stats(updated_stats).items()}
    for name, leaf in hidden.items():
        sizes = hidden_stats(leaf.unsqueeze(0))._asdict()
        found |= {f"hidden.{name}_{key}": value for key, value in sizes.items()}
    return TensorDict(found, batch_size=[])


def raw_feature_stats(observation: Observation) -> dict[str, Tensor]:
    """Blocks of the raw features, and how many elements stand out from their feature.  [T, E] -> 0-d each."""
    env, slots = observation.env, observation.slots
    columns = torch.cat((env, observation.instance, slots.flatten(2)), dim=-1).flatten(0, -2)  # [T E, D]
    found = {"nonfinite_share": observation.nonfinite.sum() / columns.numel()}
    blocks = {
        name: env.index_select(-1, constant_table(which, torch.int64, env.device)) for name, which in _BLOCKS.items()
    }
    for name, block in {**blocks, "slot": slots}.items():
        variance, mean = torch.var_mean(block, correction=0)
        found |= {f"{name}_mean": mean, f"{name}_std": variance.sqrt()}
    variance, mean = torch.var_mean(columns, dim=0, correction=0)
    far = (columns - mean).abs() > OUTLIER_DEVIATIONS * (variance.sqrt() + DEVIATION_FLOOR)
    return {**found, "outlier_share": far.to(columns.dtype).mean()}


def clip_shares(observation: Observation, stats: TensorDict) -> Metrics:
    """Shares of the normalised elements that are near the limit, and at it.  [T, E] -> (0-d, valid) each."""
    scaled, device = normalise(stats, observation), observation.env.device
    own = {n: valid_entries(observation, n) & normalised_features(n, device) & (stats[n, "count"] > 0) for n in VECTORS}
    number = torch.stack([where.sum() for where in own.values()]).sum()
    found = {}
    for share, limit in (("near_clip_share", NEAR_CLIP), ("clip_share", CLIP)):
        beyond = torch.stack([(where & (getattr(scaled, n).abs() >= limit)).sum() for n, where in own.items()]).sum()
        found[share] = (beyond / number.clamp(min=1), number > 0)
    return found


def normaliser_stats(stats: TensorDict) -> dict[str, Tensor]:
    """Mean and standard deviation of every feature that is normalised; 0 where never seen.  -> float64 [D] each."""
    rows = [stats[name] for name in VECTORS]
    which = [
        constant_table(_NORMALISED[name], torch.int64, row["count"].device)
        for name, row in zip(VECTORS, rows, strict=True)
    ]
    found = {"mean": [row["mean"] for row in rows], "std": [_standard_deviation(row) for row in rows]}
    return {
        key: torch.cat([leaf.index_select(0, own) for leaf, own in zip(leaves, which, strict=True)])
        for key, leaves in found.items()
    }


def _standard_deviation(stats: TensorDict) -> Tensor:
    return (stats["m2"] / stats["count"].clamp(min=1.0)).sqrt()
