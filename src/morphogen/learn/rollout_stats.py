"""Statistics of the observations of a round and of the hidden state at its end, for any policy.

Names are those of the events, after the name of a group: `observation.clip_share`, `hidden.h_rms`.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.learn.metrics import Metrics
from morphogen.nets.layout import LeafMap
from morphogen.nets.observation_scaling import normalise, normalised_features, valid_entries
from morphogen.nets.policy import get_branch
from morphogen.rules.health import hidden_stats
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, constant_table, divide_ints, get_leaf, get_leaves
from morphogen.vocab.observation import ENV, FEATURES

OUTLIER_DEVIATIONS, DEVIATION_FLOOR = 3.0, 1e-8  # standard deviations
NEAR_CLIP, CLIP = 9.0, 10.0 - 1e-6  # normalised units; the normaliser clamps at 10
_BLOCKS = {block: tuple(i for i, column in enumerate(ENV) if column.block == block) for block in ("host", "feedback")}
_NORMALISED = {name: tuple(i for i, column in enumerate(row) if column.normalised) for name, row in FEATURES.items()}


def rollout_stats(
    observation: Observation, hidden: TensorDict, scaling_stats: TensorDict | None, updated_stats: TensorDict | None
) -> TensorDict:
    """Statistics of a round: 0-d values, a flag `<name>_valid` beside optional ones, and the normaliser.

    Shapes: observation [T, E], raw; hidden [E], after the last epoch, empty for a policy without memory;
    scaling_stats: normaliser of the round; updated_stats: normaliser after the round; None for a policy without.
    """
    result: dict[str, Tensor] = {f"observation.{name}": value for name, value in raw_feature_stats(observation).items()}
    if scaling_stats is not None and updated_stats is not None:
        for name, (value, valid) in clip_shares(observation, scaling_stats).items():
            result |= {f"observation.{name}": value, f"observation.{name}_valid": valid}
        result |= {f"normaliser.{name}": value for name, value in normaliser_stats(updated_stats).items()}
    for name, leaf in get_leaves(hidden).items():
        sizes = hidden_stats(leaf.unsqueeze(0))._asdict()
        result |= {f"hidden.{name}_{key}": value for key, value in sizes.items()}
    return TensorDict(result, batch_size=[])


def raw_feature_stats(observation: Observation) -> dict[str, Tensor]:
    """Moments of the blocks of raw features, and shares of non-finite values and outliers.  [T, E] -> 0-d each."""
    env, slots = observation.env, observation.slots
    columns = torch.cat((env, observation.instance, slots.flatten(2)), dim=-1).flatten(0, -2)  # [T E, D]
    result = {"nonfinite_share": divide_ints(observation.nonfinite.sum(), columns.numel())}
    blocks = {n: env.index_select(-1, constant_table(i, torch.int64, env.device)) for n, i in _BLOCKS.items()}
    for name, block in {**blocks, "slot": slots}.items():
        variance, mean = torch.var_mean(block, correction=0)
        result |= {f"{name}_mean": mean, f"{name}_std": variance.sqrt()}
    variance, mean = torch.var_mean(columns, dim=0, correction=0)
    far = (columns - mean).abs() > OUTLIER_DEVIATIONS * (variance.sqrt() + DEVIATION_FLOOR)
    return {**result, "outlier_share": far.to(columns.dtype).mean()}


def clip_shares(observation: Observation, stats: TensorDict) -> Metrics:
    """Shares of the normalised elements near the clip limit, and at the limit.  [T, E] -> (0-d, valid) each."""
    scaled, valid, device = normalise(stats, observation), valid_entries(observation), observation.env.device
    for n in FEATURES:
        valid[n] = valid[n] & normalised_features(n, device) & (get_leaf(stats, (n, "count")) > 0)
    number = torch.stack([where.sum() for where in valid.values()]).sum()
    result: Metrics = {}
    for share, limit in (("near_clip_share", NEAR_CLIP), ("clip_share", CLIP)):
        beyond = torch.stack([(where & (getattr(scaled, n).abs() >= limit)).sum() for n, where in valid.items()]).sum()
        result[share] = (beyond / number.clamp(min=1).float(), number > 0)
    return result


def normaliser_stats(stats: TensorDict) -> dict[str, Tensor]:
    """Mean and standard deviation of every normalised feature; 0 before its first valid entry.  -> float64 [D] each."""
    means: list[Tensor] = []
    deviations: list[Tensor] = []
    for name in FEATURES:
        row = get_leaves(get_branch(stats, name))
        columns = constant_table(_NORMALISED[name], torch.int64, row["count"].device)
        means.append(row["mean"].index_select(0, columns))
        deviations.append((row["m2"] / row["count"].clamp(min=1.0)).sqrt().index_select(0, columns))
    return {"mean": torch.cat(means), "std": torch.cat(deviations)}


def update_observation_stats(stats: TensorDict, observation: Observation) -> TensorDict:
    """Merge all rows of a rollout into the statistics; all slots share one set.

    Shapes: stats of `nets.init_stats`; observation [T, E], raw -> statistics of the same form, float64.
    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.

    Example:
        >>> import morphogen as mg
        >>> _, seen = mg.make("whitebox", envs=4, seed=0).reset()
        >>> stats = mg.learn.update_observation_stats(mg.nets.init_stats(), seen.observation.unsqueeze(0))
        >>> stats["env", "count"].max()  # valid entries of a feature
        tensor(4., dtype=torch.float64)
    """
    moments = feature_moments(observation)
    merged = {name: merge_moments(get_leaves(get_branch(stats, name)), moments[name]) for name in FEATURES}
    return TensorDict(merged, batch_size=[], device=stats.device)


def feature_moments(observation: Observation) -> dict[str, dict[str, Tensor]]:
    """Count, mean and sum of squared deviations of the entries that count.  -> float64 [D] each; 0 if unmarked."""
    moments: dict[str, dict[str, Tensor]] = {}
    for name, valid in valid_entries(observation).items():
        raw = getattr(observation, name).double().flatten(0, -2)
        counted = valid.flatten(0, -2) & normalised_features(name, raw.device)
        count = counted.sum(0).double()
        mean = choose(counted, raw, 0.0).sum(0) / count.clamp(min=1.0)
        m2 = choose(counted, raw - mean, 0.0).square().sum(0)
        moments[name] = {"count": count, "mean": mean, "m2": m2}
    return moments


def merge_moments(a: LeafMap, b: LeafMap) -> dict[str, Tensor]:
    """Statistics of the union of two disjoint sets of entries."""
    total = a["count"] + b["count"]
    step = b["mean"] - a["mean"]
    share = b["count"] / torch.clamp(total, min=1.0)
    between = step.square() * a["count"] * share
    return {"count": total, "mean": a["mean"] + step * share, "m2": a["m2"] + b["m2"] + between}
