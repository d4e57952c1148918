"""Network of the policy as functions of a flat dict of parameters: encoder, memory, tables of
logits, value.

No parameter has the number of slots in its shape; permuting slots permutes the slot outputs and
nothing else.  SiLU and LayerNorm throughout, no dropout.  `[...]` is any leading shape, `H` hidden
units, `W = max(8, H // 2)`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels import one_thread
from morphogen.policy.distribution import (
    LOGITS,
    SCORES,
    LogitTables,
    Support,
    padded_outputs,
    split_outputs,
)
from morphogen.state import rng
from morphogen.state.tree_ops import choose
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.observation import ENV, INSTANCE, SLOT, column_index
from morphogen.vocab.purpose import Purpose

ControllerParams = dict[str, Tensor]
_NO_SEED = len(Blueprint)  # row of the embedding for an empty slot
_ENABLED = column_index(SLOT)["enabled"]
_NEVER_MAX = -1e9


@dataclass(frozen=True, slots=True)
class ControllerLeaf:
    """One parameter and its initial value: `orthogonal` and `normal` with a gain, `ones`, `zeros`,
    `forget` (LSTM).
    """

    name: str
    shape: tuple[int, ...]
    initial: str
    gain: float = 1.0


_GAINS = {"op.out": 0.01, "leaf.out": 0.01, "value.out": 0.1, "contribution.out": 0.1}


def _layers(sizes: dict[str, tuple[int, ...]]) -> list[ControllerLeaf]:
    """Return the leaves of layers by name: linear ones by inputs and outputs, normalisations by
    width.
    """
    leaves: list[ControllerLeaf] = []
    for name, size in sizes.items():
        initial = "ones" if len(size) == 1 else "orthogonal"
        gain = _GAINS.get(name, math.sqrt(2.0))
        leaves.append(ControllerLeaf(f"{name}.weight", size[::-1], initial, gain))
        leaves.append(ControllerLeaf(f"{name}.bias", size[-1:], "zeros"))
    return leaves


def controller_leaves(
    hidden: int, blueprint_dim: int, *, contribution: bool
) -> tuple[ControllerLeaf, ...]:
    """Return all parameters of a network of this size."""
    wide = max(8, hidden // 2)
    encoders = {
        "base.in": (len(ENV) + len(INSTANCE), wide),
        "base.norm": (wide,),
        "base.out": (wide, wide),
        "slot.in": (len(SLOT) + blueprint_dim, wide),
        "slot.norm": (wide,),
        "slot.out": (wide, wide),
        "mix.in": (3 * wide, hidden),
        "mix.norm": (hidden,),
    }
    heads = {
        "core.norm": (hidden,),
        "op.in": (hidden, wide),
        "op.out": (wide, len(Op)),
        "context.in": (wide + hidden, wide),
        "context.norm": (wide,),
        "leaf.out": (wide, SCORES + LOGITS),
        "value.in": (hidden, wide),
        "value.norm": (wide,),
        "value.mid": (wide, wide),
        "value.out": (wide, 1),
    }
    if contribution:
        heads["contribution.out"] = (wide, 1)
    return (
        ControllerLeaf("embed.weight", (_NO_SEED + 1, blueprint_dim), "normal", 0.02),
        *_layers(encoders),
        ControllerLeaf("core.w_ih", (4 * hidden, hidden), "orthogonal"),
        ControllerLeaf("core.w_hh", (4 * hidden, hidden), "orthogonal"),
        ControllerLeaf("core.bias", (4 * hidden,), "forget"),
        *_layers(heads),
    )


def init_leaf(leaf: ControllerLeaf, stream: Tensor) -> Tensor:
    """Return the initial value of a parameter.  stream int64 [5] -> float32 of the leaf's shape."""
    if leaf.initial in ("zeros", "ones", "forget"):
        one = float(leaf.initial == "ones")
        values = torch.full(leaf.shape, one, dtype=torch.float32, device=stream.device)
        if leaf.initial == "forget":
            values.chunk(4)[1].fill_(1.0)
        return values
    noise = rng.normal(stream, math.prod(leaf.shape)).view(leaf.shape)
    if leaf.initial == "normal":
        return leaf.gain * noise
    # Orthonormal rows or columns, whichever are fewer, uniformly distributed.
    is_tall = leaf.shape[0] >= leaf.shape[1]
    with one_thread(stream.device):
        q, r = torch.linalg.qr((noise if is_tall else noise.T).double())
    q = (q * r.diagonal().sign()).float()
    return leaf.gain * (q if is_tall else q.T.contiguous())


