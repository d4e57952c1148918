"""Max pooling 2x2."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.axes import to_activations, to_images
from morphogen.kernels.native import call_kernel, has_kernel, operator


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of every four pixels, and what `unpool` needs to know.

    Shapes: x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C] each.
    """
    return (_pool if has_kernel(x) else _torch_forward)(x)


def pool_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    """The gradient of what was pooled.  grad [B, H // 2, W // 2, R, C]; size: H, W -> [B, H, W, R, C]."""
    return (_unpool if has_kernel(grad) else _torch_backward)(grad, argmax, size)


def _kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    out, winner = _shapes(x)
    call_kernel("pool", x.contiguous(), out, winner, *_sizes(x))
    return out, winner


def _kernel_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    push = _shapes_backward(grad, argmax, size)
    if any(side % 2 for side in size):
        push.zero_()  # what is left over was never looked at
    call_kernel("pool_backward", push, grad.contiguous(), argmax, *_sizes(push))
    return push


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
_unpool = operator("unpool(Tensor grad, Tensor winner, SymInt[] size) -> Tensor", _kernel_backward, _shapes_backward)


def _torch_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    found, winner = F.max_pool2d(to_images(x), 2, return_indices=True)
    return to_activations(found, x.shape[3]), to_activations(winner, x.shape[3])


def _torch_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    x, two = _shapes_backward(grad, argmax, size), [2, 2]
    given = to_images(grad), to_images(x), two, two, [0, 0], [1, 1], False
    return to_activations(torch.ops.aten.max_pool2d_with_indices_backward(*given, to_images(argmax)), x.shape[3])
