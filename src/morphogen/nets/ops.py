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

from morphogen import kernels
from morphogen.kernels.norm import Factors
from morphogen.kernels.perceptron import Layers
from morphogen.nets.innermost import activations, images

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


def perceptron(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a SiLU between them, which send no gradient back.

    Shapes: x [B, R, I]; w1 [R, H, I], b1 [R, H] (None = 0), w2 [R, O, H], b2 [R, O] -> [B, R, O].
    """
    return _Perceptron.apply(x.detach(), w1, b1, w2, b2)[0]


class _Perceptron(torch.autograd.Function):
    """Two linear layers with a SiLU between them."""

    @staticmethod
    def forward(x: Tensor, *layers: Tensor | None) -> tuple[Tensor, Tensor]:
        return kernels.perceptron(x, Layers(*layers))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x, *layers, z = ctx.saved_tensors
        found, asked = kernels.perceptron_backward(grad, x, z, Layers(*layers)), ctx.needs_input_grad
        return None, *(one if wanted else None for one, wanted in zip(found, asked[1:], strict=True))


def mean_hw(x: Tensor) -> Tensor:
    """Mean over height and width.  x [B, H, W, R, C] -> [R, B, C]."""
    return x.mean((1, 2)).transpose(0, 1)


def group_norm(
    x: Tensor,
    gain: Tensor | None,
    bias: Tensor,
    *,
    groups: int,
    floor: float = -math.inf,
    scale: Tensor | None = None,
) -> Tensor:
    """Group normalisation of every row, a lower limit (0 is a ReLU) and a scale.

    Shapes: x [B, H, W, R, C]; gain, scale (None = 1), bias [R, C]; groups per row.
    """
    return _GroupNorm.apply(x, floor, groups, *Factors(gain, bias, None, None, scale))[0]


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalisation with the statistics of this batch alone.  x [B, H, W, R, C]; gain, bias [R, C]."""
    found = F.batch_norm(images(x), None, None, gain.flatten(), bias.flatten(), training=True, eps=kernels.EPS)
    return activations(found, bias.shape[0])


def kept_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, kept: Tensor, share: Tensor, floor: float = -math.inf
) -> Tensor:
    """Group normalisation whose statistics run over the kept channels only; the others come out as 0.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; gain, bias [R, C], 0 there; kept [R, C], 1 or 0;
    share [R, G] = 1 / (kept elements of a sample and group), 0 where there are none.  `floor` 0 is a ReLU.
    """
    return _GroupNorm.apply(x, floor, share.shape[1], *Factors(gain, bias, kept, share, None))[0]


class _GroupNorm(torch.autograd.Function):
    """Group normalisation over the kept channels, a lower limit and a scale."""

    @staticmethod
    def forward(x: Tensor, floor: float, groups: int, *factors: Tensor | None) -> tuple[Tensor, Tensor]:
        return kernels.norm(x, Factors(*factors), groups, floor=floor)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        x, ctx.floor, _, *factors = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *factors, output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        x, *factors, found = ctx.saved_tensors
        asked, by = ctx.needs_input_grad, Factors(*factors)
        push, sums = kernels.norm_backward(grad.contiguous(), x, by, found, floor=ctx.floor, asked=asked[0])
        gain, bias, scale = sums.unbind()
        own = (push, None, None, gain, bias, None, None, scale)
        return tuple(one if wanted else None for one, wanted in zip(own, asked, strict=True))
