"""Copies of activations: chosen rows, the features that seeds read, and images with their channels
innermost.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
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


def seed_inputs(
    h: Tensor, rows: Tensor, sizes: list[int], source: Tensor, gates: Tensor
) -> list[Tensor]:
    """Select the features that seeds, and then gates, read; a selection is its gradient, too.

    Promise: h gets a gradient through the inputs of seeds that are blended, and of no others.
    Shapes: h [B, ..., R, C]; rows int64 [N + G]; sizes sum to N + G; source int64 [R], gates int64
    [G], as in `SeedIndex` -> [B, ..., n, C] each.
    """
    return list(apply_function(_SeedInputs, h, rows, sizes, source, gates))


class _SeedInputs(torch.autograd.Function):
    """A row of features has one seed at most, and one gate."""

    @staticmethod
    def forward(
        h: Tensor, rows: Tensor, sizes: list[int], source: Tensor, gated: Tensor
    ) -> tuple[Tensor, ...]:
        return tuple(take_row_blocks(h, rows, sizes))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, gated = ctx.saved_tensors
        gates = gated.shape[0]
        nothing = torch.zeros_like(grads[0][..., :1, :])
        blocks = torch.cat((*grads, nothing), dim=-2)  # seeds, gates, nothing
        seeds = blocks.shape[-2] - gates - 1
        none = torch.full((seeds + 1,), seeds + gates, device=source.device)  # the row of nothing
        numbers = torch.arange(seeds + gates, device=source.device)
        seed_row = none.index_copy(0, numbers[:seeds], numbers[:seeds])
        grad = take_rows(blocks, seed_row[source])
        if gates:
            gate_row = none.index_copy(0, gated, numbers[seeds:])
            grad = grad + take_rows(blocks, gate_row[source])
        return grad, None, None, None, None


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
