"""Features that seeds read: a selection of rows whose gradient is a selection too."""

from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels.blend import GateIndex, SeedIndex
from morphogen.kernels.take import take_row_blocks, take_rows


def seed_inputs(
    h: Tensor, rows: Tensor, sizes: list[int], seeds: SeedIndex, gates: GateIndex
) -> list[Tensor]:
    """Select the features that seeds, and then gates, read.

    Promise: h gets a gradient through the inputs of seeds that are blended, and of no others.
    Shapes: h [B, ..., R, C]; rows int64 [N + G]; sizes sum to N + G -> [B, ..., n, C] each.
    """
    return list(apply_function(_SeedInputs, h, rows, sizes, seeds.source, gates.position))


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
