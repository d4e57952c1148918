"""Two linear layers with a SiLU between them."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels import Form, form_of
from morphogen.kernels.native import (
    AutogradFunction,
    apply_function,
    call_kernel,
    make_contiguous,
    operator,
)


def perceptron(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a SiLU between them; x gets no gradient.

    Shapes: x [B, R, I]; w1 [R, H, I], b1 [R, H] (None = 0), w2 [R, O, H], b2 [R, O] -> [B, R, O].
    """
    return apply_function(_Perceptron, x.detach(), w1, b1, w2, b2)[0]


class _Perceptron(AutogradFunction):
    """Outputs, and the inputs of the SiLU [B, R, H]."""

    @staticmethod
    def forward(
        x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor
    ) -> tuple[Tensor, Tensor]:
        run = _perceptron if form_of("perceptron", x) is Form.KERNEL else _torch_perceptron
        return run(x, w1, b1, w2, b2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *layers, z = ctx.saved_tensors
        needed: tuple[bool, ...] = ctx.needs_input_grad[1:]
        run = _perceptron_backward if form_of("perceptron", x) is Form.KERNEL else _torch_gradients
        params = run(grads[0], x, z, *layers)
        return None, *[part if flag else None for part, flag in zip(params, needed, strict=True)]


def _torch_perceptron(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor
) -> tuple[Tensor, Tensor]:
    inputs = x.transpose(0, 1)
    first = w1.transpose(1, 2)
    z = torch.bmm(inputs, first) if b1 is None else torch.baddbmm(b1.unsqueeze(1), inputs, first)
    out = torch.baddbmm(b2.unsqueeze(1), F.silu(z), w2.transpose(1, 2))
    return out.transpose(0, 1), z.transpose(0, 1)


def _torch_gradients(grad: Tensor, x: Tensor, z: Tensor, *layers: Any) -> tuple[Tensor, ...]:
    """Return the gradients of w1, b1, w2 and b2.  grad [B, R, O]; z [B, R, H]."""
    w2: Tensor = layers[2]
    grad = grad.transpose(0, 1)
    z = z.transpose(0, 1)
    hidden = torch.ops.aten.silu_backward(torch.bmm(grad, w2), z)
    w1_grad = torch.bmm(hidden.transpose(1, 2), x.transpose(0, 1))
    return w1_grad, hidden.sum(1), torch.bmm(grad.transpose(1, 2), F.silu(z)), grad.sum(1)


def _kernel(results: tuple[Tensor, Tensor], x: Tensor, *layers: Any) -> None:
    out, z = results
    call_kernel("perceptron", *_kernel_args(x, *layers), z, out, None, None, None, None, None)


def _kernel_backward(
    grads: tuple[Tensor, ...], grad: Tensor, x: Tensor, z: Tensor, *layers: Any
) -> None:
    call_kernel(
        "perceptron_backward", *_kernel_args(x, *layers), z, None, grad.contiguous(), *grads
    )


def _kernel_args(x: Tensor, *layers: Any) -> tuple[Any, ...]:
    """Return sizes and parameters in the order of the kernels' arguments."""
    _, outputs, hidden = layers[2].shape
    return *x.shape, hidden, outputs, x.contiguous(), *map(make_contiguous, layers)


def _shapes(x: Tensor, *layers: Any) -> tuple[Tensor, Tensor]:
    _, outputs, hidden = layers[2].shape
    return x.new_empty(*x.shape[:2], outputs), x.new_empty(*x.shape[:2], hidden)


def _shapes_backward(grad: Tensor, x: Tensor, z: Tensor, *layers: Any) -> tuple[Tensor, ...]:
    w1, _, w2, b2 = layers
    return (
        x.new_empty(w1.shape),
        x.new_empty(w1.shape[:2]),
        x.new_empty(w2.shape),
        x.new_empty(b2.shape),
    )


def _flops(x: Any, w1: Any, b1: Any, w2: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * (math.prod(w1) + math.prod(w2))


def _flops_backward(grad: Any, x: Any, z: Any, *layers: Any, **_: Any) -> int:
    return 2 * x[0] * (math.prod(layers[0]) + 2 * math.prod(layers[2]))


_PARAM_ARGS = "Tensor w1, Tensor? b1, Tensor w2, Tensor b2"
_perceptron = operator(
    f"perceptron(Tensor x, {_PARAM_ARGS}) -> (Tensor, Tensor)", _kernel, _shapes, _flops
)
_perceptron_backward = operator(
    f"perceptron_backward(Tensor grad, Tensor x, Tensor z, {_PARAM_ARGS}) -> (Tensor, "
    "Tensor, Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
    _flops_backward,
)
