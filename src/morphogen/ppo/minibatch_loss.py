"""The objective of a minibatch: the PPO loss or imitation, and the predicted contribution.

    objective = loss (`ppo.loss`) + c_contribution mean((predicted - measured)^2) / 2

In rounds of imitation the mean log-likelihood of the recorded actions replaces the gain.
"""

import math

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.hosts.layout import LeafMap
from morphogen.policy.controller import ControllerParams
from morphogen.policy.policy import Evaluation, NetworkPolicy
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.ppo.loss import log_ratios, ppo_loss
from morphogen.ppo.metrics import Metrics, masked_mean, masked_mean_by_head
from morphogen.ppo.row_weights import RowWeights, Weights, row_weights
from morphogen.rules.legality import relevant_heads
from morphogen.state.tree_ops import choose, get_leaf


def minibatch_objective(
    net: ControllerParams,
    rows: TensorDict,
    hidden: TensorDict,
    *,
    policy: NetworkPolicy,
    spec: PpoSpec,
    weights: Coefficients,
    exchange: Exchange = ALONE,
) -> tuple[Tensor, Metrics]:
    """Loss of one minibatch and its metrics.  rows [T, B] from `prepare.prepare_rows`; hidden
    [B].
    """
    evaluation = policy.rescore(net, rows, hidden)
    relevant = relevant_heads(get_leaf(rows, "in_action")[..., 0])
    over = row_weights(rows, relevant, exchange)
    return objective(evaluation, rows, over, spec=spec, weights=weights)


def objective(
    evaluation: Evaluation,
    rows: LeafMap,
    over: RowWeights,
    *,
    spec: PpoSpec,
    weights: Coefficients,
) -> tuple[Tensor, Metrics]:
    """Objective of recorded actions and its metrics: pairs (value, valid) by name.

    Arguments: as of `loss.ppo_loss`; rows with a predicted contribution hold contribution [T, B,
    S].  In rounds of imitation the likelihood of the recorded actions replaces their gain.
    Losses and metrics of all processes add up to the minibatch's, but for the extreme ratios
    and `behaviour_gap`.
    """
    loss = ppo_loss(evaluation, rows, over, spec=spec)
    imitates = torch.as_tensor(weights.imitation, device=loss.policy.device) > 0
    imitation = imitation_loss(evaluation.log_prob, over.heads, spec.imitation_limit)
    loss = loss._replace(policy=choose(imitates, imitation, loss.policy))
    contribution = contribution_loss(evaluation.contribution, rows, over.measured)
    total = loss.weigh(weights) + spec.contribution_coef * contribution
    predicts = evaluation.contribution is not None
    with torch.no_grad():
        free = over.free.weight.unsqueeze(-1)
        measured: Metrics = {
            "loss": (total, over.known.some),
            "policy_loss": (loss.policy, over.free.some),
            "value_loss": (loss.value, over.known.some),
            "contribution_loss": (contribution, over.measured.some & predicts),
            "entropy": (masked_mean(evaluation.entropy, over.free), over.free.some),
            # sums over rows of the two parts of the entropy of every head
            "diversity_head": ((evaluation.diversity * free).sum((0, 1)), over.free.some),
            "reach_head": ((evaluation.reach * free).sum((0, 1)), over.free.some),
            **ratio_metrics(evaluation, rows, over, clip=spec.clip, valid=~imitates),
        }
    return total, {name: (x.detach(), valid) for name, (x, valid) in measured.items()}


def imitation_loss(log_prob: Tensor, heads: Weights, limit: float) -> Tensor:
    """Negative log-likelihood of the recorded actions, a mean per head.  log_prob [T, B, 8] -> [].

    A head above the probability `limit` has no gradient.
    """
    return -masked_mean_by_head(log_prob.clamp(max=math.log(limit)), heads).sum()


def contribution_loss(predicted: Tensor | None, rows: LeafMap, measured: Weights) -> Tensor:
    """Half squared error of the predicted contributions; exactly 0 without any."""
    if predicted is None:
        return torch.zeros_like(rows["free"][0, 0])
    return masked_mean(0.5 * (predicted - rows["contribution"]).square(), measured)


def kl_estimate(log_ratio: Tensor) -> Tensor:
    """An unbiased estimate of the KL divergence from the behaviour, never negative: `r - 1 - log
    r`.  Same shape.
    """
    return log_ratio.expm1() - log_ratio


def ratio_metrics(
    evaluation: Evaluation, rows: LeafMap, over: RowWeights, *, clip: float, valid: Tensor
) -> Metrics:
    """Return KL, clip shares and extreme ratios of free rows, and the largest log-ratio of known
    ones.  valid [], of all but the last.
    """
    heads, joint = log_ratios(evaluation.log_prob, rows["log_prob"])
    r = joint.exp()
    free = over.free
    clipped = ((r - 1.0).abs() > clip).to(r.dtype)
    clipped_heads = (heads.expm1().abs() > clip).to(r.dtype)
    measured = {
        "kl": (masked_mean(kl_estimate(joint), free), free.some),
        "clip_share": (masked_mean(clipped, free), free.some),
        "clip_share_head": (masked_mean_by_head(clipped_heads, over.heads), over.heads.some),
        "ratio_max": (choose(free.weight > 0, r, 0.0).amax(), free.some),
        "ratio_min": (choose(free.weight > 0, r, torch.inf).amin(), free.some),
    }
    gap = (heads.abs() * over.known.weight.unsqueeze(-1)).amax()
    return {name: (x, some & valid) for name, (x, some) in measured.items()} | {
        "behaviour_gap": (gap, over.known.some)
    }
