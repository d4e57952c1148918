"""Max pooling 2x2."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import call_kernel, has_kernel, operator, to_activations, to_images


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest of every four pixels, and its position for `pool_backward`.

    Shapes: x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C] each.
    """
    return (_pool if has_kernel(x) else _torch_forward)(x)


def pool_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    """Return the gradient of the input.  grad, argmax [B, H // 2, W // 2, R, C]; size: H, W -> [B, H, W, R, C]."""
    return (_pool_backward if has_kernel(grad) else _torch_backward)(grad, argmax, size)


def _kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    out, argmax = _shapes(x)
    call_kernel("pool", x.contiguous(), out, argmax, *_sizes(x))
    return out, argmax


def _kernel_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    x_grad = _shapes_backward(grad, argmax, size)
    if any(side % 2 for side in size):
        x_grad.zero_()  # the kernel skips the last line or column of odd maps
    call_kernel("pool_backward", x_grad, grad.contiguous(), argmax, *_sizes(x_grad))
    return x_grad


def _sizes(x: Tensor) -> tuple[int, ...]:
    samples, height, width, rows, channels = x.shape
    return samples, height, width, rows * channels


def _shapes(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    return out, torch.empty_like(out, dtype=torch.uint8)


def _shapes_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    return grad.new_empty(grad.shape[0], *size, *grad.shape[3:])


_pool = operator("pool(Tensor x) -> (Tensor, Tensor)", _kernel, _shapes)
_pool_backward = operator(
    "pool_backward(Tensor grad, Tensor argmax, SymInt[] size) -> Tensor", _kernel_backward, _shapes_backward
)


def _torch_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    out, argmax = F.max_pool2d(to_images(x), 2, return_indices=True)
    return to_activations(out, x.shape[3]), to_activations(argmax, x.shape[3])


def _torch_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    x, two = _shapes_backward(grad, argmax, size), [2, 2]
    args = to_images(grad), to_images(x), two, two, [0, 0], [1, 1], False
    return to_activations(torch.ops.aten.max_pool2d_with_indices_backward(*args, to_images(argmax)), x.shape[3])
