"""Max pooling 2x2."""

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import call, fits, operator


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of every four pixels, and what `unpool` needs to know.  x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C]."""
    return (_pool if fits(x) else _plain)(x)


def unpool(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    """The gradient of what was pooled.  grad [B, H // 2, W // 2, R, C] -> as x."""
    return (_unpool if fits(x) else _plain_backward)(grad, x, winner)


def _kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    out, winner = _shapes(x)
    call("pool", x.contiguous(), out, winner, *_sizes(x))
    return out, winner


def _kernel_backward(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    samples, height, width, _, _ = x.shape
    push = (torch.zeros_like if height % 2 or width % 2 else torch.empty_like)(x, memory_format=torch.contiguous_format)
    call("pool_backward", push, grad.contiguous(), winner, *_sizes(x))
    return push


def _sizes(x: Tensor) -> tuple[int, ...]:
    samples, height, width, rows, channels = x.shape
    return samples, height, width, rows * channels


def _shapes(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    return out, torch.empty_like(out, dtype=torch.int32)


def _shapes_backward(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    return x.new_empty(x.shape)


_pool = operator("pool(Tensor x) -> (Tensor, Tensor)", _kernel, _shapes)
_unpool = operator("unpool(Tensor grad, Tensor x, Tensor winner) -> Tensor", _kernel_backward, _shapes_backward)


def _plain(x: Tensor) -> tuple[Tensor, Tensor]:
    found, winner = F.max_pool2d(_images(x), 2, return_indices=True)
    return _activations(found, x), _activations(winner, x)


def _plain_backward(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    given, two = (_images(grad), _images(x)), [2, 2]
    push = torch.ops.aten.max_pool2d_with_indices_backward(*given, two, two, [0, 0], [1, 1], False, _images(winner))
    return _activations(push, x)


def _images(x: Tensor) -> Tensor:
    """[B, H, W, R, C] -> [B, R * C, H, W], the same memory."""
    return x.flatten(3).permute(0, 3, 1, 2)


def _activations(found: Tensor, like: Tensor) -> Tensor:
    """[B, R * C, H, W] -> [B, H, W, R, C]."""
    return found.permute(0, 2, 3, 1).contiguous().unflatten(-1, like.shape[3:])
