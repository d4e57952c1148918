"""Sums over the middle axis, and functions whose value or gradient is one.

Torch adds the columns of a reduction in an order that depends on their number; then the results of
a network would depend on the networks that are stacked with it.
"""

import math
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of
from morphogen.kernels.native import Call, Function, operator


def column_sums(x: Tensor) -> Tensor:
    """Sum over the second axis; no sum of a kernel depends on other columns.  x [A, N, ..., C] ->
    [A, ..., C].
    """
    return _sums(x) if form_of("sums", x) is Form.KERNEL else x.sum(1)


@operator("sums(Tensor x) -> Tensor")
def _sums(call: Call, x: Tensor) -> Tensor:
    out = x.new_empty(x.shape[0], *x.shape[2:])
    call("sums", *x.shape[:2], math.prod(x.shape[2:]), x.contiguous(), out)
    return out


def spatial_mean(x: Tensor) -> Tensor:
    """Mean over height and width, or whatever lies between the samples and the networks.

    Shapes: x [B, ..., R, C] -> [R, B, C].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> x = torch.arange(4.0).view(1, 2, 2, 1, 1)  # one image of 2 x 2 pixels
        >>> mg.hosts.spatial_mean(x).tolist()
        [[[1.5]]]
    """
    return apply_function(_SpatialMean, x).transpose(0, 1)


class _SpatialMean(torch.autograd.Function):
    """Mean over the pixels."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        pixels = x.reshape(x.shape[0], -1, *x.shape[-2:])
        if form_of("sums", x) is Form.KERNEL:
            return _sums(pixels) / pixels.shape[1]
        return pixels.mean(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        grad = grads[0]
        mean = grad / ctx.shape[1:-2].numel()
        ones = (1 for _ in ctx.shape[1:-2])
        return mean.reshape(grad.shape[0], *ones, *grad.shape[1:]).expand(ctx.shape)


def scale_channels(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply all pixels of a channel by a factor.  x [B, H, W, R, C]; factor [B, R, C] or [R, C]
    -> like x.
    """
    return apply_function(_ScaleChannels, x, factor)


class _ScaleChannels(Function):
    """Product of pixels and factors of their channels."""

    @staticmethod
    def forward(x: Tensor, factor: Tensor) -> Tensor:
        return x * factor.unsqueeze(-3).unsqueeze(-3)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor]:
        grad = grads[0]
        x, factor = ctx.saved_tensors
        sums = column_sums((grad * x).flatten(1, 2))
        x_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = grad * factor.unsqueeze(-3).unsqueeze(-3)
        shared = factor.dim() < sums.dim()
        return x_grad, column_sums(sums.unsqueeze(0))[0] if shared else sums