def init_params(stream_key: Tensor, parameters: tuple[ControllerLeaf, ...]) -> ControllerParams:
    """Return initial parameters, each from a separate stream.  stream_key int64 [3]."""
    streams = (
        rng.stream(stream_key, Purpose.POLICY_INIT, minibatch=i) for i in range(len(parameters))
    )
    return {
        leaf.name: init_leaf(leaf, stream) for leaf, stream in zip(parameters, streams, strict=True)
    }


def encode(net: ControllerParams, features: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the encoded state, its part of the gates of the memory, and one code per slot.

    Shapes: env [..., 52], instance [..., 8], slots [..., S, 46] normalised, blueprints int64 [...,
    S] -> x [..., H], gates [..., 4 H], u [..., S, W].
    """
    slots = features["slots"]
    blueprints = features["blueprints"]
    base = _encoder(net, "base", torch.cat((features["env"], features["instance"]), dim=-1))
    embedded = F.embedding(choose(blueprints < 0, _NO_SEED, blueprints), net["embed.weight"])
    u = _encoder(net, "slot", torch.cat((slots, embedded), dim=-1))
    enabled = slots[..., _ENABLED, None] != 0
    has_enabled = enabled.any(-2)
    mean = choose(enabled, u, 0.0).sum(-2) / enabled.sum(-2).clamp(min=1)
    highest = choose(has_enabled, choose(enabled, u, _NEVER_MAX).amax(-2), 0.0)
    x = F.silu(_linear_norm(net, "mix", torch.cat((base, mean, highest), dim=-1)))
    return x, F.linear(x, net["core.w_ih"], net["core.bias"]), u


def heads(
    net: ControllerParams, x: Tensor, h: Tensor, u: Tensor, legal: Support
) -> tuple[LogitTables, Tensor, Tensor | None]:
    """Return the logits of all conditionals, the value, and the predicted contribution.

    Shapes: x, h [..., H], encoded state and memory; u [..., S, W] -> tables; value [...] above the
    running mean of returns, in return units; next contribution of each slot [..., S], points / 10,
    None for a network without this head.
    """
    z = x + F.layer_norm(h, h.shape[-1:], net["core.norm.weight"], net["core.norm.bias"])
    env = z.unsqueeze(-2).expand(*u.shape[:-1], z.shape[-1])
    context = F.silu(_linear_norm(net, "context", torch.cat((u, env), dim=-1)))
    rows = padded_outputs(z.device)  # because padding the layer is cheaper than padding its output
    leaf = F.linear(context, net["leaf.out.weight"][rows], net["leaf.out.bias"][rows])
    op = _linear_layer(net, "op.out", F.silu(_linear_layer(net, "op.in", z)))
    middle = F.silu(_linear_layer(net, "value.mid", F.silu(_linear_norm(net, "value", z))))
    value = _linear_layer(net, "value.out", middle).squeeze(-1)
    predicted = None
    if "contribution.out.weight" in net:
        predicted = _linear_layer(net, "contribution.out", context).squeeze(-1)
    return split_outputs(op, leaf, legal), value, predicted


def _linear_layer(net: ControllerParams, name: str, x: Tensor) -> Tensor:
    return F.linear(x, net[f"{name}.weight"], net[f"{name}.bias"])


def _linear_norm(net: ControllerParams, name: str, x: Tensor) -> Tensor:
    y = _linear_layer(net, f"{name}.in", x)
    return F.layer_norm(y, y.shape[-1:], net[f"{name}.norm.weight"], net[f"{name}.norm.bias"])


def _encoder(net: ControllerParams, name: str, x: Tensor) -> Tensor:
    return _linear_layer(net, f"{name}.out", F.silu(_linear_norm(net, name, x)))
