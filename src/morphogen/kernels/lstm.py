"""Long short-term memory over a rollout, with its gradient by hand.

Autograd would keep a node for every operation of every epoch and add up the gradient of the weights
epoch by epoch. Here all that does not depend on the next epoch is computed at once, and the
gradient of the weights is one product.
"""

from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels.native import Function


def lstm_cell(
    gates_in: Tensor, h: Tensor, c: Tensor, w_hh: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take one step of the LSTM cell, gates i f g o.

    Shapes: gates_in [E, 4 H], h, c [E, H], w_hh [4 H, H] -> h, c, activations of the gates.
    """
    i, f, g, o = torch.addmm(gates_in, h, w_hh.T).chunk(4, dim=-1)
    i = torch.sigmoid(i)
    f = torch.sigmoid(f)
    g = torch.tanh(g)
    o = torch.sigmoid(o)
    c = f * c + i * g
    return o * torch.tanh(c), c, torch.cat((i, f, g, o), dim=-1)


def lstm_unroll(gates_in: Tensor, keep: Tensor, h: Tensor, c: Tensor, w_hh: Tensor) -> Tensor:
    """Run the cell over a rollout; `keep` 0 resets its memory before a row.

    Shapes: gates_in [T, E, 4 H], keep [T, E, 1], h, c [E, H], w_hh [4 H, H] -> h [T, E, H].
    """
    return apply_function(_Unroll, gates_in, keep, h, c, w_hh)[0]


class _Unroll(Function):
    """The memory of every row; for its gradient states before the rows, cells, activations of
    gates.
    """

    @staticmethod
    def forward(
        gates_in: Tensor, keep: Tensor, h: Tensor, c: Tensor, w_hh: Tensor
    ) -> tuple[Tensor, ...]:
        rows = []
        for row, kept in zip(gates_in.unbind(), keep.unbind(), strict=True):
            before = (h * kept, c * kept)
            h, c, gates = lstm_cell(row, *before, w_hh)
            rows.append((h, *before, c, gates))
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _, keep, _, _, w_hh, h_before, c_before, c, gates = ctx.saved_tensors
        i, f, g, o = gates.chunk(4, dim=-1)
        bounded = torch.tanh(c)
        to_cell = o * (1 - bounded * bounded)  # of the gradient of h
        slopes = torch.cat(
            (g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g), bounded * o * (1 - o)),
            dim=-1,
        )
        rows = [x.unbind() for x in (grads[0], to_cell, slopes, f * keep, keep)]
        found: list[Tensor] = []
        h_grad = c_grad = torch.zeros_like(c[0])
        for grad, cell, slope, forget, kept in reversed([*zip(*rows, strict=True)]):
            h_grad = grad + h_grad
            c_grad = torch.addcmul(c_grad, h_grad, cell)
            found.append(torch.cat((c_grad, c_grad, c_grad, h_grad), dim=-1) * slope)
            h_grad = (found[-1] @ w_hh) * kept
            c_grad = c_grad * forget
        gates_grad = torch.stack(found[::-1])
        return gates_grad, None, h_grad, c_grad, gates_grad.flatten(0, 1).T @ h_before.flatten(0, 1)
