"""Preparation of a rollout for the loss: valid envs, return units, advantages, normalised
observations.
"""

from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.policy.policy import NetworkPolicy, get_branch
from morphogen.ppo.advantage import gae, standardise, subtract_group_mean
from morphogen.ppo.learner import Round
from morphogen.ppo.metrics import Metrics, always_valid
from morphogen.ppo.moments import Moments, masked_moments, merge_parts, sum_parts
from morphogen.ppo.ppo_state import (
    PpoState,
    ScaleState,
    rescale_rewards,
    return_scale,
    running_mean,
)
from morphogen.state.tree_ops import TensorDictField, choose, expand_mask, get_leaf

_CONTRIBUTION_LIMIT = 50.0
_CONTRIBUTION_UNIT = 10.0  # points
_MIN_VARIANCE = 1e-8  # of returns, for the explained variance
# Of a valid reward, value or log-prob: a larger one would set the unit of returns of all envs.
_MAX_ABS = 1e9
# least deviation in return units; most deviations of an advantage in a group
_GROUP_FLOOR = 0.02
_GROUP_LIMIT = 3.0


class ScaledCritic(NamedTuple):
    """The critic in the units of this round."""

    net: TensorDictField
    offset: Tensor  # float32 []
    scale: ScaleState


def prepare_rows(
    learner: PpoState,
    rollout: TensorDict,
    *,
    policy: NetworkPolicy,
    round: Round,
) -> tuple[ScaledCritic, TensorDict, Metrics]:
    """Prepare the rows of an update: return units, advantages, weights.

    Shapes: rollout [T, E] -> (critic, rows [T, E], metrics of the round).  Critic and metrics cover
    the rows of all processes.
    Promise: rewards, values, log-probs and observations of an env outside `finite_envs` reach
    nothing.
    """
    spec = round.spec.ppo
    siblings = round.siblings
    finite = finite_envs(rollout)
    fields = ("reward", "value", "next_value", "log_prob")
    clean = {name: _zero_other_envs(finite, rollout[name]) for name in fields}
    ends = (rollout["terminated"], rollout["truncated"])
    after, reward, factor = rescale_rewards(
        learner.return_scale,
        clean["reward"],
        ends[0],
        spec.gamma,
        finite,
        kind=round.spec.reward.return_scale,
        exchange=round.exchange,
    )
    critic, shift = rescale_critic(learner, factor, after, layer=policy.network.value_layer)
    value, following = (clean[name] * factor + shift for name in ("value", "next_value"))
    advantage, returns = gae(
        reward, value, following, *ends, gamma=spec.gamma, gae_lambda=spec.gae_lambda
    )
    error, _ = gae(reward, value, following, *ends, gamma=spec.gamma, gae_lambda=0.0)
    counts = finite.expand_as(value)
    free = counts & ~rollout["forced"]
    advantage = subtract_group_mean(advantage, counts, siblings)
    moments = merge_parts(
        round.exchange,
        {
            "advantage": masked_moments(advantage, free),
            "value": masked_moments(value.double(), counts),
            "return": masked_moments(returns.double(), counts),
            "residual": masked_moments(returns.double() - value.double(), counts),
            "error": masked_moments(error.abs(), counts),
        },
    )
    rows = policy.replay_inputs(learner.params, rollout)
    rows = rows.update({name: _zero_other_envs(finite, leaf) for name, leaf in rows.items()})
    rows = rows.update(
        {
            "log_prob": clean["log_prob"],
            "advantage": _standardise_group(advantage, free, moments["advantage"], siblings),
            "target": returns - critic.offset,
            "free": free.float(),
            "known": counts.float(),
            **contribution_targets(rollout, counts),
        }
    )
    totals = {
        "rows": torch.full_like(counts.sum(), counts.numel()),
        "free_steps": free.sum(),
        "forced": rollout["forced"].sum(),
        "rollback_rows": rollout["terminated"][:-1].sum(),
        "nonfinite.rollout": (~counts[0]).sum(),
        "contribution_targets": rows["contribution_valid"].sum(),
    }
    metrics = round_metrics(moments, sum_parts(round.exchange, totals), unit=return_scale(after))
    return critic, rows, metrics | {"value_offset": always_valid(critic.offset)}


