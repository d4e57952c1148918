"""Max pooling 2x2."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of
from morphogen.kernels.native import Call, operator


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2.

    Shapes: x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.hosts.max_pool2d(torch.arange(16.0).view(1, 4, 4, 1, 1)).flatten().tolist()
        [5.0, 7.0, 13.0, 15.0]
    """
    if form_of("pool", x) is Form.KERNEL:
        return apply_function(_Pool, x)[0]
    return _torch_pool(x)


class _Pool(torch.autograd.Function):
    """The largest of every four pixels, and its position."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return _pool(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.size = inputs[0].shape[1:3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (argmax,) = ctx.saved_tensors
        return _pool_backward(grads[0].contiguous(), argmax, ctx.size)


def _torch_pool(x: Tensor) -> Tensor:
    """Take the largest of windows; unlike `F.max_pool2d`, its gradient adds nothing up, for which a
    GPU has no order.
    """
    height, width = (side // 2 * 2 for side in x.shape[1:3])
    pairs = torch.unflatten(x[:, :height, :width], 2, (-1, 2))
    windows = torch.unflatten(pairs, 1, (-1, 2)).movedim(2, 3).flatten(3, 4)
    return windows.max(3).values  # [B, H // 2, W // 2, R, C]


@operator("pool(Tensor x) -> (Tensor, Tensor)")
def _pool(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    argmax = torch.empty_like(out, dtype=torch.uint8)
    call("pool", x.contiguous(), out, argmax, samples, height, width, math.prod(rest))
    return out, argmax


@operator("pool_backward(Tensor grad, Tensor argmax, SymInt[] size) -> Tensor")
def _pool_backward(call: Call, grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    samples, _, _, *rest = grad.shape
    x_grad = grad.new_empty(samples, *size, *rest)
    if any(side % 2 for side in size):
        x_grad.zero_()  # the kernel skips the last line or column of odd maps
    call("pool_backward", x_grad, grad.contiguous(), argmax, samples, *size, math.prod(rest))
    return x_grad
