"""Copies of activations: chosen rows, the features that seeds read, and images with their channels
innermost.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows in the given order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    chosen = x.flatten(0, -3).index_select(1, rows)  # of three axes: far faster
    return chosen.view(*x.shape[:-2], rows.shape[0], x.shape[-1])


def take_row_blocks(x: Tensor, rows: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    """Select rows, block by block.  x [B, ..., R, C], rows int64 [N], sizes sum to N -> [B, ..., n,
    C] each.
    """
    if form_of("take_row_blocks", x) is Form.KERNEL:  # convolutions copy parts of a larger block
        return [take_rows(x, part) for part in rows.split_with_sizes(sizes)]
    return take_rows(x, rows).split_with_sizes(sizes, -2)


def seed_inputs(x: Tensor, rows: Tensor, source: Tensor, gates: Tensor) -> Tensor:
    """Select the features that seeds, and then gates, read; its gradient is a selection, too.

    Promise: x gets a gradient through the inputs of seeds that are blended, and of no others.
    Shapes: x [B, ..., R, C]; rows int64 [N + G]; source int64 [R], gates int64 [G], as in
    `SeedIndex` -> [B, ..., N + G, C].
    """
    return apply_function(_SeedInputs, x, rows, source, gates)


class _SeedInputs(torch.autograd.Function):
    """A row of features has one seed at most, and one gate."""

    @staticmethod
    def forward(x: Tensor, rows: Tensor, source: Tensor, gates: Tensor) -> Tensor:
        return take_rows(x, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        source, gates = ctx.saved_tensors
        gated = gates.shape[0]
        count = grads[0].shape[-2] - gated  # of seeds
        by_seeds, by_gates = grads[0].split_with_sizes([count, gated], dim=-2)
        nothing = torch.zeros_like(grads[0][..., :1, :])  # the seed of a row without one
        read = torch.cat((by_seeds, nothing, by_gates), dim=-2)
        grad = take_rows(read, source)
        if gated:
            numbers = torch.arange(count + 1, count + 1 + gated, device=source.device)
            gate_row = source.new_full((count + 1,), count).index_copy(0, gates, numbers)
            grad = grad + take_rows(read, gate_row[source])
        return grad, None, None, None


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
