"""Statistics of the observations of a round and of the hidden state at its end, for any policy.

Names are as in the events, after the name of a group: `observation.clip_share`, `hidden.h_rms`.
"""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.policy.observation_scaling import normalise, normalised_features, valid_entries
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.metrics import Metrics
from morphogen.ppo.moments import Moments, stack_parts, sum_parts
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
_FEATURES = [feature for row in FEATURES.values() for feature in row]
_NORMALISED = tuple(i for i, feature in enumerate(_FEATURES) if feature.normalised)


def survey_rollout(
    observation: Observation,
    hidden: TensorDict,
    scaling_stats: TensorDict | None,
    updated_stats: TensorDict | None,
    exchange: Exchange = ALONE,
) -> dict[str, Tensor]:
    """Statistics of a round: 0-d values, a flag `<name>_valid` for optional ones, and the
    normaliser.

    Shapes: observation [T, E], raw; hidden [E], after the last epoch, empty for a policy without
    memory;
    scaling_stats: normaliser of the round; updated_stats: normaliser after the round; None for a
    policy without.
    `exchange`: with the processes that hold the other envs; the results cover all.
    """
    groups = {"observation.": raw_feature_stats(observation, exchange)}
    if scaling_stats is not None and updated_stats is not None:
        for name, (value, valid) in clip_shares(observation, scaling_stats, exchange).items():
            groups["observation."] |= {name: value, f"{name}_valid": valid}
        groups["normaliser."] = normaliser_stats(updated_stats)
    for name, leaf in get_leaves(hidden).items():
        groups[f"hidden.{name}_"] = hidden_stats(leaf.unsqueeze(0), exchange)
    return {
        prefix + name: value for prefix, found in groups.items() for name, value in found.items()
    }


def safe_norm(x: Tensor) -> Tensor:
    """L2 norm over the last axis, of numbers of any size: scaled by the largest, so that no square
    leaves the range.
    """
    most = x.abs().amax(-1)
    unit = choose(most > 0, most, 1.0).unsqueeze(-1)
    return most * (x / unit).square().sum(-1).sqrt()


def hidden_stats(hidden: Tensor, exchange: Exchange = ALONE) -> dict[str, Tensor]:
    """Magnitude of a hidden state, in which non-finite elements count as 0.

    Shapes: hidden float [L, E, H] -> each 0-d; `env_rms` of an env is over its layers and units,
    `nonfinite` int64 counts elements.
    """
    finite = hidden.isfinite()
    known = choose(finite, hidden, 0.0).transpose(0, 1).flatten(1)  # [E, L H]
    own = {
        "env_rms": safe_norm(known) / known.shape[1] ** 0.5,
        "abs_max": known.abs().amax(),
        "nonfinite": (~finite).sum(),
    }
    parts = stack_parts(exchange, own)
    env_rms = parts["env_rms"].flatten()
    return {
        "rms": safe_norm(env_rms) / len(env_rms) ** 0.5,
        "env_rms_mean": env_rms.mean(),
        "env_rms_max": env_rms.amax(),
        "abs_max": parts["abs_max"].amax(),
        "nonfinite": parts["nonfinite"].sum(),
    }


def raw_feature_stats(observation: Observation, exchange: Exchange = ALONE) -> dict[str, Tensor]:
    """Moments of the blocks of raw features, and shares of non-finite values and outliers.  [T, E]
    -> 0-d each.
    """
    shared = torch.cat((observation.env, observation.instance), dim=-1)
    columns = torch.cat((shared, observation.slots.flatten(2)), dim=-1).flatten(0, -2)  # [T E, D]
    variance, mean = torch.var_mean(columns, dim=0, correction=0)
    parts = stack_parts(exchange, {"mean": mean, "variance": variance})
    # all parts have the same number of rows
    mean = parts["mean"].mean(0)
    variance = parts["variance"].mean(0) + parts["mean"].var(0, correction=0)
    far = (columns - mean).abs() > OUTLIER_DEVIATIONS * (variance.sqrt() + DEVIATION_FLOOR)
    shares = stack_parts(
        exchange,
        {"outlier": far.to(columns.dtype).mean(), "nonfinite": observation.nonfinite.sum()},
    )
    entries = columns.numel() * len(shares["nonfinite"])
    result = {
        "nonfinite_share": divide_ints(shares["nonfinite"].sum(), entries),
        "outlier_share": shares["outlier"].mean(),
    }
    slots = range(shared.shape[-1], columns.shape[-1])
    for name, block in {**_BLOCKS, "slot": tuple(slots)}.items():
        index = constant_table(block, torch.int64, columns.device)
        means = mean.index_select(0, index)
        spread = variance.index_select(0, index).mean() + means.var(correction=0)
        result |= {f"{name}_mean": means.mean(), f"{name}_std": spread.sqrt()}
    return result


def clip_shares(observation: Observation, stats: TensorDict, exchange: Exchange = ALONE) -> Metrics:
    """Shares of the normalised elements near the clip limit, and at the limit.  [T, E] -> (0-d,
    valid) each.
    """
    scaled = normalise(stats, observation)
    counts: list[Tensor] = []
    for name, valid in valid_entries(observation).items():
        known = normalised_features(name, valid.device) & (get_leaf(stats, (name, "count")) > 0)
        size = choose(valid & known, getattr(scaled, name).abs(), -1.0)
        counts += [(size >= least).sum() for least in (0.0, NEAR_CLIP, CLIP)]
    own = torch.unflatten(torch.stack(counts), 0, (-1, 3)).sum(0)
    number, near, clipped = sum_parts(exchange, {"clip": own})["clip"].unbind()
    total = number.clamp(min=1).float()
    return {
        "near_clip_share": (near / total, number > 0),
        "clip_share": (clipped / total, number > 0),
    }


def normaliser_stats(stats: TensorDict) -> dict[str, Tensor]:
    """Mean and standard deviation of every normalised feature; 0 before its first valid entry.  ->
    float64 [D] each.
    """
    count, mean, m2 = (
        torch.cat([get_leaf(stats, (name, key)) for name in FEATURES]) for key in Moments._fields
    )
    columns = constant_table(_NORMALISED, torch.int64, count.device)
    deviation = Moments(count, mean, m2).variance.sqrt()
    return {"mean": mean.index_select(0, columns), "std": deviation.index_select(0, columns)}
