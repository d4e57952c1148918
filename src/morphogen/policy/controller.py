"""Network of the policy as functions of a flat dict of parameters: encoder, memory, tables of
logits, value.

No parameter has the number of slots in its shape; permuting slots permutes the slot outputs and
nothing else.  SiLU and LayerNorm throughout, no dropout.  `[...]` is any leading shape, `H` hidden
units, `W = max(8, H // 2)`.
"""

import math

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
ParamShapes = dict[str, tuple[int, ...]]
_NO_SEED = len(Blueprint)  # row of the embedding for an empty slot
_ENABLED = column_index(SLOT)["enabled"]
_NEVER_MAX = -1e9


_GAINS = {  # of orthogonal weights
    "core.w_ih": 1.0,
    "core.w_hh": 1.0,
    "op.out.weight": 0.01,
    "leaf.out.weight": 0.01,
    "value.out.weight": 0.1,
    "contribution.out.weight": 0.1,
}


def _layers(sizes: dict[str, tuple[int, ...]]) -> ParamShapes:
    """Return the parameters of layers by name: linear ones by inputs and outputs, normalisations by
    width.
    """
    shapes: ParamShapes = {}
    for name, size in sizes.items():
        shapes[f"{name}.weight"] = size[::-1]
        shapes[f"{name}.bias"] = size[-1:]
    return shapes


def param_shapes(hidden: int, blueprint_dim: int, *, contribution: bool) -> ParamShapes:
    """Return the shapes of all parameters of a network of this size."""
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
    return {
        "embed.weight": (_NO_SEED + 1, blueprint_dim),
        **_layers(encoders),
        "core.w_ih": (4 * hidden, hidden),
        "core.w_hh": (4 * hidden, hidden),
        "core.bias": (4 * hidden,),
        **_layers(heads),
    }


def _init_leaf(name: str, shape: tuple[int, ...], stream: Tensor) -> Tensor:
    """Return the initial value of a parameter.  stream int64 [5] -> float32 of this shape."""
    if len(shape) == 1:
        one = float(name.endswith("norm.weight"))
        values = torch.full(shape, one, dtype=torch.float32, device=stream.device)
        if name == "core.bias":
            values.chunk(4)[1].fill_(1.0)  # forget gates are open
        return values
    noise = rng.normal(stream, math.prod(shape)).view(shape)
    if name == "embed.weight":
        return 0.02 * noise
    # Orthonormal rows or columns, whichever are fewer, uniformly distributed.
    is_tall = shape[0] >= shape[1]
    with one_thread(stream.device):
        q, r = torch.linalg.qr((noise if is_tall else noise.T).double())
    q = (q * r.diagonal().sign()).float()
    return _GAINS.get(name, math.sqrt(2.0)) * (q if is_tall else q.T.contiguous())


def init_params(stream_key: Tensor, shapes: ParamShapes) -> ControllerParams:
    """Return initial parameters, each from a separate stream.  stream_key int64 [3]."""
    return {
        name: _init_leaf(name, shape, rng.stream(stream_key, Purpose.POLICY_INIT, minibatch=i))
        for i, (name, shape) in enumerate(shapes.items())
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
