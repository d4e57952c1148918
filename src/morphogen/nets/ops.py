"""Layers over R networks at once, one set of parameters each.

Activations are `[B, H, W, R, C]`, channels innermost in memory and the networks next to them: convolutions are grouped,
parameters `[R, C]` broadcast, and selecting rows moves all channels of a pixel at once.  Parameters lead with `R`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen import kernels
from morphogen.kernels import Form
from morphogen.kernels.native import AutogradFunction, apply_function, to_activations, to_images
from morphogen.kernels.norm import NormFactors
from morphogen.kernels.perceptron import PerceptronParams

ROWS = -2  # axis of the networks
_PARTS = 1 + len(NormFactors._fields)  # tensors of a normalised block
_LAYOUTS = {Form.USUAL: torch.contiguous_format, Form.INNERMOST: torch.channels_last}  # of convolutions by torch


def concat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def images_innermost(x: Tensor) -> Tensor:
    """Return images as activations.  x [E, B, C, H, W], or [B, C, H, W] shared by all rows -> [B, H, W, E or 1, C]."""
    return kernels.channels_innermost(x if x.dim() == 5 else x.unsqueeze(0))


def stacked_conv(x: Tensor, weight: Tensor, *, form: Form | None = None) -> Tensor:
    """Convolve and keep height and width.

    Shapes: x [B, H, W, R, I], or [B, H, W, 1, I] shared by all rows; weight [R, O, I, k, k] -> [B, H, W, R, O].  With
    as many inputs as outputs and a weight [R, O, 1, k, k] the convolution is depthwise.
    `form`: implementation; None = the fastest one.
    """
    form = form or kernels.form_of(x, weight)
    if form is Form.KERNEL:
        return _Conv.apply(x, weight)
    rows, kernel, inputs = weight.shape[0], weight.shape[-1], to_images(x).contiguous(memory_format=_LAYOUTS[form])
    flat = weight.flatten(0, 1).contiguous()
    out = F.conv2d(inputs, flat, padding=kernel // 2, groups=inputs.shape[1] // flat.shape[1])
    return to_activations(out, rows)


class _Conv(AutogradFunction):
    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return kernels.conv(x, weight)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        needs_input_grad = ctx.needs_input_grad[0]
        x_grad, weight_grad = kernels.conv_backward(grad, *ctx.saved_tensors, needs_input_grad=needs_input_grad)
        return x_grad if needs_input_grad else None, weight_grad


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer.  x [R, B, I], weight [R, O, I], bias [R, O] -> [R, B, O]."""
    transposed = weight.transpose(1, 2)
    return torch.bmm(x, transposed) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, transposed)


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer on features, a layer per row.

    Shapes: x [B, ..., R, I], or [B, ..., 1, I] shared by all rows; weight [R, O, I], bias [R, O] -> [B, ..., R, O].
    """
    rows, outputs, inputs = weight.shape
    flat = x.expand(*x.shape[:-2], rows, inputs).reshape(-1, rows, inputs).transpose(0, 1)
    return linear(flat, weight, bias).transpose(0, 1).reshape(*x.shape[:-2], rows, outputs)


def perceptron(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a SiLU between them; x gets no gradient.

    Shapes: x [B, R, I]; w1 [R, H, I], b1 [R, H] (None = 0), w2 [R, O, H], b2 [R, O] -> [B, R, O].
    """
    return apply_function(_Perceptron, x.detach(), w1, b1, w2, b2)[0]


class _Perceptron(AutogradFunction):
    @staticmethod
    def forward(x: Tensor, *layers: Tensor | None) -> tuple[Tensor, Tensor]:
        return kernels.perceptron(x, PerceptronParams(*layers))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x, *layers, z = ctx.saved_tensors
        grads = kernels.perceptron_backward(grad, x, z, PerceptronParams(*layers))
        return None, *(part if needed else None for part, needed in zip(grads, ctx.needs_input_grad[1:], strict=True))


def spatial_mean(x: Tensor) -> Tensor:
    """Mean over height and width.  x [B, H, W, R, C] -> [R, B, C]."""
    return x.mean((1, 2)).transpose(0, 1)


