"""Functions of torch whose last bits depend on where an element lies, in a form in which they do
not.

On a CPU torch computes the logistic function and its relatives by vectors, and what is left over at
the end of a tensor, or of the part of a thread, one by one in another way: the last network of a
stack would differ from the others. Without kernels, where other layers depend on the stack too,
torch computes them.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of, one_thread
from morphogen.kernels.native import Function

_VECTORS = 32  # elements that torch takes together, at most
_GRAIN = 2**15  # elements for each of which torch takes a thread
_ATEN = torch.ops.aten


def by_vectors(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Apply an elementwise function to inputs of one shape; no element depends on the number of the
    others.
    """
    x = inputs[0]
    if form_of("elementwise", x) is Form.TORCH:
        return function(*inputs)
    size = x.numel()
    threads = max(1, min(torch.get_num_threads(), -(-size // _GRAIN)))
    if size % (_VECTORS * threads) == 0:  # full vectors in the part of each thread
        return function(*(part.contiguous() for part in inputs))
    with one_thread(x.device):
        padded = function(*(F.pad(part.flatten(), (0, -size % _VECTORS)) for part in inputs))
    return padded[:size].view(x.shape)


def silu(x: Tensor) -> Tensor:
    """Return `x * sigmoid(x)`."""
    return _apply(x, F.silu, _ATEN.silu_backward)


def gelu(x: Tensor) -> Tensor:
    """Return `x * Phi(x)`, Phi the standard normal distribution function."""
    return _apply(x, F.gelu, _ATEN.gelu_backward)


def _apply(
    x: Tensor, function: Callable[[Tensor], Tensor], gradient: Callable[..., Tensor]
) -> Tensor:
    if form_of("elementwise", x) is Form.TORCH:
        return function(x)
    return apply_function(_Elementwise, x, function, gradient)


class _Elementwise(Function):
    """Activation and its gradient, both by vectors."""

    @staticmethod
    def forward(
        x: Tensor, function: Callable[[Tensor], Tensor], gradient: Callable[..., Tensor]
    ) -> Tensor:
        return by_vectors(function, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        _, gradient = ctx.settings
        return by_vectors(gradient, grads[0], *ctx.saved_tensors), None, None
