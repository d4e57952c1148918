"""Gradients of a loss, and optimiser steps as functions of stacked rows, equal to `torch.optim` row
by row.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from morphogen.compat import (
    add_each,
    addcmul_each,
    div_each,
    lerp_each,
    mul_each,
    sqrt_each,
    sub_each,
)
from morphogen.state.tree_ops import expand_mask

ParamTree = dict[str, Tensor]
Buffers = tuple[Tensor, ...]
Moments = tuple[ParamTree, ParamTree]
Aux = TypeVar("Aux")
BETAS = (0.9, 0.999)  # of AdamW
EPS = 1e-8  # of AdamW
NO_DECAY: Mapping[str, float] = {}


def grad_and_value(
    objective: Callable[[Buffers], tuple[Tensor, Aux]], buffers: Buffers
) -> tuple[Buffers, Aux]:
    """Return the gradients of the first result of `objective` (0 for unused buffers), and its
    second result.

    Shapes: buffers any; the first result of `objective` [] -> gradients like the buffers, second
    result unchanged. The compiler traces `torch.func.grad`; eager code runs the same backward pass
    without that layer, which costs more than all small kernels of a minibatch together
    (bench/speed/minibatch.py).  Both are equal bit for bit.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> weight, unused = torch.tensor([1.0, 2.0]), torch.ones(1)
        >>> grads, loss = mg.hosts.grad_and_value(
        ...     lambda b: (b[0].square().sum(), "any"), (weight, unused)
        ... )
        >>> [grad.tolist() for grad in grads], loss
        ([[2.0, 4.0], [0.0]], 'any')
    """
    if torch.compiler.is_compiling():
        return torch.func.grad(objective, has_aux=True)(buffers)
    leaves = tuple(buffer.detach().requires_grad_() for buffer in buffers)
    with torch.enable_grad():
        total, aux = objective(leaves)
    return torch.autograd.grad(total, leaves, materialize_grads=True), aux


def clip_by_norm(grads: Tensor, norm: Tensor, *, max_norm: float | None) -> Tensor:
    """Scale gradient rows to a norm of at most `max_norm`; None returns `grads`.

    Shapes: grads [R, P]; norm [R], the L2 norms of the rows -> [R, P].
    Source: Pascanu, Mikolov and Bengio, On the Difficulty of Training Recurrent Neural Networks,
    2013, algorithm 1.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> grads = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> mg.hosts.clip_by_norm(grads, grads.norm(dim=-1), max_norm=1.0)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    return (
        grads
        if max_norm is None
        else grads * expand_mask(clip_factor(norm, max_norm=max_norm), grads)
    )


def clip_factor(norm: Tensor, *, max_norm: float | None) -> Tensor:
    """Return the clipping factor for a gradient of this norm, in (0, 1].  norm [...] -> [...]."""
    return torch.ones_like(norm) if max_norm is None else (max_norm / (norm + 1e-6)).clamp(max=1.0)


