"""Copies of activations: chosen rows, and images with their channels innermost."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.kernels import Form, form_of
from morphogen.kernels.native import block_args, call_kernel, operator


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows in the given order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    if form_of("take", x) is Form.KERNEL:
        return _take_blocks(x, rows, rows.shape)[0]
    chosen = x.flatten(0, -3).index_select(1, rows)  # of three axes: far faster
    return chosen.view(*x.shape[:-2], -1, x.shape[-1])


def take_row_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Select rows in the given order, in blocks of the given sizes; x is read once.

    Shapes: x [B, ..., R, C], rows int64 [N], sizes sum to N -> [B, ..., n, C] each.
    """
    if len(sizes) > 1 and form_of("take_blocks", x) is Form.KERNEL:
        return _take_blocks(x, rows, sizes)
    return list(take_rows(x, rows).split_with_sizes(list(sizes), -2))


def images_innermost(x: Tensor) -> Tensor:
    """Return images as activations.

    Shapes: x [E, B, C, H, W], or [B, C, H, W] shared by all rows -> [B, H, W, E or 1, C], dtype of
    x.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.hosts.images_innermost(
        ...     torch.zeros(5, 32, 3, 8, 8)
        ... ).shape  # other images for each of 5 networks
        torch.Size([32, 8, 8, 5, 3])
        >>> mg.hosts.images_innermost(
        ...     torch.zeros(32, 3, 8, 8)
        ... ).shape  # the same images for all networks
        torch.Size([32, 8, 8, 1, 3])
    """
    x = x if x.dim() == 5 else x.unsqueeze(0)
    # a copy has the strides by which torch chooses among its convolutions; a view may not
    return x.permute(1, 3, 4, 0, 2).clone(memory_format=torch.contiguous_format)


def _kernel(blocks: Sequence[Tensor], x: Tensor, rows: Tensor, *_: Any) -> None:
    sizes = x.shape[:-2].numel(), *x.shape[-2:], rows.shape[0]
    call_kernel("take", *sizes, x.contiguous(), rows.contiguous(), block_args(blocks))


def _shapes(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-2], size, x.shape[-1]) for size in sizes]


_take_blocks = operator(
    "take_blocks(Tensor x, Tensor rows, SymInt[] sizes) -> Tensor[]", _kernel, _shapes
)
