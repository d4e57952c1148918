"""Blueprints of CNN hosts.  A seed is a delta on the features of its slot; all seeds of a slot are
computed at once.

Blueprints share a call where they compute the same layer: a grouped convolution of twice the rows
takes far less than twice the time.  Every delta is exactly 0 at birth, through a zero scale after
the last normalisation (or a zero last layer) that no ReLU follows: a new seed changes nothing, and
every parameter gets a gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from morphogen.config.host import norm_groups, seed_macs
from morphogen.hosts.layout import Leaves, ParamLeaf, fan_in_leaf
from morphogen.hosts.seed_module import SeedModule
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.elementwise import silu
from morphogen.kernels.linear import place_linear
from morphogen.kernels.norm import NormBlock, group_norm
from morphogen.kernels.sums import scale_channels, spatial_mean
from morphogen.vocab.blueprint import Blueprint, attention_width, bottleneck_width
from morphogen.vocab.slot import SlotSpec


@dataclass(frozen=True, slots=True)
class CnnBlueprint(SeedModule):
    """A blueprint of the package for features [B, H, W, R, C]."""

    code: Blueprint
    fits = ("images",)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name in configs, events and tables."""
        return self.code.label

    def leaves(self, channels: int) -> tuple[ParamLeaf, ...]:
        """Return the parameters of one seed."""
        return _seed_leaves(channels)[self.code]

    def delta(self, params: Leaves, x: Tensor) -> Tensor:
        """Return the deltas of R seeds.  x [B, H, W, R, C] -> like x."""
        return cnn_deltas({self.code: params}, {self.code: x})[self.code]

    def macs(self, slot: SlotSpec) -> int:
        """Multiply-accumulates of one seed for one sample."""
        return seed_macs(self.code, slot)


_ROWS = -2  # axis of the networks
CONV_LIGHT, ATTENTION, NORM, DEPTHWISE = (CnnBlueprint(Blueprint(code)) for code in range(1, 5))
BOTTLENECK, CONV_SMALL, CONV_HEAVY = (CnnBlueprint(Blueprint(code)) for code in range(5, 8))


def _conv_leaf(name: str, channels_in: int, channels_out: int, kernel: int) -> ParamLeaf:
    return fan_in_leaf(name, (channels_out, channels_in, kernel, kernel), channels_in * kernel**2)


def _seed_leaves(channels: int) -> dict[Blueprint, tuple[ParamLeaf, ...]]:
    """Return the parameters of every blueprint, in storage order."""
    c = channels
    r = attention_width(channels)
    q = bottleneck_width(channels)
    gain = ParamLeaf("gain", (c,), fill=1.0)
    bias = ParamLeaf("bias", (c,))
    scale = ParamLeaf("scale", (c,))
    return {
        Blueprint.CONV_LIGHT: (_conv_leaf("conv", c, c, 3), bias, scale),
        Blueprint.ATTENTION: (
            fan_in_leaf("w1", (r, c), c),
            ParamLeaf("w2", (c, r)),
            ParamLeaf("b2", (c,)),
        ),
        Blueprint.NORM: (ParamLeaf("w", ()), gain, bias),
        Blueprint.DEPTHWISE: (
            fan_in_leaf("dw", (c, 1, 3, 3), 9),
            _conv_leaf("conv", c, c, 1),
            bias,
            scale,
        ),
        Blueprint.BOTTLENECK: (
            _conv_leaf("down", c, q, 1),
            _conv_leaf("mid", q, q, 3),
            _conv_leaf("up", q, c, 1),
            ParamLeaf("gain", (c,)),
            bias,
        ),
        Blueprint.CONV_SMALL: (_conv_leaf("conv", c, c, 1), bias, scale),
        Blueprint.CONV_HEAVY: (
            _conv_leaf("conv0", c, c, 3),
            ParamLeaf("gain0", (c,), fill=1.0),
            ParamLeaf("bias0", (c,)),
            _conv_leaf("conv", c, c, 3),
            bias,
            scale,
        ),
    }


