"""Layers over R networks at once, one set of parameters each.

Activations are `[B, H, W, R, C]`, channels innermost in memory and the networks next to them: convolutions are grouped,
parameters `[R, C]` broadcast as they are, and choosing rows moves all channels of a pixel at once.  Parameters lead
with `R`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen import kernels
from morphogen.kernels import Form
from morphogen.kernels.native import AutogradFunction, to_activations, to_images
from morphogen.kernels.norm import NormFactors
from morphogen.kernels.perceptron import PerceptronParams

ROWS = -2  # axis of the networks
_PARTS = 1 + len(NormFactors._fields)  # of a block that is normalised
_LAYOUTS = {Form.USUAL: torch.contiguous_format, Form.INNERMOST: torch.channels_last}  # of convolutions by torch


def concat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Parts one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _apply_function(function: type[AutogradFunction], *given: Any) -> tuple[Tensor, ...]:
    """The results; the compiler can't trace a function of so many tensors where none asks for a gradient."""
    return (function.apply if torch.is_grad_enabled() else function.forward)(*given)


def stacked_conv(x: Tensor, weight: Tensor, *, form: Form | None = None) -> Tensor:
    """Convolution that keeps height and width.

    Shapes: x [B, H, W, R, I], or [B, H, W, 1, I] seen by all rows; weight [R, O, I, k, k] -> [B, H, W, R, O].  With as
    many inputs as outputs and a weight [R, O, 1, k, k] every channel is filtered alone.
    `form`: how it is computed; None = the fastest one that serves.
    """
    form = form or kernels.form_of(x, weight)
    if form is Form.KERNEL:
        return _Conv.apply(x, weight)
    rows, kernel, inputs = weight.shape[0], weight.shape[-1], to_images(x).contiguous(memory_format=_LAYOUTS[form])
    flat = weight.flatten(0, 1).contiguous()
    found = F.conv2d(inputs, flat, padding=kernel // 2, groups=inputs.shape[1] // flat.shape[1])
    return to_activations(found, rows)


class _Conv(AutogradFunction):
    """A convolution of every network by a kernel of our own."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return kernels.conv(x, weight)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        push, slopes = kernels.conv_backward(grad, *ctx.saved_tensors, needs_input_grad=ctx.needs_input_grad[0])
        return push if ctx.needs_input_grad[0] else None, slopes


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, B, I], weight [R, O, I], bias [R, O] -> [R, B, O]."""
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, turned)


def perceptron(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a SiLU between them, which send no gradient back.

    Shapes: x [B, R, I]; w1 [R, H, I], b1 [R, H] (None = 0), w2 [R, O, H], b2 [R, O] -> [B, R, O].
    """
    return _apply_function(_Perceptron, x.detach(), w1, b1, w2, b2)[0]


class _Perceptron(AutogradFunction):
    """Two linear layers with a SiLU between them."""

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
        found, asked = kernels.perceptron_backward(grad, x, z, PerceptronParams(*layers)), ctx.needs_input_grad
        return None, *(one if wanted else None for one, wanted in zip(found, asked[1:], strict=True))


def spatial_mean(x: Tensor) -> Tensor:
    """Mean over height and width.  x [B, H, W, R, C] -> [R, B, C]."""
    return x.mean((1, 2)).transpose(0, 1)


class NormBlock(NamedTuple):
    """Activations that are to be normalised, with what is done to them then."""

    x: Tensor  # [B, H, W, n, C]
    gain: Tensor | None  # [n, C]; None = 1
    bias: Tensor  # [n, C]
    scale: Tensor | None = None  # [n, C], of what comes out; None = 1
    floor: float = -math.inf  # lower limit before it is scaled; 0 is a ReLU


def group_norm(blocks: Sequence[NormBlock], *, groups: int) -> tuple[Tensor, ...]:
    """Group normalisation of every row of some blocks.  groups: per row -> [B, H, W, n, C] each."""
    factors = [part for one in blocks for part in (one.x, *NormFactors(one.gain, one.bias, None, None, one.scale))]
    return _group_norm_blocks(tuple(one.floor for one in blocks), groups, *factors)


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalisation with the statistics of this batch alone.  x [B, H, W, R, C]; gain, bias [R, C]."""
    found = F.batch_norm(to_images(x), None, None, gain.flatten(), bias.flatten(), training=True, eps=kernels.EPS)
    return to_activations(found, bias.shape[0])


def masked_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, channel_mask: Tensor, inverse_count: Tensor, floor: float = -math.inf
) -> Tensor:
    """Group normalisation whose statistics run over the kept channels only; the others come out as 0.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; gain, bias [R, C], 0 there; kept [R, C], 1 or 0;
    share [R, G] = 1 / (kept elements of a sample and group), 0 where there are none.  `floor` 0 is a ReLU.
    """
    return _group_norm_blocks(
        (floor,), inverse_count.shape[1], x, *NormFactors(gain, bias, channel_mask, inverse_count, None)
    )[0]


def _group_norm_blocks(floors: tuple[float, ...], groups: int, *parts: Tensor | None) -> tuple[Tensor, ...]:
    return _apply_function(_GroupNorm, floors, groups, *parts)[: len(floors)]


class _GroupNorm(AutogradFunction):
    """Group normalisation over the kept channels, a lower limit and a scale, of some blocks: x and factors of each."""

    @staticmethod
    def forward(floors: tuple[float, ...], groups: int, *parts: Tensor | None) -> tuple[Tensor, ...]:
        every = zip(*_split_parts(parts), floors, strict=True)
        out, found = zip(*(kernels.norm(x, by, groups, floor=floor) for x, by, floor in every), strict=True)
        return *out, *found

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.floors, _, *parts = inputs
        found = output[len(ctx.floors) :]
        ctx.mark_non_differentiable(*found)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*found, *parts)

    @staticmethod
    def backward(ctx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        floors, asked, own = ctx.floors, ctx.needs_input_grad[2:], []
        found, parts = ctx.saved_tensors[: len(floors)], ctx.saved_tensors[len(floors) :]
        every = zip(grads[: len(floors)], *_split_parts(parts), found, floors, asked[::_PARTS], strict=True)
        for grad, x, by, groups, floor, wanted in every:
            came = torch.zeros_like(x) if grad is None else grad.contiguous()
            push, sums = kernels.norm_backward(came, x, by, groups, floor=floor, needs_input_grad=wanted)
            gain, bias, scale = sums.unbind()
            own += [push, gain, bias, None, None, scale]
        return None, None, *(one if wanted else None for one, wanted in zip(own, asked, strict=True))


def _split_parts(parts: Sequence[Any]) -> tuple[list[Tensor], list[NormFactors]]:
    """Activations and factors of every block."""
    starts = range(0, len(parts), _PARTS)
    return [parts[n] for n in starts], [NormFactors(*parts[n + 1 : n + _PARTS]) for n in starts]
