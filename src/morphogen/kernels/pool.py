"""Max pooling 2x2."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of
from morphogen.kernels.native import call_kernel, operator


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


def _kernel(results: tuple[Tensor, Tensor], x: Tensor) -> None:
    call_kernel("pool", x.contiguous(), *results, *x.shape[:3], x.shape[3:].numel())


def _kernel_backward(x_grad: Tensor, grad: Tensor, argmax: Tensor, size: Sequence[int]) -> None:
    if any(side % 2 for side in size):
        x_grad.zero_()  # the kernel skips the last line or column of odd maps
    sizes = *x_grad.shape[:3], x_grad.shape[3:].numel()
    call_kernel("pool_backward", x_grad, grad.contiguous(), argmax, *sizes)


def _shapes(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    return out, torch.empty_like(out, dtype=torch.uint8)


def _shapes_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    return grad.new_empty(grad.shape[0], *size, *grad.shape[3:])


_pool = operator("pool(Tensor x) -> (Tensor, Tensor)", _kernel, _shapes)
_pool_backward = operator(
    "pool_backward(Tensor grad, Tensor argmax, SymInt[] size) -> Tensor",
    _kernel_backward,
    _shapes_backward,
)
