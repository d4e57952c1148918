"""Layers over R networks at once, one set of parameters each.

Activations are `[B, H, W, R, C]`, channels innermost in memory and the networks next to them: convolutions are grouped,
parameters `[R, C]` broadcast as they are, and choosing rows moves all channels of a pixel at once.  Parameters lead
with `R`.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets.innermost import activations, images

EPS = 1e-5
ROWS = -2  # axis of the networks
FORM = torch.channels_last  # in which convolutions are computed; `morphogen bench --explain` measures the other one too


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Parts one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def stacked_conv(x: Tensor, weight: Tensor, *, form: torch.memory_format = FORM) -> Tensor:
    """Convolution that keeps height and width.

    Shapes: x [B, H, W, R, I], or [B, H, W, 1, I] seen by all rows; weight [R, O, I, k, k] -> [B, H, W, R, O].  With as
    many inputs as outputs and a weight [R, O, 1, k, k] every channel is filtered alone.
    `form`: layout in which it is computed.
    """
    rows, kernel, inputs = weight.shape[0], weight.shape[-1], images(x).contiguous(memory_format=form)
    flat = weight.flatten(0, 1).contiguous()
    found = F.conv2d(inputs, flat, padding=kernel // 2, groups=inputs.shape[1] // flat.shape[1])
    return activations(found, rows)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, B, I], weight [R, O, I], bias [R, O] -> [R, B, O]."""
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, turned)


def mean_hw(x: Tensor) -> Tensor:
    """Mean over height and width.  x [B, H, W, R, C] -> [R, B, C]."""
    return x.mean((1, 2)).transpose(0, 1)


def group_norm(x: Tensor, gain: Tensor | None, bias: Tensor, *, groups: int) -> Tensor:
    """Group normalisation of every row.  x [B, H, W, R, C]; gain (None = 1), bias [R, C]; groups per row."""
    rows, weight = bias.shape[0], torch.ones_like(bias) if gain is None else gain
    if not x.requires_grad:  # the CPU kernel for innermost channels crashes in a backward pass without that gradient
        return torch.addcmul(bias, activations(F.group_norm(images(x), groups * rows, eps=EPS), rows), weight)
    return activations(F.group_norm(images(x), groups * rows, weight.flatten(), bias.flatten(), EPS), rows)


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalisation with the statistics of this batch alone.  x [B, H, W, R, C]; gain, bias [R, C]."""
    found = F.batch_norm(images(x), None, None, gain.flatten(), bias.flatten(), training=True, eps=EPS)
    return activations(found, bias.shape[0])


class _KeptNorm(torch.autograd.Function):
    """Group normalisation over the kept channels: passes over the activation are what it costs, so they are few.

    Sums of a group are `[B, 1, 1, R, G, 1]`, so that they meet channels by group as they are.
    """

    @staticmethod
    def forward(x: Tensor, gain: Tensor, bias: Tensor, kept: Tensor, rest: tuple[Tensor, float]) -> tuple[Tensor, ...]:
        share, floor = rest
        mean = _pooled(x.sum((1, 2), keepdim=True), share)
        centred = x - _spread(mean, kept, share)
        inverse = torch.rsqrt(_pooled(centred.square().sum((1, 2), keepdim=True), share) + EPS)
        slope = _spread(inverse, gain, share)
        return torch.addcmul(bias, centred, slope).clamp_min_(floor), centred, inverse, slope

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, gain, _, kept, (share, floor) = inputs
        ctx.floor = floor
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output, gain, kept, share)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        above, centred, inverse, slope, gain, kept, share = ctx.saved_tensors
        push = torch.ops.aten.threshold_backward(grad.contiguous(), above, ctx.floor)
        level, tilt = push.sum((1, 2), keepdim=True), (push * centred).sum((1, 2), keepdim=True)
        flat, lean = _pooled(torch.stack((level, tilt)) * gain, share) * -inverse
        out = torch.addcmul(_spread(flat, kept, share), push, slope)
        out.addcmul_(centred, _spread(lean * inverse.square(), kept, share))
        return out, _spread(inverse, tilt, share).sum((0, 1, 2)), level.sum((0, 1, 2)), None, None


def _pooled(sums: Tensor, share: Tensor) -> Tensor:
    """Means over kept elements of groups, from sums of channels.  [..., R, C], share [R, G, 1] -> [..., R, G, 1]."""
    return sums.unflatten(-1, (share.shape[1], -1)).sum(-1, keepdim=True) * share


def _spread(values: Tensor, channels: Tensor, share: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [..., R, G, 1], [..., R, C], share [R, G, 1] -> [..., R, C]."""
    return (values * channels.unflatten(-1, (share.shape[1], -1))).flatten(-2)


def kept_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, kept: Tensor, share: Tensor, floor: float = -math.inf
) -> Tensor:
    """Group normalisation whose statistics run over the kept channels only; the others come out as 0.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; gain, bias [R, C], 0 there; kept [R, C], 1 or 0;
    share [R, G] = 1 / (kept elements of a sample and group), 0 where there are none.  `floor` 0 is a ReLU.
    """
    return _KeptNorm.apply(x, gain, bias, kept, (share.unsqueeze(-1), floor))[0]
