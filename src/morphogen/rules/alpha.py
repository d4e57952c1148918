"""Alpha, the blended share of a seed: curves and the controller that moves along them."""

import math

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.state.tree_ops import masked_update
from morphogen.vocab.stage import AlphaMode, Curve


def curve(t: Tensor, shape: Tensor, steepness: Tensor) -> Tensor:
    """Progress along a ramp, monotone from c(0) = 0 over c(1/2) = 1/2 to c(1) = 1.

    Shapes: t in [0, 1], shape int64 (`Curve`), steepness >= 0.1, all equal -> as t.
    The sigmoid is the logistic function scaled to the unit square, as a tanh: no overflow for any steepness.
    """
    cosine = (1 - torch.cos(math.pi * t)) / 2
    quarter = steepness / 4
    sigmoid = 0.5 + torch.tanh(quarter * (2 * t - 1)) / (2 * torch.tanh(quarter))
    smooth = torch.where(shape == int(Curve.COSINE), cosine, sigmoid)
    return torch.where((shape == int(Curve.COSINE)) | (shape == int(Curve.SIGMOID)), smooth, t)


def retarget(
    slots: Slots, where: Tensor, target: Tensor | float, *, steps: Tensor, shape: Tensor, steepness: Tensor | float
) -> Slots:
    """Start a ramp from the present alpha; a slot whose alpha is moving keeps its ramp.

    Shapes: where bool [E, S]; target, steps (ticks), shape (`Curve`) and steepness broadcast against it.
    """
    start = slots.alpha
    target = torch.as_tensor(target, dtype=start.dtype, device=start.device).expand_as(start)
    ticks = torch.where(target == start, 0, steps)
    moving = torch.where(target > start, int(AlphaMode.UP), int(AlphaMode.DOWN))
    return masked_update(
        slots,
        where & (slots.alpha_mode == int(AlphaMode.HOLD)),
        alpha=torch.where(ticks == 0, target, start),
        alpha_start=start,
        alpha_target=target,
        alpha_mode=torch.where(ticks == 0, int(AlphaMode.HOLD), moving),
        alpha_curve=shape,
        alpha_steepness=steepness,
        alpha_steps=ticks,
        alpha_done=0,
    )


def advance_ramp(slots: Slots, where: Tensor) -> Slots:
    """Move alpha one tick along its ramp; the last tick lands on the target exactly.  where bool [E, S]."""
    start, target = slots.alpha_start, slots.alpha_target
    done = slots.alpha_done + 1
    last = done >= slots.alpha_steps
    progress = done.to(start.dtype) / slots.alpha_steps.clamp(min=1)
    along = start + (target - start) * curve(progress, slots.alpha_curve, slots.alpha_steepness)
    along = torch.minimum(torch.maximum(along, torch.minimum(start, target)), torch.maximum(start, target))
    return masked_update(
        slots,
        where & (slots.alpha_mode != int(AlphaMode.HOLD)),
        alpha=torch.where(last, target, along),
        alpha_mode=torch.where(last, int(AlphaMode.HOLD), slots.alpha_mode),
        alpha_done=done,
    )
