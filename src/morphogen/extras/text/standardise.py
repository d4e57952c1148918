"""Layer normalisation: rows of features with mean 0 and variance 1, alone or before a linear
layer.
"""

import math
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of
from morphogen.kernels.linear import multiply_places
from morphogen.kernels.native import Call, Function, operator
from morphogen.kernels.norm import EPS
from morphogen.kernels.sums import column_sums


def standardise(x: Tensor) -> Tensor:
    """Normalise every place to mean 0 and variance 1.  [..., d] -> [..., d]."""
    return apply_function(_Standardise, x)[0]


class _Standardise(Function):
    """Standardised rows, their means and 1 / deviations."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _forward(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        Function.setup_context(ctx, inputs, output)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _gradient(grads[0], *ctx.saved_tensors)


def normed_linear(
    x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Layer normalisation and a linear layer after it.

    Shapes: x [R, ..., I]; gain, shift [R, I]; weight [R, O, I], bias [R, O] (None = 0) -> [R, ...,
    O]. Gain and shift are taken into the linear layer: they meet its small parameters instead of
    all places.
    """
    return apply_function(_NormedLinear, x, gain, shift, weight, bias)[0]


class _NormedLinear(Function):
    """Standardised places, in a product with weights times gains, plus the products of weights and
    shifts.
    """

    @staticmethod
    def forward(
        x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, ...]:
        standard, mean, inverse = _forward(x)
        scaled = weight * gain.unsqueeze(1)
        total = column_sums((weight * shift.unsqueeze(1)).transpose(1, 2))
        out = multiply_places(standard, scaled, total if bias is None else total + bias)
        return out, standard, mean, inverse, scaled

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, shift, weight, _, standard, mean, inverse, scaled = ctx.saved_tensors
        grad = grads[0].flatten(1, -2)
        inner = torch.bmm(grad, scaled).view(x.shape)
        product = torch.bmm(grad.transpose(1, 2), standard.flatten(1, -2))
        total = column_sums(grad)
        each = total.unsqueeze(-1)
        return (
            _gradient(inner, x, standard, mean, inverse),
            column_sums(product * weight),
            column_sums(weight * each),
            torch.addcmul(product * gain.unsqueeze(1), each, shift.unsqueeze(1)),
            total if ctx.needs_input_grad[4] else None,
        )


def _forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardised rows, their means and 1 / deviations.  x [..., d] -> like x, [..., 1]
    twice.
    """
    if form_of("standardise", x) is Form.KERNEL:
        return _standardise(x)
    return torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)


def _gradient(grad: Tensor, x: Tensor, standard: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """Return the gradient of x from the results of `_forward`.  grad [..., d] -> [..., d]."""
    if form_of("standardise", x) is Form.KERNEL:
        return _standardise_backward(grad, standard, inverse)
    needed = [True, False, False]
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, x.shape[-1:], mean, inverse, None, None, needed
    )[0]


@operator("standardise(Tensor x) -> (Tensor, Tensor, Tensor)")
def _standardise(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = (*x.shape[:-1], 1)
    results = x.new_empty(x.shape), x.new_empty(rows), x.new_empty(rows)
    call("standardise", *_sizes(x), x.contiguous(), None, *results, EPS)
    return results


@operator("standardise_backward(Tensor grad, Tensor standard, Tensor inverse) -> Tensor")
def _standardise_backward(call: Call, grad: Tensor, standard: Tensor, inverse: Tensor) -> Tensor:
    out = grad.new_empty(grad.shape)
    inputs = standard.contiguous(), grad.contiguous()
    call("standardise_backward", *_sizes(grad), *inputs, out, None, inverse, EPS)
    return out


def _sizes(x: Tensor) -> tuple[int, int]:
    return math.prod(x.shape[:-1]), x.shape[-1]


def spread(values: Tensor, samples: int) -> Tensor:
    """Repeat values of networks for all samples.  [R, C] -> [R, B, C]."""
    return apply_function(_Spread, values, samples)


class _Spread(Function):
    """Repetition whose gradient is added in an order that does not depend on the number of
    networks.
    """

    @staticmethod
    def forward(values: Tensor, samples: int) -> Tensor:
        return values.unsqueeze(1).expand(-1, samples, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return column_sums(grads[0]), None
