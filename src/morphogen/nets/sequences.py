"""Layers on the places of sequences, for stacked networks.  Rows = networks, outermost: [R, B, n, d]."""

from typing import Any

import torch
from torch import Tensor

from morphogen import kernels
from morphogen.kernels.native import AutogradFunction, apply_function, statistics_dtype


def rows_outermost(x: Tensor) -> Tensor:
    """Return features with the axis of networks first.  x [B, n, R, d] -> [R, B, n, d], a view."""
    return x.permute(2, 0, 1, 3)


def rows_innermost(x: Tensor) -> Tensor:
    """Return the inverse of `rows_outermost`.  x [R, B, n, d] -> [B, n, R, d], a view."""
    return x.permute(1, 2, 0, 3)


def place_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer, one per network.  x [R, ..., I]; weight [R, O, I], bias [R, O] (None = 0) -> [R, ..., O]."""
    return apply_function(_Linear, x, weight, bias)


class _Linear(AutogradFunction):
    """Linear layer whose gradients are added up in an order that knows no other network."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return multiply(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), grad, needed = ctx.saved_tensors, by_network(grads[0]), ctx.needs_input_grad
        return (
            torch.bmm(grad, weight).view(x.shape) if needed[0] else None,
            torch.bmm(grad.transpose(1, 2), by_network(x)),
            kernels.column_sums(grad) if needed[2] else None,
        )


def by_network(x: Tensor) -> Tensor:
    """Join all axes between networks and features.  [R, ..., I] -> [R, N, I]."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply [R, ..., I] by weight [R, O, I], and add bias [R, O] -> [R, ..., O]."""
    flat, transposed = by_network(x), weight.transpose(1, 2)
    out = torch.bmm(flat, transposed) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, transposed)
    return out.view(*x.shape[:-1], weight.shape[1])


def spread(values: Tensor, samples: int) -> Tensor:
    """Repeat values of networks for all samples.  [R, C] -> [R, B, C]."""
    return apply_function(_Spread, values, samples)


class _Spread(AutogradFunction):
    """Repetition whose gradient is added in an order that does not depend on the number of networks."""

    @staticmethod
    def forward(values: Tensor, samples: int) -> Tensor:
        return values.unsqueeze(1).expand(-1, samples, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return kernels.column_sums(grads[0]), None


def running_mean(x: Tensor) -> Tensor:
    """Mean of every place and the places before it, added up in float32 at least.  x [R, B, n, d] -> [R, B, n, d]."""
    places = x.shape[2]
    dtype = statistics_dtype(x.dtype)
    count = torch.arange(1, places + 1, device=x.device, dtype=dtype)
    shares = torch.ones(places, places, device=x.device, dtype=dtype).tril() / count.unsqueeze(-1)
    flat = x.flatten(0, 1).to(dtype)  # a product, since running sums on a GPU have no fixed order
    return torch.bmm(shares.expand(flat.shape[0], -1, -1), flat).view(x.shape).to(x.dtype)
