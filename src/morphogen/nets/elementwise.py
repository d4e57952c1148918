"""Functions of torch whose last bits depend on where an element lies, in a form in which they do not.

On a CPU torch computes the logistic function and its relatives by vectors, and what is left over at the end of a
tensor, or of the part of a thread, one by one in another way: the last network of a stack would differ from the others.
Without kernels, where other layers depend on the stack too, they are those of torch.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels import one_thread
from morphogen.kernels.native import AutogradFunction, apply_function, has_kernel

_VECTORS = 32  # elements that torch takes together, at most
_GRAIN = 2**15  # elements for each of which torch takes a thread


def by_vectors(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Apply an elementwise function to inputs of one shape; no element depends on the number of the others."""
    x = inputs[0]
    if torch.compiler.is_compiling() or not has_kernel(x):
        return function(*inputs)
    size = x.numel()
    threads = max(1, min(torch.get_num_threads(), -(-size // _GRAIN)))
    if size % (_VECTORS * threads) == 0:  # whole vectors in the part of each thread
        return function(*(part.contiguous() for part in inputs))
    with one_thread(x.device):
        whole = function(*(F.pad(part.flatten(), (0, -size % _VECTORS)) for part in inputs))
    return whole[:size].view(x.shape)


def silu(x: Tensor) -> Tensor:
    """Return `x * sigmoid(x)`."""
    return apply_function(_Silu, x) if has_kernel(x) else F.silu(x)


class _Silu(AutogradFunction):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return by_vectors(F.silu, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return by_vectors(torch.ops.aten.silu_backward, grads[0], *ctx.saved_tensors)
