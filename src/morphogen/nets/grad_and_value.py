"""Gradients of a sum of losses with respect to flat buffers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Leaves = tuple[Tensor, ...]


def grad_and_value(objective: Callable[[Leaves], tuple[Tensor, Any]], leaves: Leaves) -> tuple[Leaves, Any]:
    """Gradients of the first result of `objective`, zeros for leaves it does not use, and its second result.

    A graph is traced through `torch.func.grad`; eager code takes the same backward pass without that layer, which costs
    more than all small kernels of a minibatch together (bench/bench_minibatch.py).  Results are equal bit for bit.
    """
    if torch.compiler.is_compiling():
        return torch.func.grad(objective, has_aux=True)(leaves)
    own = tuple(leaf.detach().requires_grad_() for leaf in leaves)
    with torch.enable_grad():
        total, beside = objective(own)
    return torch.autograd.grad(total, own, materialize_grads=True), beside