def cnn_deltas(
    parts: Mapping[Blueprint, Leaves], x: Mapping[Blueprint, Tensor]
) -> dict[Blueprint, Tensor]:
    """Return the deltas of the seeds of a slot, in blocks by their first blueprint.

    Shapes: parts [R_b, *shape], x [B, H, W, R_b, C] per blueprint, in `COMPUTE_ORDER` -> [B, H, W,
    m, C] each; `conv_small` and `depthwise` are in one block.
    """
    blocks = {**_conv3x3_blocks(parts, x), **_conv1x1_blocks(parts, x)}
    if Blueprint.BOTTLENECK in parts:
        blocks[Blueprint.BOTTLENECK] = _bottleneck(
            parts[Blueprint.BOTTLENECK], x[Blueprint.BOTTLENECK]
        )
    if Blueprint.NORM in parts:
        p = parts[Blueprint.NORM]
        blocks[Blueprint.NORM] = NormBlock(x[Blueprint.NORM], p["gain"], p["bias"])
    channels = next(iter(x.values())).shape[-1]
    normal = group_norm(list(blocks.values()), groups=norm_groups(channels)) if blocks else ()
    deltas = dict(zip(blocks, normal, strict=True))
    if Blueprint.NORM in parts:
        p = parts[Blueprint.NORM]
        gain = torch.tanh(p["w"]).unsqueeze(-1).expand_as(p["bias"])
        deltas[Blueprint.NORM] = scale_channels(deltas[Blueprint.NORM] - x[Blueprint.NORM], gain)
    if Blueprint.ATTENTION in parts:
        p = parts[Blueprint.ATTENTION]
        features = x[Blueprint.ATTENTION]
        hidden = silu(place_linear(spatial_mean(features).detach(), p["w1"]))
        z = place_linear(hidden, p["w2"], p["b2"]).transpose(0, 1)
        deltas[Blueprint.ATTENTION] = scale_channels(features, torch.tanh(z / 2))
    return deltas


def _concat(parts: tuple[Tensor, ...] | list[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _scaled_block(z: Tensor, *parts: Leaves) -> NormBlock:
    """Normalisation, ReLU and scale of adjacent seeds."""
    bias, scale = [_concat([leaves[name] for leaves in parts]) for name in ("bias", "scale")]
    return NormBlock(z, None, bias, scale, relu=True)


def _conv3x3_blocks(
    parts: Mapping[Blueprint, Leaves], x: Mapping[Blueprint, Tensor]
) -> dict[Blueprint, NormBlock]:
    """3x3: conv_light, and conv_heavy, which has a second convolution before."""
    kinds = [b for b in _CONV3X3 if b in parts]
    if not kinds:
        return {}
    weight = _concat([parts[b]["conv0" if b is Blueprint.CONV_HEAVY else "conv"] for b in kinds])
    z = stacked_conv(_concat([x[b] for b in kinds], _ROWS), weight)
    sizes = [parts[b]["bias"].shape[0] for b in kinds]
    features = dict(zip(kinds, z.split_with_sizes(sizes, _ROWS), strict=True))
    if Blueprint.CONV_HEAVY in features:
        heavy = parts[Blueprint.CONV_HEAVY]
        first = features[Blueprint.CONV_HEAVY]
        middle = NormBlock(first, heavy["gain0"], heavy["bias0"], relu=True)
        (h,) = group_norm([middle], groups=norm_groups(z.shape[-1]))
        features[Blueprint.CONV_HEAVY] = stacked_conv(h, heavy["conv"])
    return {b: _scaled_block(features[b], parts[b]) for b in kinds}


def _conv1x1_blocks(
    parts: Mapping[Blueprint, Leaves], x: Mapping[Blueprint, Tensor]
) -> dict[Blueprint, NormBlock]:
    """1x1: conv_small, and depthwise after its filters; one block under the first of the two."""
    kinds = [b for b in _CONV1X1 if b in parts]
    if not kinds:
        return {}
    h = [stacked_conv(x[b], parts[b]["dw"]) if b is Blueprint.DEPTHWISE else x[b] for b in kinds]
    z = stacked_conv(_concat(h, _ROWS), _concat([parts[b]["conv"] for b in kinds]))
    return {kinds[0]: _scaled_block(z, *(parts[b] for b in kinds))}


def _bottleneck(p: Leaves, x: Tensor) -> NormBlock:
    z = silu(stacked_conv(x, p["down"]))
    return NormBlock(stacked_conv(silu(stacked_conv(z, p["mid"])), p["up"]), p["gain"], p["bias"])


_CONV3X3 = (Blueprint.CONV_LIGHT, Blueprint.CONV_HEAVY)
_CONV1X1 = (Blueprint.CONV_SMALL, Blueprint.DEPTHWISE)
