"""How a seed's delta enters the host: what is added to the features h, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns as if it added its
full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds; sizes after them are free.
"""

import torch
from torch import Tensor


class _Silence(torch.autograd.Function):
    """0 in value where a row is silent, whatever the input holds; the gradient passes unchanged."""

    @staticmethod
    def forward(contribution: Tensor, silent: Tensor) -> Tensor:
        return torch.where(silent, 0.0, contribution)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        """Nothing to keep: the gradient needs neither input nor output."""

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def added(delta: Tensor, alpha: Tensor, training: Tensor, gate: Tensor | None = None) -> Tensor:
    """Contribution under ADD, or GATE where a gate is given.

    Shapes: delta [B, R, ...]; alpha [R]; training bool [R]; gate [B, R] (1 in rows without a gate) -> like delta.
    Promise: exactly 0 where training or alpha is 0, for any delta; dy/dd is 1 in training, else alpha times gate.
    """
    factor = torch.where(training, 1.0, alpha.to(delta.dtype))
    factor = factor if gate is None else factor * gate
    return _Silence.apply(delta, _over(_silent(alpha, training), delta)) * _over(factor, delta)


def multiplied(delta: Tensor, features: Tensor, alpha: Tensor, training: Tensor) -> Tensor:
    """Contribution under MULTIPLY; in training, and at alpha 0, the features are a constant.

    Shapes: delta, features [B, R, ...]; alpha [R]; training bool [R] -> like delta.
    """
    base = torch.where(_over(_silent(alpha, training), delta), features.detach(), features)
    return added(base * torch.tanh(delta), alpha, training)


def _silent(alpha: Tensor, training: Tensor) -> Tensor:
    return training | (alpha == 0)


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, ready to broadcast.  [R] or [B, R] -> [..., R, 1, ...]."""
    return rows.reshape(*rows.shape, *(1,) * (like.dim() - 2))
