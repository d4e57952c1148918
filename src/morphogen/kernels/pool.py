"""Max pooling 2x2."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.axes import activations, images
from morphogen.kernels.native import call, fits, operator


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of every four pixels, and what `unpool` needs to know.

    Shapes: x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C] each.
    """
    return (_pool if fits(x) else _plain)(x)


def unpool(grad: Tensor, winner: Tensor, size: Sequence[int]) -> Tensor:
    """The gradient of what was pooled.  grad [B, H // 2, W // 2, R, C]; size: H, W -> [B, H, W, R, C]."""
    return (_unpool if fits(grad) else _plain_backward)(grad, winner, size)


def _kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    out, winner = _shapes(x)
    call("pool", x.contiguous(), out, winner, *_sizes(x))
    return out, winner


def _kernel_backward(grad: Tensor, winner: Tensor, size: Sequence[int]) -> Tensor:
    push = _shapes_backward(grad, winner, size)
    if any(side % 2 for side in size):
        push.zero_()  # what is left over was never looked at
    call("pool_backward", push, grad.contiguous(), winner, *_sizes(push))
    return push


def _sizes(x: Tensor) -> tuple[int, ...]:
    samples, height, width, rows, channels = x.shape
    return samples, height, width, rows * channels


def _shapes(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    return out, torch.empty_like(out, dtype=torch.uint8)


def _shapes_backward(grad: Tensor, winner: Tensor, size: Sequence[int]) -> Tensor:
    return grad.new_empty(grad.shape[0], *size, *grad.shape[3:])


_pool = operator("pool(Tensor x) -> (Tensor, Tensor)", _kernel, _shapes)
_unpool = operator("unpool(Tensor grad, Tensor winner, SymInt[] size) -> Tensor", _kernel_backward, _shapes_backward)


def _plain(x: Tensor) -> tuple[Tensor, Tensor]:
    found, winner = F.max_pool2d(images(x), 2, return_indices=True)
    return activations(found, x.shape[3]), activations(winner, x.shape[3])


def _plain_backward(grad: Tensor, winner: Tensor, size: Sequence[int]) -> Tensor:
    x, two = _shapes_backward(grad, winner, size), [2, 2]
    given = images(grad), images(x), two, two, [0, 0], [1, 1], False
    return activations(torch.ops.aten.max_pool2d_with_indices_backward(*given, images(winner)), x.shape[3])