def _standardise_group(advantage: Tensor, free: Tensor, moments: Moments, siblings: int) -> Tensor:
    """Standardise advantages [T, E]; groups vary less, with rare large ones, which are cut."""
    if siblings == 1:
        return standardise(advantage, free, moments=moments)
    scaled = standardise(advantage, free, floor=_GROUP_FLOOR, moments=moments)
    return scaled.clamp(-_GROUP_LIMIT, _GROUP_LIMIT)


def finite_envs(rollout: TensorDict) -> Tensor:
    """Envs whose rewards, values and log-probs are finite and below 1e9 in every row.  rollout [T,
    E] -> bool [E].
    """
    fields = (
        rollout["reward"],
        rollout["value"],
        rollout["next_value"],
        rollout["log_prob"].abs().amax(-1),
    )
    return torch.stack([(field.abs() <= _MAX_ABS).all(0) for field in fields]).all(0)


def _zero_other_envs(finite: Tensor, leaf: Tensor) -> Tensor:
    """Zero a floating-point leaf [T, E, ...] in all other envs.  finite bool [E]."""
    return choose(expand_mask(finite, leaf[0]), leaf, 0.0) if leaf.is_floating_point() else leaf


def rescale_critic(
    learner: PpoState, factor: Tensor, after: ScaleState, *, layer: str
) -> tuple[ScaledCritic, Tensor]:
    """Rescale the critic; values in reward units stay.  -> (critic, shift of stored values []).

    `layer`: name of the last, linear layer of the value.  The first round adds the offset to stored
    predictions; the layer stays.
    """
    net = get_branch(learner.params, "net")
    old = get_leaf(learner.params, "value_offset")
    offset = (running_mean(after) / return_scale(after)).to(old.dtype)
    first = learner.return_scale.rounds == 0
    weight, bias = (get_leaf(net, f"{layer}.{part}") for part in ("weight", "bias"))
    moved = {
        f"{layer}.weight": torch.where(first, weight, factor * weight),
        f"{layer}.bias": torch.where(first, bias, factor * (bias + old) - offset),
    }
    critic = ScaledCritic(net.clone(recurse=False).update(moved), offset, after)
    return critic, choose(first, offset, 0.0)


def contribution_targets(rollout: TensorDict, counts: Tensor) -> dict[str, Tensor]:
    """Targets of the contribution head, points / 10, and their weights.  counts bool [T, E] -> two
    of [T, E, S].
    """
    valid = (
        rollout["contribution_valid"] & counts.unsqueeze(-1) & rollout["contribution"].isfinite()
    )
    points = choose(valid, rollout["contribution"], 0.0).clamp(
        -_CONTRIBUTION_LIMIT, _CONTRIBUTION_LIMIT
    )
    return {"contribution": points / _CONTRIBUTION_UNIT, "contribution_valid": valid.float()}


def round_metrics(
    moments: dict[str, Moments], totals: dict[str, Tensor], *, unit: Tensor
) -> Metrics:
    """Measure the rows of a round: values and returns in reward units, advantages, counts.

    totals: 0-d each; unit: reward units in a return unit, 0-d.
    """
    value = moments["value"]
    returns = moments["return"]
    advantage = moments["advantage"]
    some = value.count > 0
    spread = returns.variance >= _MIN_VARIANCE
    left = moments["residual"].variance / choose(spread, returns.variance, 1.0)
    forced = totals.pop("forced").double() / totals.pop("rows")
    return {
        "explained_variance": (1.0 - left, some & spread),
        "value_mean": (value.mean * unit, some),
        "value_std": (value.variance.sqrt() * unit, some),
        "return_mean": (returns.mean * unit, some),
        "return_std": (returns.variance.sqrt() * unit, some),
        "advantage_mean": (advantage.mean, advantage.count > 0),
        "advantage_std": (advantage.variance.sqrt(), advantage.count > 0),
        "td_error_abs_mean": (moments["error"].mean, moments["error"].count > 0),
        "return_scale": always_valid(unit),
        "forced_share": always_valid(forced),
        **{name: always_valid(total) for name, total in totals.items()},
    }
