"""Norms and health of the gradient of the policy network."""

import torch
from torch import Tensor

from morphogen.compat import norm_each
from morphogen.policy.controller import ControllerParams
from morphogen.policy.distribution import ROWS, SCORES
from morphogen.ppo.metrics import LAYER_NAMES
from morphogen.rules.health import LARGE_GRADIENT, layer_health
from morphogen.state.tree_ops import constant_table, l2_norm
from morphogen.vocab.action import SIZES, Head

# Head of each output of the `leaf` layer: the slot scores, then the value logits.
_LEAF_HEADS = (*(Head.SLOT,) * SCORES, *(head for head, _ in ROWS for _ in range(SIZES[head])))


def global_norm(parts: list[Tensor]) -> Tensor:
    """L2 norm of all elements: 0-d."""
    return l2_norm(torch.stack(norm_each(parts)))


def head_norms(grads: ControllerParams) -> tuple[Tensor, Tensor]:
    """L2 norm of the gradients of the outputs of each head, then of the value head, and a flag.  ->
    [9], bool [9].

    Networks from outside have other layers: their norms are not measured.
    """
    if not {"leaf.out.weight", "leaf.out.bias", "op.out.weight", "op.out.bias"} <= grads.keys():
        zeros = next(iter(grads.values())).new_zeros(len(Head) + 1)
        return zeros, zeros.bool()
    leaf = (
        torch.cat((grads["leaf.out.weight"], grads["leaf.out.bias"].unsqueeze(-1)), dim=-1)
        .square()
        .sum(-1)
    )
    one_hot = tuple(tuple(float(head == owner) for head in Head) for owner in _LEAF_HEADS)
    heads = (leaf @ constant_table(one_hot, leaf.dtype, leaf.device)).sqrt()
    op = global_norm([grads["op.out.weight"], grads["op.out.bias"]])
    value = global_norm([grad for name, grad in grads.items() if name.startswith("value.")])
    norms = torch.cat((op.unsqueeze(0), heads[1:], value.unsqueeze(0)))
    return norms, torch.ones_like(norms, dtype=torch.bool)


def gradient_layer_health(grads: ControllerParams) -> tuple[Tensor, Tensor]:
    """Health of the gradient of every layer of the network of the package, and a flag.  -> float,
    bool [LAYERS].
    """
    names = [name for name in LAYER_NAMES if name in grads]
    if not names:
        zeros = next(iter(grads.values())).new_zeros(len(LAYER_NAMES))
        return zeros, zeros.bool()
    health, *_ = layer_health(*gradient_shares([grads[name] for name in names]))
    rows = constant_table(
        tuple(LAYER_NAMES.index(name) for name in names), torch.int64, health.device
    )
    empty = health.new_zeros(len(LAYER_NAMES))
    return empty.index_copy(0, rows, health), empty.bool().index_fill(0, rows, True)


def gradient_shares(layers: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Per layer, the shares of elements that are 0, and that are large; whether all are finite.  ->
    each [L].
    """
    flat = torch.cat([layer.flatten() for layer in layers])
    sizes = [layer.numel() for layer in layers]
    flags = torch.stack((flat == 0, flat.abs() > LARGE_GRADIENT, ~flat.isfinite()))
    counts = [part.sum(-1) for part in torch.split(flags, sizes, dim=-1)]
    zero, large, broken = torch.stack(counts, dim=-1).unbind()
    number = constant_table(tuple(sizes), flat.dtype, flat.device)
    return zero / number, large / number, broken == 0
