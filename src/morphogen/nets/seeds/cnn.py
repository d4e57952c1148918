"""CNN blueprints: what grows in a slot, as a delta on the features; R seeds of one kind at once.

Every delta is exactly 0 at birth, through a zero scale after the last normalisation (or a zero last layer), and no ReLU
follows it: so a new seed changes nothing and yet every parameter gets a gradient.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import ops
from morphogen.nets.layout import Layout, Leaf, fan_in, once
from morphogen.vocab.blueprint import Blueprint, squeeze, waist
from morphogen.vocab.slot import groups

Leaves = dict[str, Tensor]


def _conv(name: str, channels_in: int, channels_out: int, kernel: int) -> Leaf:
    return fan_in(name, (channels_out, channels_in, kernel, kernel), channels_in * kernel**2)


@once
def layout(blueprint: Blueprint, channels: int) -> Layout:
    """Leaves of a blueprint in storage order."""
    c, r, q = channels, squeeze(channels), waist(channels)
    gain, bias, scale = Leaf("gain", (c,), fill=1.0), Leaf("bias", (c,)), Leaf("scale", (c,))
    leaves = {
        Blueprint.CONV_LIGHT: (_conv("conv", c, c, 3), bias, scale),
        Blueprint.ATTENTION: (fan_in("w1", (r, c), c), Leaf("w2", (c, r)), Leaf("b2", (c,))),
        Blueprint.NORM: (Leaf("w", ()), gain, bias),
        Blueprint.DEPTHWISE: (fan_in("dw", (c, 1, 3, 3), 9), _conv("conv", c, c, 1), bias, scale),
        Blueprint.BOTTLENECK: (
            *(_conv("down", c, q, 1), _conv("mid", q, q, 3), _conv("up", q, c, 1)),
            *(Leaf("gain", (c,)), bias),
        ),
        Blueprint.CONV_SMALL: (_conv("conv", c, c, 1), bias, scale),
        Blueprint.CONV_HEAVY: (
            *(_conv("conv0", c, c, 3), Leaf("gain0", (c,), fill=1.0), Leaf("bias0", (c,))),
            *(_conv("conv", c, c, 3), bias, scale),
        ),
    }
    return Layout(leaves[blueprint])


@once
def gate_layout(channels: int) -> Layout:
    """Leaves of the gate network; it starts at about .88."""
    hidden = waist(channels)
    first = (fan_in("v1", (hidden, channels), channels), fan_in("c1", (hidden,), channels))
    return Layout((*first, fan_in("v2", (1, hidden), hidden), Leaf("c2", (1,), fill=2.0)))


def delta(blueprint: Blueprint, flat: Tensor, x: Tensor, *, channels: int) -> Tensor:
    """What the seeds of one blueprint add to their input.  flat [R, P_b], x [B, R * C, H, W] -> like x."""
    return _DELTAS[blueprint](layout(blueprint, channels).split(flat), x)


def gate(flat: Tensor, pooled: Tensor) -> Tensor:
    """Openness of the gates per sample.  flat [R, G], pooled [B, R, C], mean over H, W -> [B, R] in (0, 1)."""
    p = gate_layout(pooled.shape[-1]).split(flat)
    hidden = F.silu(ops.linear(pooled, p["v1"], p["c1"]))
    return torch.sigmoid(ops.linear(hidden, p["v2"], p["c2"])).squeeze(-1)


def _rectified(z: Tensor, gain: Tensor | None, bias: Tensor) -> Tensor:
    return F.relu(ops.group_norm(z, gain, bias, groups=groups(bias.shape[-1])))


def _conv_once(p: Leaves, x: Tensor) -> Tensor:
    """conv_light (3x3) and conv_small (1x1)."""
    z = ops.conv2d(x, p["conv"], groups=p["conv"].shape[0])
    return ops.per_channel(p["scale"]) * _rectified(z, None, p["bias"])


def _conv_heavy(p: Leaves, x: Tensor) -> Tensor:
    z = ops.conv2d(x, p["conv0"], groups=p["conv0"].shape[0])
    return _conv_once(p, _rectified(z, p["gain0"], p["bias0"]))


def _depthwise(p: Leaves, x: Tensor) -> Tensor:
    return _conv_once(p, ops.conv2d(x, p["dw"], groups=x.shape[1]))


def _bottleneck(p: Leaves, x: Tensor) -> Tensor:
    rows, channels = p["bias"].shape
    z = F.silu(ops.conv2d(x, p["down"], groups=rows))
    z = ops.conv2d(F.silu(ops.conv2d(z, p["mid"], groups=rows)), p["up"], groups=rows)
    return ops.group_norm(z, p["gain"], p["bias"], groups=groups(channels))


def _attention(p: Leaves, x: Tensor) -> Tensor:
    hidden = F.silu(ops.linear(ops.mean_hw(x, p["b2"].shape[0]), p["w1"]))
    z = ops.linear(hidden, p["w2"], p["b2"])
    return x * torch.tanh(z / 2).flatten(1)[..., None, None]


def _norm(p: Leaves, x: Tensor) -> Tensor:
    rows, channels = p["bias"].shape
    normal = ops.group_norm(x, p["gain"], p["bias"], groups=groups(channels))
    weight = torch.tanh(p["w"]).unsqueeze(-1).expand(rows, channels)
    return ops.per_channel(weight) * (normal - x)


_DELTAS: dict[Blueprint, Callable[[Leaves, Tensor], Tensor]] = {
    Blueprint.CONV_LIGHT: _conv_once,
    Blueprint.ATTENTION: _attention,
    Blueprint.NORM: _norm,
    Blueprint.DEPTHWISE: _depthwise,
    Blueprint.BOTTLENECK: _bottleneck,
    Blueprint.CONV_SMALL: _conv_once,
    Blueprint.CONV_HEAVY: _conv_heavy,
}
