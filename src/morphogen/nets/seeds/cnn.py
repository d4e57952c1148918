"""CNN blueprints: what grows in a slot, as a delta on the features; all seeds of a slot at once.

Blueprints that do the same at some point do it in one call: a grouped convolution of twice the rows is far from twice
the time.

Every delta is exactly 0 at birth, through a zero scale after the last normalisation (or a zero last layer), and no ReLU
follows it: so a new seed changes nothing and yet every parameter gets a gradient.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import ops
from morphogen.nets.layout import Layout, Leaf, Leaves, fan_in, once
from morphogen.vocab.blueprint import COMPUTED, Blueprint, squeeze, waist
from morphogen.vocab.slot import groups


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


def fed(parts: dict[Blueprint, Leaves]) -> list[int]:
    """Numbers of seeds that take their inputs together.  parts: [R_b, *shape] per blueprint, as `COMPUTED` has them."""
    return [sum(next(iter(parts[b].values())).shape[0] for b in kinds) for kinds in _together(parts)]


def deltas(parts: dict[Blueprint, Leaves], inputs: list[Tensor]) -> list[Tensor]:
    """What the seeds of a slot add to their input, in blocks: one after the other, in the order of `COMPUTED`.

    Shapes: parts [R_b, *shape] per blueprint, in that order; inputs [B, H, W, n, C] each, as `fed` says -> the same.
    """
    x = {kinds[0]: found for kinds, found in zip(_together(parts), inputs, strict=True)}
    ends = {**_wide(parts, x), **_point(parts, x)}
    ends |= {b: _ENDS[b](parts[b], x[b]) for b in parts if b in _ENDS}
    normal = ops.group_norm(list(ends.values()), groups=groups(inputs[0].shape[-1])) if ends else ()
    found = dict(zip(ends, normal, strict=True))
    if Blueprint.NORM in parts:
        found[Blueprint.NORM] = _norm(parts[Blueprint.NORM], x[Blueprint.NORM], found[Blueprint.NORM])
    if Blueprint.ATTENTION in parts:
        found[Blueprint.ATTENTION] = _attention(parts[Blueprint.ATTENTION], x[Blueprint.ATTENTION])
    return [found[b] for b in COMPUTED if b in found]


def _together(parts: dict[Blueprint, Leaves]) -> list[list[Blueprint]]:
    wide = [b for b in parts if b in _WIDE]
    return [*([wide] if wide else []), *([b] for b in parts if b not in wide)]


def gate(p: Leaves, pooled: Tensor) -> Tensor:
    """Openness of the gates per sample.  p [R, *shape], pooled [B, R, C], mean over H, W -> [B, R] in (0, 1)."""
    return torch.sigmoid(ops.perceptron(pooled, p["v1"], p["c1"], p["v2"], p["c2"])).squeeze(-1)


def _end(z: Tensor, *parts: Leaves) -> ops.Block:
    """A normalisation, a ReLU and a scale, of seeds that lie side by side."""
    bias, scale = (ops.join([own[name] for own in parts]) for name in ("bias", "scale"))
    return ops.Block(z, None, bias, scale, floor=0.0)


def _wide(parts: dict[Blueprint, Leaves], x: dict[Blueprint, Tensor]) -> dict[Blueprint, ops.Block]:
    """3x3: conv_light, and conv_heavy, which has one more of them in front."""
    kinds = [b for b in _WIDE if b in parts]
    if not kinds:
        return {}
    weight = ops.join([parts[b]["conv0" if b is Blueprint.CONV_HEAVY else "conv"] for b in kinds])
    z = ops.stacked_conv(x[kinds[0]], weight)
    if Blueprint.CONV_HEAVY not in parts:
        return {Blueprint.CONV_LIGHT: _end(z, parts[Blueprint.CONV_LIGHT])}
    heavy = parts[Blueprint.CONV_HEAVY]
    rows = heavy["bias"].shape[0]
    *light, first = z.split([weight.shape[0] - rows, rows][-len(kinds) :], ops.ROWS)
    middle = ops.Block(first, heavy["gain0"], heavy["bias0"], floor=0.0)
    (h,) = ops.group_norm([middle], groups=groups(z.shape[-1]))
    made = {Blueprint.CONV_HEAVY: _end(ops.stacked_conv(h, heavy["conv"]), heavy)}
    return {Blueprint.CONV_LIGHT: _end(light[0], parts[Blueprint.CONV_LIGHT]), **made} if light else made


def _point(parts: dict[Blueprint, Leaves], x: dict[Blueprint, Tensor]) -> dict[Blueprint, ops.Block]:
    """1x1: conv_small, and depthwise, whose channels are filtered one by one before; together, by the first of them."""
    kinds = [b for b in _POINT if b in parts]
    if not kinds:
        return {}
    h = [ops.stacked_conv(x[b], parts[b]["dw"]) if b is Blueprint.DEPTHWISE else x[b] for b in kinds]
    z = ops.stacked_conv(ops.join(h, ops.ROWS), ops.join([parts[b]["conv"] for b in kinds]))
    return {kinds[0]: _end(z, *(parts[b] for b in kinds))}


def _bottleneck(p: Leaves, x: Tensor) -> ops.Block:
    z = F.silu(ops.stacked_conv(x, p["down"]))
    return ops.Block(ops.stacked_conv(F.silu(ops.stacked_conv(z, p["mid"])), p["up"]), p["gain"], p["bias"])


def _attention(p: Leaves, x: Tensor) -> Tensor:
    z = ops.perceptron(x.mean((1, 2)), p["w1"], None, p["w2"], p["b2"])
    return x * torch.tanh(z / 2)[:, None, None]


def _norm(p: Leaves, x: Tensor, normal: Tensor) -> Tensor:
    return torch.tanh(p["w"]).unsqueeze(-1).expand_as(p["bias"]).contiguous() * (normal - x)


_WIDE = (Blueprint.CONV_LIGHT, Blueprint.CONV_HEAVY)
_POINT = (Blueprint.CONV_SMALL, Blueprint.DEPTHWISE)
_ENDS: dict[Blueprint, Callable[[Leaves, Tensor], ops.Block]] = {  # those that end in a normalisation of their own
    Blueprint.BOTTLENECK: _bottleneck,
    Blueprint.NORM: lambda p, x: ops.Block(x, p["gain"], p["bias"]),
}
