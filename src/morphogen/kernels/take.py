"""Copies of activations: chosen rows, images with their channels innermost, and max pooling 2x2."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import block_args, call_kernel, has_kernel, operator


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows in the given order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    if has_kernel(x):
        return _take(x, rows)
    return x.flatten(0, -3).index_select(1, rows).view(*x.shape[:-2], -1, x.shape[-1])  # three axes: far faster


def take_row_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Select rows in the given order, in blocks of the given sizes; x is read once.

    Shapes: x [B, ..., R, C], rows int64 [N], sizes sum to N -> [B, ..., n, C] each.
    """
    if len(sizes) > 1 and has_kernel(x):
        return _take_blocks(x, rows, sizes)
    return list(take_rows(x, rows).split_with_sizes(list(sizes), -2))


def channels_innermost(x: Tensor) -> Tensor:
    """Return images of every network with channels innermost.  x [E, B, C, H, W] -> [B, H, W, E, C]."""
    return _channels_innermost(x) if has_kernel(x) else x.permute(1, 3, 4, 0, 2).contiguous()


def _kernel_blocks(blocks: Sequence[Tensor], x: Tensor, rows: Tensor, *_: Any) -> None:
    sizes = x.shape[:-2].numel(), *x.shape[-2:], rows.shape[0]
    call_kernel("take", *sizes, x.contiguous(), rows.contiguous(), block_args(blocks))


def _shapes_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-2], size, x.shape[-1]) for size in sizes]


def _kernel_innermost(out: Tensor, x: Tensor) -> None:
    call_kernel("innermost", *x.shape[:3], x.shape[3:].numel(), x.contiguous(), out)


def _shapes_innermost(x: Tensor) -> Tensor:
    sets, samples, channels, height, width = x.shape
    return x.new_empty(samples, height, width, sets, channels)


_take = operator(
    "take(Tensor x, Tensor rows) -> Tensor",
    lambda out, x, rows: _kernel_blocks((out,), x, rows),
    lambda x, rows: _shapes_blocks(x, rows, rows.shape)[0],
)
_take_blocks = operator(
    "take_blocks(Tensor x, Tensor rows, SymInt[] sizes) -> Tensor[]", _kernel_blocks, _shapes_blocks
)
_channels_innermost = operator("channels_innermost(Tensor x) -> Tensor", _kernel_innermost, _shapes_innermost)


def pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest of every four pixels, and its position for `pool_backward`.

    Shapes: x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C] each.
    """
    return (_pool if has_kernel(x) else _torch_pool)(x)


def pool_backward(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    """Return the gradient of the input.  grad, argmax [B, H // 2, W // 2, R, C]; size: H, W -> [B, H, W, R, C]."""
    return (_pool_backward if has_kernel(grad) else _torch_unpool)(grad, argmax, size)


def _kernel_pool(results: tuple[Tensor, ...], x: Tensor) -> None:
    call_kernel("pool", x.contiguous(), *results, *x.shape[:3], x.shape[3:].numel())


def _kernel_unpool(x_grad: Tensor, grad: Tensor, argmax: Tensor, size: Sequence[int]) -> None:
    if any(side % 2 for side in size):
        x_grad.zero_()  # the kernel skips the last line or column of odd maps
    call_kernel("pool_backward", x_grad, grad.contiguous(), argmax, *x_grad.shape[:3], x_grad.shape[3:].numel())


def _shapes_pool(x: Tensor) -> tuple[Tensor, Tensor]:
    samples, height, width, *rest = x.shape
    out = x.new_empty(samples, height // 2, width // 2, *rest)
    return out, torch.empty_like(out, dtype=torch.uint8)


def _shapes_unpool(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    return grad.new_empty(grad.shape[0], *size, *grad.shape[3:])


_pool = operator("pool(Tensor x) -> (Tensor, Tensor)", _kernel_pool, _shapes_pool)
_pool_backward = operator(
    "pool_backward(Tensor grad, Tensor argmax, SymInt[] size) -> Tensor", _kernel_unpool, _shapes_unpool
)


def _torch_pool(x: Tensor) -> tuple[Tensor, Tensor]:
    height, width = (side // 2 * 2 for side in x.shape[1:3])
    pairs = torch.unflatten(x[:, :height, :width], 2, (-1, 2))
    windows = torch.unflatten(pairs, 1, (-1, 2)).movedim(2, 3).flatten(3, 4)
    return windows.max(3)  # [B, H // 2, W // 2, 4, R, C]


def _torch_unpool(grad: Tensor, argmax: Tensor, size: Sequence[int]) -> Tensor:
    """Add nothing up, unlike the gradient of `F.max_pool2d`, whose order of additions varies on a GPU."""
    pixels = torch.arange(4, device=grad.device).view(4, 1, 1)
    windows = torch.where(argmax.unsqueeze(3) == pixels, grad.unsqueeze(3), 0.0)
    x_grad = torch.unflatten(windows, 3, (2, 2)).movedim(3, 2).flatten(1, 2).flatten(2, 3)
    height, width = size
    return F.pad(x_grad, (0, 0, 0, 0, 0, width % 2, 0, height % 2))
