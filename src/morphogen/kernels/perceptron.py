"""Two linear layers with a SiLU between them."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from morphogen.kernels.native import call_kernel, has_kernel, make_contiguous, operator


class PerceptronParams(NamedTuple):
    """Parameters of R networks."""

    w1: Tensor  # [R, H, I]
    b1: Tensor | None  # [R, H]; None = 0
    w2: Tensor  # [R, O, H]
    b2: Tensor  # [R, O]


def perceptron(x: Tensor, params: PerceptronParams) -> tuple[Tensor, Tensor]:
    """Return the outputs and the inputs of the SiLU.  x [B, R, I] -> [B, R, O], [B, R, H]."""
    return (_perceptron if has_kernel(x) else _torch_forward)(x, *params)


def perceptron_backward(grad: Tensor, x: Tensor, z: Tensor, params: PerceptronParams) -> PerceptronParams:
    """Return the gradients of the parameters.  grad [B, R, O]; z: inputs of the SiLU [B, R, H]."""
    return PerceptronParams(*(_perceptron_backward if has_kernel(x) else _torch_backward)(grad, x, z, *params))


def _kernel(results: tuple[Tensor, ...], x: Tensor, *layers) -> None:
    out, z = results
    call_kernel("perceptron", *_kernel_args(x, *layers), z, out, None, None, None, None, None)


def _kernel_backward(grads: tuple[Tensor, ...], grad: Tensor, x: Tensor, z: Tensor, *layers) -> None:
    call_kernel("perceptron_backward", *_kernel_args(x, *layers), z, None, grad.contiguous(), *grads)


def _kernel_args(x: Tensor, *layers) -> tuple:
    """Return sizes and parameters in the order of the kernels' arguments."""
    w1, b1, w2, b2 = layers
    params = PerceptronParams(w1.contiguous(), make_contiguous(b1), w2.contiguous(), b2.contiguous())
    _, outputs, hidden = params.w2.shape
    return *x.shape, hidden, outputs, x.contiguous(), *params


def _shapes(x: Tensor, *layers):
    _, outputs, hidden = layers[2].shape
    return x.new_empty(*x.shape[:2], outputs), x.new_empty(*x.shape[:2], hidden)


def _shapes_backward(grad: Tensor, x: Tensor, z: Tensor, *layers):
    w1, _, w2, b2 = layers
    return x.new_empty(w1.shape), x.new_empty(w1.shape[:2]), x.new_empty(w2.shape), x.new_empty(b2.shape)


_PARAM_ARGS = "Tensor w1, Tensor? b1, Tensor w2, Tensor b2"
_perceptron = operator(f"perceptron(Tensor x, {_PARAM_ARGS}) -> (Tensor, Tensor)", _kernel, _shapes)
_perceptron_backward = operator(
    f"perceptron_backward(Tensor grad, Tensor x, Tensor z, {_PARAM_ARGS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


@register_flop_formula([torch.ops.morphogen.perceptron])
def _flops(x: Any, w1: Any, b1: Any, w2: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * (math.prod(w1) + math.prod(w2))


@register_flop_formula([torch.ops.morphogen.perceptron_backward])
def _flops_backward(grad: Any, x: Any, z: Any, *layers: Any, **_: Any) -> int:
    return 2 * x[0] * (math.prod(layers[0]) + 2 * math.prod(layers[2]))


def _torch_forward(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor):
    inputs, first = x.transpose(0, 1), w1.transpose(1, 2)
    z = torch.bmm(inputs, first) if b1 is None else torch.baddbmm(b1.unsqueeze(1), inputs, first)
    return torch.baddbmm(b2.unsqueeze(1), F.silu(z), w2.transpose(1, 2)).transpose(0, 1), z.transpose(0, 1)


def _torch_backward(grad: Tensor, x: Tensor, z: Tensor, *layers):
    grad, z = grad.transpose(0, 1), z.transpose(0, 1)
    hidden = torch.ops.aten.silu_backward(torch.bmm(grad, layers[2]), z)
    w1, w2 = torch.bmm(hidden.transpose(1, 2), x.transpose(0, 1)), torch.bmm(grad.transpose(1, 2), F.silu(z))
    return w1, hidden.sum(1), w2, grad.sum(1)