class NormBlock(NamedTuple):
    """Activations to normalise, with gain, bias, lower limit and scale."""

    x: Tensor  # [B, H, W, n, C]
    gain: Tensor | None  # [n, C]; None = 1
    bias: Tensor  # [n, C]
    scale: Tensor | None = None  # [n, C], of the result; None = 1
    floor: float = -math.inf  # lower limit before the scale; 0 is a ReLU


def group_norm(blocks: Sequence[NormBlock], *, groups: int) -> tuple[Tensor, ...]:
    """Group normalisation of every row of some blocks.  groups: per row -> [B, H, W, n, C] each."""
    parts = [
        part for block in blocks for part in (block.x, *NormFactors(block.gain, block.bias, None, None, block.scale))
    ]
    return _group_norm_blocks(tuple(block.floor for block in blocks), groups, *parts)


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalise with the statistics of this batch.  x [B, H, W, R, C]; gain, bias [R, C]."""
    out = F.batch_norm(to_images(x), None, None, gain.flatten(), bias.flatten(), training=True, eps=kernels.EPS)
    return to_activations(out, bias.shape[0])


def masked_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, channel_mask: Tensor, inverse_count: Tensor, floor: float = -math.inf
) -> Tensor:
    """Group normalisation with statistics over unmasked channels only; masked channels of the result are 0.

    Shapes: x [B, H, W, R, C], gain and bias [R, C], all 0 in masked channels; channel_mask [R, C], 1 or 0;
    inverse_count [R, G] = 1 / (unmasked elements of a sample and group), 0 for 0.  `floor` 0 is a ReLU.
    """
    factors = NormFactors(gain, bias, channel_mask, inverse_count, None)
    return _group_norm_blocks((floor,), inverse_count.shape[1], x, *factors)[0]


def _group_norm_blocks(floors: tuple[float, ...], groups: int, *parts: Tensor | None) -> tuple[Tensor, ...]:
    return apply_function(_GroupNorm, floors, groups, *parts)[: len(floors)]


class _GroupNorm(AutogradFunction):
    """Group normalisation, lower limit and scale of several blocks: activations and `NormFactors` of each."""

    @staticmethod
    def forward(floors: tuple[float, ...], groups: int, *parts: Tensor | None) -> tuple[Tensor, ...]:
        blocks = zip(*_split_parts(parts), floors, strict=True)
        out, stats = zip(*(kernels.norm(x, by, groups, floor=floor) for x, by, floor in blocks), strict=True)
        return *out, *stats

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.floors, _, *parts = inputs
        stats = output[len(ctx.floors) :]
        ctx.mark_non_differentiable(*stats)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*stats, *parts)

    @staticmethod
    def backward(ctx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        floors, needed, results = ctx.floors, ctx.needs_input_grad[2:], []
        saved_stats, parts = ctx.saved_tensors[: len(floors)], ctx.saved_tensors[len(floors) :]
        blocks = zip(grads[: len(floors)], *_split_parts(parts), saved_stats, floors, needed[::_PARTS], strict=True)
        for grad, x, by, stats, floor, needs_input_grad in blocks:
            grad = torch.zeros_like(x) if grad is None else grad.contiguous()
            x_grad, sums = kernels.norm_backward(grad, x, by, stats, floor=floor, needs_input_grad=needs_input_grad)
            gain, bias, scale = sums.unbind()
            results += [x_grad, gain, bias, None, None, scale]
        return None, None, *(part if flag else None for part, flag in zip(results, needed, strict=True))


def _split_parts(parts: Sequence[Any]) -> tuple[list[Tensor], list[NormFactors]]:
    """Split the arguments of `_GroupNorm` into activations and factors of every block."""
    starts = range(0, len(parts), _PARTS)
    return [parts[n] for n in starts], [NormFactors(*parts[n + 1 : n + _PARTS]) for n in starts]


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2.  x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C]."""
    return _Pool.apply(x)[0]


class _Pool(AutogradFunction):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return kernels.pool(x)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.size = inputs[0].shape[1:3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: None) -> Tensor:
        return kernels.pool_backward(grad.contiguous(), *ctx.saved_tensors, ctx.size)
