"""Activations `[B, H, W, R, C]`, channels innermost: to and from torch's order of axes, and pooled.

The compiler writes its own code for pooling, which inlines into everything that reads its gradient and goes number by
number there.  Behind operators of our own it leaves the kernels alone; eager code calls them without that layer.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def innermost(x: Tensor) -> Tensor:
    """Images as layers take them.  x [E, B, C, H, W], or [B, C, H, W] that all see -> [B, H, W, E or 1, C]."""
    own = x if x.dim() == 5 else x.unsqueeze(0)
    return own.permute(1, 3, 4, 0, 2).contiguous()


def images(x: Tensor) -> Tensor:
    """The same memory as torch names its axes.  [B, H, W, R, C] -> [B, R * C, H, W]."""
    return x.flatten(3).permute(0, 3, 1, 2)


def activations(found: Tensor, rows: int) -> Tensor:
    """The inverse of `images`.  [B, R * C, H, W] -> [B, H, W, R, C]."""
    samples, channels, height, width = found.shape
    return found.permute(0, 2, 3, 1).contiguous().view(samples, height, width, rows, channels // rows)


def _pool(x: Tensor) -> tuple[Tensor, Tensor]:
    found, winner = F.max_pool2d(images(x), 2, return_indices=True)
    return activations(found, x.shape[3]), activations(winner, x.shape[3])


def _unpool(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    given, two = (images(grad), images(x)), [2, 2]
    push = torch.ops.aten.max_pool2d_with_indices_backward(*given, two, two, [0, 0], [1, 1], False, images(winner))
    return activations(push, x.shape[3])


_pooling = torch.library.custom_op("morphogen::pool", _pool, mutates_args=())
_unpooling = torch.library.custom_op("morphogen::unpool", _unpool, mutates_args=())


@_pooling.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    shape = samples, height // 2, width // 2, *rest
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@_unpooling.register_fake
def _(grad: Tensor, x: Tensor, winner: Tensor) -> Tensor:
    return torch.empty_like(x)


class _Pool(torch.autograd.Function):
    """Max pooling."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return (_pooling if torch.compiler.is_compiling() else _pool)(x)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: None) -> Tensor:
        return (_unpooling if torch.compiler.is_compiling() else _unpool)(grad.contiguous(), *ctx.saved_tensors)


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2.  x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C]."""
    return _Pool.apply(x)[0]
