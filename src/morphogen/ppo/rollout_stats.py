"""Statistics of the observations of a round and of the hidden state at its end, for any policy.

Names are as in the events, after the name of a group: `observation.clip_share`, `hidden.h_rms`.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.hosts.layout import LeafMap
from morphogen.policy.observation_scaling import normalise, normalised_features, valid_entries
from morphogen.policy.policy import get_branch
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.metrics import Metrics
from morphogen.ppo.moments import Moments, merge_moments, merge_parts, stack_parts, sum_parts
from morphogen.rules.health import HiddenStats, hidden_stats, safe_norm
from morphogen.state.decision import Observation
from morphogen.state.tree_ops import choose, constant_table, divide_ints, get_leaf, get_leaves
from morphogen.vocab.observation import ENV, FEATURES

OUTLIER_DEVIATIONS = 3.0
DEVIATION_FLOOR = 1e-8  # standard deviations
NEAR_CLIP = 9.0
CLIP = 10.0 - 1e-6  # normalised units; the normaliser clamps at 10
_BLOCKS = {
    block: tuple(i for i, column in enumerate(ENV) if column.block == block)
    for block in ("host", "feedback")
}
_NORMALISED = {
    name: tuple(i for i, column in enumerate(row) if column.normalised)
    for name, row in FEATURES.items()
}


def rollout_stats(
    observation: Observation,
    hidden: TensorDict,
    scaling_stats: TensorDict | None,
    updated_stats: TensorDict | None,
    exchange: Exchange = ALONE,
) -> TensorDict:
    """Statistics of a round: 0-d values, a flag `<name>_valid` for optional ones, and the
    normaliser.

    Shapes: observation [T, E], raw; hidden [E], after the last epoch, empty for a policy without
    memory;
    scaling_stats: normaliser of the round; updated_stats: normaliser after the round; None for a
    policy without.
    `exchange`: with the processes that hold the other envs; the results cover all.
    """
    result: dict[str, Tensor] = {
        f"observation.{name}": value
        for name, value in raw_feature_stats(observation, exchange).items()
    }
    if scaling_stats is not None and updated_stats is not None:
        for name, (value, valid) in clip_shares(observation, scaling_stats, exchange).items():
            result |= {f"observation.{name}": value, f"observation.{name}_valid": valid}
        result |= {
            f"normaliser.{name}": value for name, value in normaliser_stats(updated_stats).items()
        }
    for name, leaf in get_leaves(hidden).items():
        sizes = merge_hidden_stats(stack_parts(exchange, hidden_stats(leaf.unsqueeze(0))._asdict()))
        result |= {f"hidden.{name}_{key}": value for key, value in sizes._asdict().items()}
    return TensorDict(result, batch_size=[])


def merge_hidden_stats(parts: LeafMap) -> HiddenStats:
    """Merge the sizes of the memories of parts with equal numbers of envs.  [P] each -> 0-d
    each.
    """
    return HiddenStats(
        rms=safe_norm(parts["rms"]) / len(parts["rms"]) ** 0.5,
        env_rms_mean=parts["env_rms_mean"].mean(),
        env_rms_max=parts["env_rms_max"].amax(),
        abs_max=parts["abs_max"].amax(),
        nonfinite=parts["nonfinite"].sum(),
    )


def raw_feature_stats(observation: Observation, exchange: Exchange = ALONE) -> dict[str, Tensor]:
    """Moments of the blocks of raw features, and shares of non-finite values and outliers.  [T, E]
    -> 0-d each.
    """
    env = observation.env
    slots = observation.slots
    # [T E, D]
    columns = torch.cat((env, observation.instance, slots.flatten(2)), dim=-1).flatten(0, -2)
    blocks = {
        n: env.index_select(-1, constant_table(i, torch.int64, env.device))
        for n, i in _BLOCKS.items()
    }
    moments = {
        name: torch.var_mean(block, correction=0)
        for name, block in {**blocks, "slot": slots}.items()
    }
    moments["column"] = torch.var_mean(columns, dim=0, correction=0)
    own = {f"{name}.{i}": part for name, pair in moments.items() for i, part in enumerate(pair)}
    parts = stack_parts(exchange, {**own, "nonfinite": observation.nonfinite.sum()})
    entries = columns.numel() * len(parts["nonfinite"])
    result = {"nonfinite_share": divide_ints(parts["nonfinite"].sum(), entries)}
    means = dict[str, Tensor]()
    deviations = dict[str, Tensor]()
    for name in moments:  # all parts have the same number of rows
        variance = parts[f"{name}.0"]
        mean = parts[f"{name}.1"]
        means[name], between = mean.mean(0), mean.var(0, correction=0)
        deviations[name] = (variance.mean(0) + between).sqrt()
    far = (columns - means.pop("column")).abs() > OUTLIER_DEVIATIONS * (
        deviations.pop("column") + DEVIATION_FLOOR
    )
    result |= {f"{name}_mean": mean for name, mean in means.items()}
    result |= {f"{name}_std": deviation for name, deviation in deviations.items()}
    share = stack_parts(exchange, {"outlier": far.to(columns.dtype).mean()})
    return {**result, "outlier_share": share["outlier"].mean()}


def clip_shares(observation: Observation, stats: TensorDict, exchange: Exchange = ALONE) -> Metrics:
    """Shares of the normalised elements near the clip limit, and at the limit.  [T, E] -> (0-d,
    valid) each.
    """
    scaled = normalise(stats, observation)
    valid = valid_entries(observation)
    device = observation.env.device
    for n in FEATURES:
        valid[n] = valid[n] & normalised_features(n, device) & (get_leaf(stats, (n, "count")) > 0)
    own = {"number": torch.stack([where.sum() for where in valid.values()]).sum()}
    for share, limit in (("near_clip_share", NEAR_CLIP), ("clip_share", CLIP)):
        beyond = [(where & (getattr(scaled, n).abs() >= limit)).sum() for n, where in valid.items()]
        own[share] = torch.stack(beyond).sum()
    total = sum_parts(exchange, own)
    number = total.pop("number")
    return {
        share: (beyond / number.clamp(min=1).float(), number > 0) for share, beyond in total.items()
    }


def normaliser_stats(stats: TensorDict) -> dict[str, Tensor]:
    """Mean and standard deviation of every normalised feature; 0 before its first valid entry.  ->
    float64 [D] each.
    """
    means: list[Tensor] = []
    deviations: list[Tensor] = []
    for name in FEATURES:
        row = get_leaves(get_branch(stats, name))
        columns = constant_table(_NORMALISED[name], torch.int64, row["count"].device)
        means.append(row["mean"].index_select(0, columns))
        deviations.append((row["m2"] / row["count"].clamp(min=1.0)).sqrt().index_select(0, columns))
    return {"mean": torch.cat(means), "std": torch.cat(deviations)}


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
        count = counted.sum(0).double()
        mean = choose(counted, raw, 0.0).sum(0) / count.clamp(min=1.0)
        moments[name] = Moments(count, mean, m2=choose(counted, raw - mean, 0.0).square().sum(0))
    return moments
