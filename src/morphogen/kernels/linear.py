"""Linear layers of stacked networks, one weight each."""

from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels.native import Function
from morphogen.kernels.sums import column_sums


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer.

    Shapes: x [R, B, I]; weight [R, O, I], bias [R, O] (None = 0) -> [R, B, O].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> weight = (
        ...     torch.tensor([1.0, 10.0]).view(2, 1, 1).expand(2, 1, 3)
        ... )  # two networks, 3 inputs, 1 output
        >>> mg.hosts.linear(torch.ones(2, 1, 3), weight, torch.ones(2, 1)).flatten().tolist()
        [4.0, 31.0]
    """
    if weight.shape[:2] == (1, 1):  # torch multiplies by a single vector in another order
        x, weight = (part.expand(2, -1, -1) for part in (x, weight))
        return linear(x, weight, None if bias is None else bias.expand(2, -1))[:1]
    transposed = weight.transpose(1, 2)
    return (
        torch.bmm(x, transposed)
        if bias is None
        else torch.baddbmm(bias.unsqueeze(1), x, transposed)
    )


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer on features, a layer per row.

    Shapes: x [B, ..., R, I], or [B, ..., 1, I] shared by all rows; weight [R, O, I], bias [R, O]
    (None = 0) -> [B, ..., R, O].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> x = torch.ones(
        ...     8, 4, 4, 1, 3
        ... )  # 8 images of 4 x 4 pixels with 3 channels, shared by 5 networks
        >>> mg.hosts.rows_linear(x, torch.ones(5, 2, 3)).shape
        torch.Size([8, 4, 4, 5, 2])
    """
    rows, outputs, inputs = weight.shape
    flat = x.expand(*x.shape[:-2], rows, inputs).reshape(-1, rows, inputs).transpose(0, 1)
    out = place_linear(flat, weight, bias)
    return out.transpose(0, 1).reshape(*x.shape[:-2], rows, outputs)


def place_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer, one per network.  x [R, ..., I]; weight [R, O, I], bias [R, O] (None = 0) ->
    [R, ..., O].
    """
    return apply_function(_Linear, x, weight, bias)


class _Linear(Function):
    """Linear layer whose gradients are added in an order that does not depend on other networks."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return multiply_places(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, _ = ctx.saved_tensors
        grad = grads[0].flatten(1, -2)
        needed: tuple[bool, ...] = ctx.needs_input_grad
        return (
            linear(grad, weight.transpose(1, 2)).view(x.shape) if needed[0] else None,
            torch.bmm(grad.transpose(1, 2), x.flatten(1, -2)),
            column_sums(grad) if needed[2] else None,
        )


def multiply_places(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply [R, ..., I] by weight [R, O, I], and add bias [R, O] -> [R, ..., O]."""
    return linear(x.flatten(1, -2), weight, bias).view(*x.shape[:-1], weight.shape[1])
