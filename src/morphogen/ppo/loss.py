"""The PPO objective on rows of whole episodes: surrogate, value, diversity of heads, contribution;
coefficients.
"""

import math
from typing import NamedTuple, cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.hosts.layout import LeafMap
from morphogen.policy.controller import ControllerParams
from morphogen.policy.distribution import Lookups
from morphogen.policy.policy import Evaluation, NetworkPolicy
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.metrics import Metrics, masked_mean, masked_mean_by_head
from morphogen.state.tree_ops import choose

_VALUE_START = 0.1  # share of the value coefficient in round 0


class Coefficients(NamedTuple):
    """Coefficients of one update, numbers or 0-d: learning rate, factors of the entropy bonus and
    of the value loss.

    Where `imitation` is not 0, the policy raises the probabilities of the recorded actions;
    advantages do not count.
    """

    lr: float | Tensor
    entropy: float | Tensor
    value: float | Tensor
    imitation: float | Tensor = 0.0

    def to_device(self, device: torch.device) -> "Coefficients":
        """Convert to 0-d tensors, float32: a compiled graph takes them as data."""
        return Coefficients(
            *(torch.full((), cast(float, x), dtype=torch.float32, device=device) for x in self)
        )


def linear_schedule(start: float, end: float | None, rounds: int, round_index: int) -> float:
    """`start` at round 0, `end` from round `rounds` on; the end at once if `rounds` is 0, never if
    it is None.
    """
    if end is None:
        return start
    return start + (end - start) * min(1.0, round_index / rounds) if rounds else end


def coefficients_at(spec: PpoSpec, round_index: int) -> Coefficients:
    """Coefficients of round `round_index`, counted from 0: linear schedules between the settings
    `ppo.*`.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.PpoSpec(lr=0.003, lr_end=0.001, lr_anneal_rounds=10)
        >>> [mg.ppo.coefficients_at(spec, index).lr for index in (0, 5, 20)]
        [0.003, 0.002, 0.001]
    """
    imitates = round_index < spec.imitation_rounds
    return Coefficients(
        lr=linear_schedule(spec.lr, spec.lr_end, spec.lr_anneal_rounds, round_index),
        entropy=0.0
        if imitates
        else linear_schedule(
            spec.entropy_coef, spec.entropy_coef_end, spec.entropy_anneal_rounds, round_index
        ),
        value=linear_schedule(
            _VALUE_START * spec.value_coef, spec.value_coef, spec.value_warmup_rounds, round_index
        ),
        imitation=float(imitates),
    )


_MAX_LOG_RATIO = 20.0  # clamp of log-ratios: their exponential stays finite


class RowCounts(NamedTuple):
    """Numbers of rows by which the losses of a minibatch are divided, float32."""

    free: Tensor  # []
    known: Tensor  # []
    contribution: Tensor  # [], measured slots
    heads: Tensor  # [8], free rows whose action uses the head


def count_rows(rows: LeafMap, used: Tensor, exchange: Exchange) -> RowCounts:
    """Count the rows of a minibatch.  rows [T, B]; used [T, B, 8], 1 for a free row whose action
    uses the head.
    """
    own = (
        rows["free"].sum(),
        rows["known"].sum(),
        rows["contribution_valid"].sum(),
        used.sum((0, 1)),
    )
    return RowCounts(*exchange.sum(own))


def relevant_heads(rows: LeafMap, lookups: Lookups) -> Tensor:
    """Heads that the action of a row uses.  rows [T, E] -> bool [T, E, 8]."""
    return lookups.relevant[rows["in_action"][..., 0]]


def minibatch_objective(
    net: ControllerParams,
    rows: TensorDict,
    hidden: TensorDict,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    weights: Coefficients,
    lookups: Lookups,
    factors: Tensor,
    exchange: Exchange = ALONE,
) -> tuple[Tensor, Metrics]:
    """Loss of one minibatch and its metrics.  rows [T, B] from `prepare.prepare_rows`; hidden
    [B].
    """
    evaluation = policy.rescore(net, rows, lookups, hidden)
    relevant = relevant_heads(cast(LeafMap, rows), lookups)
    return ppo_loss(
        evaluation, rows, relevant, spec=spec, weights=weights, factors=factors, exchange=exchange
    )


