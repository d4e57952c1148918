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

EPS = 1e-5
ROWS = -2  # axis of the networks


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Parts one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def innermost(images: Tensor) -> Tensor:
    """Images as layers take them.  images [B, C, H, W], seen by all rows, or [E, B, C, H, W] -> [B, H, W, 1 or E, C]."""
    return images.unsqueeze(0).permute(1, 3, 4, 0, 2) if images.dim() == 4 else images.permute(1, 3, 4, 0, 2)


def _images(x: Tensor) -> Tensor:
    """The same memory as torch names its axes.  [B, H, W, R, C] -> [B, R * C, H, W]."""
    return x.flatten(3).permute(0, 3, 1, 2)


def _activations(images: Tensor, rows: int) -> Tensor:
    """The inverse of `_images`."""
    return images.permute(0, 2, 3, 1).contiguous().unflatten(3, (rows, -1))


def stacked_conv(x: Tensor, weight: Tensor, *, form: torch.memory_format = torch.channels_last) -> Tensor:
    """Convolution that keeps height and width.

    Shapes: x [B, H, W, R, I], or [B, H, W, 1, I] seen by all rows; weight [R, O, I, k, k] -> [B, H, W, R, O].  With as
    many inputs as outputs and a weight [R, O, 1, k, k] every channel is filtered alone.
    `form`: layout in which it is computed.
    """
    rows, kernel, images = weight.shape[0], weight.shape[-1], _images(x).contiguous(memory_format=form)
    flat = weight.flatten(0, 1).contiguous()
    found = F.conv2d(images, flat, padding=kernel // 2, groups=images.shape[1] // flat.shape[1])
    return _activations(found, rows)


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2.  x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C]."""
    return _activations(F.max_pool2d(_images(x), 2), x.shape[ROWS])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, B, I], weight [R, O, I], bias [R, O] -> [R, B, O]."""
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, turned)


def mean_hw(x: Tensor) -> Tensor:
    """Mean over height and width.  x [B, H, W, R, C] -> [R, B, C]."""
    return x.mean((1, 2)).transpose(0, 1)


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalisation with the statistics of this batch alone.  x [B, H, W, R, C]; gain, bias [R, C]."""
    found = F.batch_norm(_images(x), None, None, gain.flatten(), bias.flatten(), training=True, eps=EPS)
    return _activations(found, bias.shape[0])


class _Norm(torch.autograd.Function):
    """Group normalisation, then a ReLU: passes over the activation are what it costs, so they are few."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor | None, bias: Tensor, kept: Tensor | None, knobs: tuple) -> tuple[Tensor, ...]:
        groups, share, relu = knobs  # share: a number, or [R, G]
        mean = _pooled(x.sum((1, 2)), groups) * share
        centred = x - _spread(mean, x, kept)
        inverse = torch.rsqrt(_pooled(centred.square().sum((1, 2)), groups) * share + EPS)
        slope = _spread(inverse, x, gain)
        out = torch.addcmul(bias, centred, slope)
        return out.clamp_min_(0.0) if relu else out, centred, inverse, slope

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, gain, _, kept, (ctx.groups, share, ctx.relu) = inputs
        out, *own = output
        ctx.mark_non_differentiable(*own)
        ctx.set_materialize_grads(False)
        ctx.share = None if isinstance(share, Tensor) else share
        ctx.save_for_backward(out if ctx.relu else None, *own, gain, kept, share if ctx.share is None else None)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        above, centred, inverse, slope, gain, kept, share = ctx.saved_tensors
        share = ctx.share if share is None else share
        push = grad.contiguous() if above is None else torch.ops.aten.threshold_backward(grad.contiguous(), above, 0.0)
        level, tilt = push.sum((1, 2)), (push * centred).sum((1, 2))  # [B, R, C]
        own = None if gain is None else (_grouped(tilt, ctx.groups) * inverse.unsqueeze(-1)).flatten(-2).sum(0)
        if not ctx.needs_input_grad[0]:
            return None, own, level.sum(0), None, None
        sums = torch.stack((level, tilt))
        flat, lean = _pooled(sums if gain is None else sums * gain, ctx.groups) * (inverse * share)  # [B, R, G]
        out = torch.addcmul(_spread(-flat, push, kept), push, slope)
        out.addcmul_(centred, _spread(-lean * inverse.square(), push, kept))
        return out, own, level.sum(0), None, None


def _grouped(values: Tensor, groups: int) -> Tensor:
    """The channels of every group in an axis of their own.  [..., C] -> [..., G, C / G]."""
    return values.unflatten(-1, (groups, -1))


def _pooled(values: Tensor, groups: int) -> Tensor:
    """Sums over the channels of every group.  [..., C] -> [..., G]."""
    return _grouped(values, groups).sum(-1)


def _spread(values: Tensor, like: Tensor, channels: Tensor | None) -> Tensor:
    """Values of every group, times values of its channels if there are any, for all pixels.

    Shapes: values [B, R, G]; like [B, H, W, R, C]; channels [R, C] -> [B, 1, 1, R, C].
    """
    groups, width = values.shape[-1], like.shape[-1]
    if channels is None:
        wide = values.unsqueeze(-1).expand(*values.shape, width // groups)
    else:
        wide = values.unsqueeze(-1) * _grouped(channels, groups)
    return wide.flatten(-2)[:, None, None]


def group_norm(x: Tensor, gain: Tensor | None, bias: Tensor, *, groups: int, relu: bool = False) -> Tensor:
    """Group normalisation of every row.  x [B, H, W, R, C]; gain (None = 1), bias [R, C]; groups per row."""
    share = groups / math.prod((*x.shape[1:3], x.shape[-1]))
    return _Norm.apply(x, gain, bias, None, (groups, share, relu))[0]


def kept_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, kept: Tensor, share: Tensor, relu: bool = False
) -> Tensor:
    """Group normalisation whose statistics run over the kept channels only; the others come out as 0.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; gain, bias [R, C], 0 there; kept [R, C], 1 or 0;
    share [R, G] = 1 / (kept elements of a sample and group), 0 where there are none.
    """
    return _Norm.apply(x, gain, bias, kept, (share.shape[-1], share, relu))[0]