def sgd(
    params: Tensor,
    velocity: Tensor,
    grads: Tensor,
    live: Tensor,
    *,
    lr: float | Tensor,
    momentum: float,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Take one step of SGD with momentum in the live rows; all others stay bit for bit.

    Shapes: params, velocity, grads [R, ...]; live bool [R], or broadcasts to params; lr broadcasts
    to params -> params, velocity.
    Equals `torch.optim.SGD` started from velocity 0.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> params, velocity, live = (
        ...     torch.ones(2, 3),
        ...     torch.zeros(2, 3),
        ...     torch.tensor([True, False]),
        ... )
        >>> for _ in range(2):
        ...     params, velocity = mg.hosts.sgd(
        ...         params, velocity, torch.ones(2, 3), live, lr=0.1, momentum=0.9
        ...     )
        >>> params[:, 0], velocity[:, 0]
        (tensor([0.7100, 1.0000]), tensor([1.9000, 0.0000]))
    """
    grads = grads.add(params, alpha=weight_decay) if weight_decay else grads
    step = torch.add(grads, velocity, alpha=momentum)
    mask = expand_mask(live, params)
    moved = params - step * lr if isinstance(lr, Tensor) else params.sub(step, alpha=lr)
    return torch.where(mask, moved, params), torch.where(mask, step, velocity)


def adamw(
    params: ParamTree,
    grads: ParamTree,
    moments: Moments,
    step: Tensor,
    *,
    lr: float | Tensor,
    eps: float = 1e-8,
    weight_decay: Mapping[str, float] = NO_DECAY,
) -> tuple[ParamTree, Moments]:
    """Take one step of Adam with decoupled weight decay.

    Args:
        params, grads: dicts of leaves of any shape and one dtype, with the same names.
        moments: running means of gradients, by 0.9, and of their squares, by 0.999, like params;
        zeros before the first step.
        step: number of this update, 1 for the first; 0-d.
        weight_decay: by leaf; a leaf that is not named has none.

    Returns: params and moments after the step.
    Equals `torch.optim.AdamW` (without decay: `torch.optim.Adam`).
    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015; Loshchilov and Hutter,
    Decoupled Weight Decay Regularization, 2019.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> params, grads = {"w": torch.ones(3)}, {"w": torch.tensor([100.0, 0.1, 0.0])}
        >>> zeros = {"w": torch.zeros(3)}
        >>> params, moments = mg.hosts.adamw(params, grads, (zeros, zeros), torch.tensor(1), lr=0.1)
        >>> params["w"]  # the first step has the length lr, whatever the gradient
        tensor([0.9000, 0.9000, 1.0000])
    """
    names = list(params)
    p, g, old_m, old_v = ([tree[name] for name in names] for tree in (params, grads, *moments))
    first, second = (1.0 - beta ** step.to(p[0].dtype) for beta in BETAS)
    new_m = lerp_each(old_m, g, 1.0 - BETAS[0])
    new_v = addcmul_each(mul_each(old_v, BETAS[1]), g, g, value=1.0 - BETAS[1])
    scale = add_each(div_each(sqrt_each(new_v), second.sqrt()), eps)
    move = div_each(mul_each(div_each(new_m, first), lr), scale)
    kept = [
        leaf * (1.0 - lr * weight_decay[name]) if weight_decay.get(name) else leaf
        for name, leaf in params.items()
    ]
    new_p = sub_each(kept, move)
    trees = [dict(zip(names, leaves, strict=True)) for leaves in (new_p, new_m, new_v)]
    return trees[0], (trees[1], trees[2])


class Live(NamedTuple):
    """Networks that take a step: hosts, or seeds in one buffer (`hosts.blocks`)."""

    networks: Tensor
    """bool, [E, 1] of hosts, [E, S] of seeds."""
    params: Tensor
    """bool, broadcasts to the parameters."""
    spread: Callable[[Tensor], Tensor]
    """Maps values like `networks` to values that broadcast to the parameters."""


class Rates(NamedTuple):
    """Numbers of a step."""

    lr: float | Tensor
    """Tensor: [E, 1]."""
    momentum: float
    """Of SGD."""
    weight_decay: float = 0.0
    """Of hosts."""


class Optimizer(NamedTuple):
    """Optimiser of hosts and seeds: its state, all 0 at the birth of a network, and its step."""

    moments: tuple[str, ...]
    """Leaves of the state that are like the parameters."""
    counts: tuple[str, ...]
    """Leaves of the state with one number per network, which follow the moments."""
    step: Callable[[Tensor, Tensor, Buffers, Live, Rates], tuple[Tensor, Buffers]]
    """From params, gradients, state, live networks and rates to params and state."""


def _sgd_step(
    params: Tensor, grads: Tensor, state: Buffers, live: Live, rates: Rates
) -> tuple[Tensor, Buffers]:
    lr = rates.lr
    params, velocity = sgd(
        params,
        state[0],
        grads,
        live.params,
        lr=live.spread(lr.expand_as(live.networks)) if isinstance(lr, Tensor) else lr,
        momentum=rates.momentum,
        weight_decay=rates.weight_decay,
    )
    return params, (velocity,)


def _adamw_step(
    params: Tensor, grads: Tensor, state: Buffers, live: Live, rates: Rates
) -> tuple[Tensor, Buffers]:
    """Take one step of AdamW in the live networks; all others stay bit for bit.

    With n the steps of a network, this one included, and g its gradient:

        m <- b1 m + (1 - b1) g
        v <- b2 v + (1 - b2) g^2
        p <- (1 - lr decay) p - lr / (1 - b1^n) m / (sqrt(v / (1 - b2^n)) + eps)

    Equals `torch.optim.AdamW`, with a count of steps per network.
    """
    mean, square, steps = state
    taken = steps + live.networks  # of a network that never took a step 0: nothing reads its rate
    # 1 - b^n, exact for a small n in float32 too
    first, second = (-torch.expm1(taken * math.log(beta)) for beta in BETAS)
    new_mean = mean.lerp(grads, 1.0 - BETAS[0])
    new_square = (square * BETAS[1]).addcmul(grads, grads, value=1.0 - BETAS[1])
    scale = new_square.sqrt() / live.spread(second.sqrt()) + EPS
    move = new_mean * live.spread(rates.lr / first)
    # a decay is of hosts, whose rates broadcast
    kept = params * (1.0 - rates.lr * rates.weight_decay) if rates.weight_decay else params
    results = (kept.addcdiv(move, scale, value=-1.0), new_mean, new_square)
    old = (params, mean, square)
    params, *moments = (
        torch.where(live.params, new, before) for new, before in zip(results, old, strict=True)
    )
    return params, (*moments, taken)


SGD = Optimizer(("momentum",), (), _sgd_step)
OPTIMIZERS = {"sgd": SGD, "adamw": Optimizer(("momentum", "square"), ("steps",), _adamw_step)}