def ppo_loss(
    evaluation: Evaluation,
    rows: LeafMap,
    relevant: Tensor,
    *,
    spec: PpoSpec,
    weights: Coefficients,
    factors: Tensor,
    exchange: Exchange = ALONE,
) -> tuple[Tensor, Metrics]:
    """Objective of PPO, `policy + value_coef value - entropy_coef bonus + contribution_coef
    contribution`.

    Args:
        evaluation: scores of the recorded actions, [T, B].
        rows: float32 leaves [T, B]: advantage, target (return - offset), free and known (weights 0
            or 1), log_prob [T, B, 8], contribution_valid [T, B, S]; with a predicted contribution
            also contribution [T, B, S].
        relevant: bool [T, B, 8], heads that the action uses.
        weights: `value` and `entropy` of the round.
        factors: float32 [8], factors of the bonus per head.
        exchange: with the processes that hold the other rows of the minibatch.

    Returns: the loss [], and metrics: pairs (value, valid) by name.  Losses and metrics of all
    processes add up to those of the minibatch, but for the extreme ratios and `behaviour_gap`.
    Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017, eq. 7 and 9; the ratio
    is that of every head, or of the action (`ppo.ratio`).

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> ones, heads = torch.ones(1, 2), torch.zeros(1, 2, 8)
        >>> scores = mg.policy.policy.Evaluation(
        ...     heads, 0 * ones, 0 * ones, heads, heads, contribution=None
        ... )
        >>> rows = {
        ...     "log_prob": heads,
        ...     "advantage": 2 * ones,
        ...     "target": ones,
        ...     "free": ones,
        ...     "known": ones,
        ... }
        >>> rows["contribution_valid"] = heads[..., :2]  # of 2 slots
        >>> weights, relevant = mg.ppo.Coefficients(lr=0.0, entropy=0.0, value=0.5), heads.bool()
        >>> relevant[..., 0] = True  # only the op is relevant; the new log-probs equal the old ones
        >>> mg.ppo.ppo_loss(
        ...     scores, rows, relevant, spec=mg.PpoSpec(), weights=weights, factors=torch.ones(8)
        ... )[0]
        tensor(-1.7500)
    """
    free = rows["free"]
    heads, joint = log_ratios(evaluation.log_prob, rows["log_prob"])
    used = relevant.to(free.dtype) * free.unsqueeze(-1)
    counts = count_rows(rows, used, exchange)
    gain = policy_loss(
        heads.exp() if spec.ratio == "head" else joint.exp(), rows, used, spec=spec, counts=counts
    )
    imitates = torch.as_tensor(weights.imitation, device=free.device) > 0
    policy = choose(
        imitates, imitation_loss(evaluation.log_prob, used, spec.imitation_limit, counts), gain
    )
    value, some_known = masked_mean(
        0.5 * (evaluation.value - rows["target"]).square(), rows["known"], counts.known
    )
    bonus = masked_mean(evaluation.diversity @ factors, free, counts.free)[0]
    loss = policy + weights.value * value - weights.entropy * bonus
    contribution = contribution_loss(evaluation.contribution, rows, counts.contribution)
    loss = loss + spec.contribution_coef * contribution[0]
    measured: Metrics = {
        "policy_loss": (policy, counts.free > 0),
        "value_loss": (value, some_known),
        "contribution_loss": contribution,
        "entropy": masked_mean(evaluation.entropy, free, counts.free),
        **entropy_sums(evaluation, free.unsqueeze(-1)),
        **ratio_metrics(heads, joint, used, free, clip=spec.clip, counts=counts, valid=~imitates),
        "behaviour_gap": ((heads.abs() * rows["known"].unsqueeze(-1)).amax(), some_known),
    }
    return loss, {name: (x.detach(), valid) for name, (x, valid) in measured.items()}


def policy_loss(
    r: Tensor, rows: LeafMap, used: Tensor, *, spec: PpoSpec, counts: RowCounts
) -> Tensor:
    """Negative surrogate of the ratios r: of the heads [T, B, 8], or of the actions [T, B]; used
    [T, B, 8] -> [].
    """
    if spec.ratio == "head":
        surrogate = clipped_surrogate(r, rows["advantage"].unsqueeze(-1), spec.clip)
        return -masked_mean_by_head(surrogate, used, counts.heads)[0].sum()
    return -masked_mean(
        clipped_surrogate(r, rows["advantage"], spec.clip), rows["free"], counts.free
    )[0]


def imitation_loss(log_prob: Tensor, used: Tensor, limit: float, counts: RowCounts) -> Tensor:
    """Negative log-likelihood of the recorded actions, a mean per head.  log_prob, used [T, B, 8]
    -> [].

    A head above the probability `limit` has no gradient.
    """
    return -masked_mean_by_head(log_prob.clamp(max=math.log(limit)), used, counts.heads)[0].sum()


def entropy_sums(evaluation: Evaluation, weight: Tensor) -> Metrics:
    """Sums over rows of the two parts of the entropy of every head: diversity over reach.  weight
    [T, B, 1] -> [8].
    """
    spread, reach = ((x * weight).sum((0, 1)) for x in (evaluation.diversity, evaluation.reach))
    return {"diversity_head": (spread, reach > 0), "reach_head": (reach, reach > 0)}


def log_ratios(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Log-ratio of each head and of the whole action, clamped to +-20.  [..., 8] -> [..., 8],
    [...].
    """
    heads = new - old
    return heads.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO), heads.sum(-1).clamp(
        -_MAX_LOG_RATIO, _MAX_LOG_RATIO
    )


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The pessimistic one of the plain and the clipped gain.  Shapes broadcast."""
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def kl_estimate(log_ratio: Tensor) -> Tensor:
    """An unbiased estimate of the KL divergence from the behaviour, never negative: `r - 1 - log
    r`.  Same shape.
    """
    return log_ratio.expm1() - log_ratio


def contribution_loss(
    predicted: Tensor | None, rows: LeafMap, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Half squared error of the predicted contributions over `total` measured slots; exactly 0
    without any.
    """
    if predicted is None:
        zero = torch.zeros_like(rows["free"][0, 0])
        return zero, zero > 0
    return masked_mean(
        0.5 * (predicted - rows["contribution"]).square(), rows["contribution_valid"], total
    )


def ratio_metrics(
    heads: Tensor,
    joint: Tensor,
    used: Tensor,
    free: Tensor,
    *,
    clip: float,
    counts: RowCounts,
    valid: Tensor,
) -> Metrics:
    """KL, clip shares and the extreme ratios over free rows.  heads, used [T, B, 8]; joint, free
    [T, B]; valid [].
    """
    r = joint.exp()
    some = counts.free > 0
    measured = {
        "kl": masked_mean(kl_estimate(joint), free, counts.free),
        "clip_share": masked_mean(((r - 1.0).abs() > clip).to(free.dtype), free, counts.free),
        "clip_share_head": masked_mean_by_head(
            (heads.expm1().abs() > clip).to(free.dtype), used, counts.heads
        ),
        "ratio_max": (choose(free > 0, r, 0.0).amax(), some),
        "ratio_min": (choose(free > 0, r, torch.inf).amin(), some),
    }
    return {name: (x, some & valid) for name, (x, some) in measured.items()}
