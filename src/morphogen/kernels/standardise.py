"""Rows of features with mean 0 and variance 1: layer normalisation without gain and shift."""

import torch
from torch import Tensor

from morphogen.kernels.native import call_kernel, has_kernel, operator
from morphogen.kernels.norm import EPS


def standardise(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows with mean 0 and variance 1, their means and 1 / deviations.  x [..., d] -> like x, [..., 1] twice."""
    if has_kernel(x):
        return _standardise(x)
    return torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)


def standardise_backward(grad: Tensor, x: Tensor, standard: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """Return the gradient of x.  grad, x [..., d]; the rest: results of `standardise` -> [..., d]."""
    if has_kernel(x):
        return _standardise_backward(grad, standard, inverse)
    stats, outputs = (mean, inverse, None, None), [True, False, False]
    return torch.ops.aten.native_layer_norm_backward(grad, x, x.shape[-1:], *stats, outputs)[0]


def _kernel(results: tuple[Tensor, ...], x: Tensor) -> None:
    call_kernel("standardise", *_sizes(x), x.contiguous(), None, *results, EPS)


def _kernel_backward(out: Tensor, grad: Tensor, standard: Tensor, inverse: Tensor) -> None:
    call_kernel(
        "standardise_backward", *_sizes(grad), standard.contiguous(), grad.contiguous(), out, None, inverse, EPS
    )


def _sizes(x: Tensor) -> tuple[int, int]:
    return x.shape[:-1].numel(), x.shape[-1]


def _shapes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = (*x.shape[:-1], 1)
    return x.new_empty(x.shape), x.new_empty(rows), x.new_empty(rows)


_standardise = operator("standardise(Tensor x) -> (Tensor, Tensor, Tensor)", _kernel, _shapes)
_standardise_backward = operator(
    "standardise_backward(Tensor grad, Tensor standard, Tensor inverse) -> Tensor",
    _kernel_backward,
    lambda grad, *_: grad.new_empty(grad.shape),
)
