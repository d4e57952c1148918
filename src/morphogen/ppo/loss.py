"""The PPO loss, from Schulman et al., Proximal Policy Optimization Algorithms, 2017.

    r      = exp(log pi(a | s) - log pi_old(a | s))
    gain   = mean(min(r A, clip(r, 1 - eps, 1 + eps) A))          eq. 7
    value  = mean((V(s) - target)^2) / 2
    loss   = -gain + c_value value - c_entropy mean(diversity)    eq. 9

There is a ratio r per head of an action, or one per action (`ppo.ratio`).  `diversity` is the
normalised entropy of each head times the probability that it is used.  `minibatch_loss` adds the
loss of the predicted contribution.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.policy_spec import PpoSpec
from morphogen.hosts.layout import LeafMap
from morphogen.policy.policy import Evaluation
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.metrics import masked_mean, masked_mean_by_head
from morphogen.ppo.row_weights import RowWeights
from morphogen.state.tree_ops import constant_table

_MAX_LOG_RATIO = 20.0  # clamp of log-ratios: their exponential stays finite


class PpoLoss(NamedTuple):
    """Terms of the loss, each [].  Terms of several processes add up to the terms of all rows."""

    policy: Tensor
    """Negative clipped gain."""
    value: Tensor
    """Half squared error of the critic."""
    bonus: Tensor
    """Diversity of the heads."""

    def weigh(self, weights: Coefficients) -> Tensor:
        """Return the loss, eq. 9."""
        return self.policy + weights.value * self.value - weights.entropy * self.bonus


def ppo_loss(evaluation: Evaluation, rows: LeafMap, over: RowWeights, *, spec: PpoSpec) -> PpoLoss:
    """Calculate the terms of the loss of PPO on rows of episodes.

    Args:
        evaluation: scores of the recorded actions, [T, B].
        rows: float32 leaves [T, B]: advantage, target (return - offset); log_prob [T, B, 8].
        over: rows that count, [T, B].
        spec: `clip`, `ratio`, and `entropy_coef_head`, the factors of the bonus per head.

    Source: Schulman et al. 2017, eq. 7 and 9.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> ones, heads = torch.ones(1, 2), torch.zeros(1, 2, 8)
        >>> scores = mg.policy.policy.Evaluation(
        ...     heads, 0 * ones, 0 * ones, heads, heads, contribution=None
        ... )
        >>> rows = {"log_prob": heads, "advantage": 2 * ones, "target": ones}
        >>> rows |= {"free": ones, "known": ones, "contribution_valid": heads[..., :2]}
        >>> relevant = heads.bool()
        >>> relevant[..., 0] = True  # only the op is relevant; the new log-probs equal the old ones
        >>> over = mg.ppo.row_weights(rows, relevant)
        >>> loss = mg.ppo.ppo_loss(scores, rows, over, spec=mg.PpoSpec())
        >>> loss.weigh(mg.ppo.Coefficients(lr=0.0, entropy=0.0, value=0.5))
        tensor(-1.7500)
    """
    heads, joint = log_ratios(evaluation.log_prob, rows["log_prob"])
    advantage = rows["advantage"]
    if spec.ratio == "head":
        surrogate = clipped_surrogate(heads.exp(), advantage.unsqueeze(-1), spec.clip)
        gain = masked_mean_by_head(surrogate, over.heads).sum()
    else:
        gain = masked_mean(clipped_surrogate(joint.exp(), advantage, spec.clip), over.free)
    error = 0.5 * (evaluation.value - rows["target"]).square()
    diversity = evaluation.diversity
    factors = constant_table(spec.entropy_coef_head, diversity.dtype, diversity.device)
    bonus = masked_mean(diversity @ factors, over.free)
    return PpoLoss(policy=-gain, value=masked_mean(error, over.known), bonus=bonus)


def log_ratios(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Log-ratio of each head and of the complete action, clamped to +-20.  [..., 8] -> [..., 8],
    [...].
    """
    heads = new - old
    return heads.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO), heads.sum(-1).clamp(
        -_MAX_LOG_RATIO, _MAX_LOG_RATIO
    )


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The pessimistic one of the plain and the clipped gain.  Shapes broadcast."""
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
