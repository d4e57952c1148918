"""Optimiser steps as functions of stacked rows, equal to `torch.optim` row by row."""

import torch
from torch import Tensor

from morphogen.state.tree_ops import expand_mask

ParamTree = dict[str, Tensor]


def clip_by_norm(grads: Tensor, norm: Tensor, *, max_norm: float | None) -> Tensor:
    """Gradient rows scaled to at most `max_norm`; None leaves them.  grads [R, P], norm [R], L2 -> [R, P]."""
    return grads if max_norm is None else grads * expand_mask(clip_factor(norm, max_norm=max_norm), grads)


def clip_factor(norm: Tensor, *, max_norm: float | None) -> Tensor:
    """What clips a gradient of that norm when it is multiplied by it, in (0, 1].  norm [...] -> [...]."""
    return torch.ones_like(norm) if max_norm is None else (max_norm / (norm + 1e-6)).clamp(max=1.0)


def sgd(
    params: Tensor,
    velocity: Tensor,
    grads: Tensor,
    live: Tensor,
    *,
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """One step of SGD with momentum for the live rows; the others stay bit for bit.

    Shapes: params, velocity, grads [R, ...]; live bool [R] -> params, velocity.
    Equals `torch.optim.SGD` started from velocity 0.
    """
    push = grads.add(params, alpha=weight_decay) if weight_decay else grads
    moved = torch.add(push, velocity, alpha=momentum)
    where = expand_mask(live, params)
    return torch.where(where, params.sub(moved, alpha=lr), params), torch.where(where, moved, velocity)


def adamw(
    params: ParamTree,
    grads: ParamTree,
    m: ParamTree,
    v: ParamTree,
    step: Tensor,
    *,
    lr: float | Tensor,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float | dict[str, float] = 0.0,
) -> tuple[ParamTree, ParamTree, ParamTree]:
    """One step of Adam with decoupled weight decay -> (params, m, v).

    `step`: number of this update, 1 for the first; 0-d, or [E] where rows of the leading axis have their own count.
    `weight_decay`: one number, or one per leaf.  Equals `torch.optim.AdamW` (with decay 0: `torch.optim.Adam`).
    """
    decay = weight_decay if isinstance(weight_decay, dict) else dict.fromkeys(params, weight_decay)
    new_m = {key: torch.lerp(m[key], grad, 1.0 - betas[0]) for key, grad in grads.items()}
    new_v = {key: torch.addcmul(v[key] * betas[1], grad, grad, value=1.0 - betas[1]) for key, grad in grads.items()}
    moved = {}
    for key, value in params.items():
        count = expand_mask(step.to(value.dtype), value)
        first, second = 1.0 - betas[0] ** count, 1.0 - betas[1] ** count
        scale = new_v[key].sqrt() / second.sqrt() + eps
        moved[key] = value * (1.0 - lr * decay[key]) - lr * (new_m[key] / first) / scale
    return moved, new_m, new_v
