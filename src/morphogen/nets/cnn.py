"""CNN networks, R at once: hosts of convolution, normalisation and ReLU with a linear head; blueprints of seeds.

A seed is a delta on the features of its slot; all seeds of a slot are computed at once.  Blueprints share a call where
they compute the same layer: a grouped convolution of twice the rows takes far less than twice the time.

Every delta is exactly 0 at birth, through a zero scale after the last normalisation (or a zero last layer) that no ReLU
follows: a new seed changes nothing, and every parameter gets a gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import ops
from morphogen.nets.net import Leaves, ParamLayout, ParamLeaf, cache_layout, fan_in_leaf
from morphogen.rules.counts import used_channels
from morphogen.state.env import Instance
from morphogen.vocab.blueprint import COMPUTE_ORDER, Blueprint, attention_width, bottleneck_width
from morphogen.vocab.slot import CnnSpec, norm_groups

_MASKED = -1e4  # logit of an unused class


@cache_layout
def host_layout(host: CnnSpec) -> ParamLayout:
    """Return the leaves of one host in storage order."""
    leaves: list[ParamLeaf] = []
    before = host.channels_in
    for i, channels in enumerate(host.channels):
        shape = (channels, before, host.kernel, host.kernel)
        leaves += [
            fan_in_leaf(f"block{i}.conv", shape, before * host.kernel**2),
            ParamLeaf(f"block{i}.gain", (channels,), fill=1.0),
            ParamLeaf(f"block{i}.bias", (channels,)),
        ]
        before = channels
    leaves += [
        fan_in_leaf("head.weight", (host.classes, before), before),
        fan_in_leaf("head.bias", (host.classes,), before),
    ]
    return ParamLayout(tuple(leaves))


class InstanceMasks(NamedTuple):
    """Masks by which instances restrict hosts: channels, kernel taps and classes in use.  Rows = envs."""

    channels: tuple[Tensor, ...]  # [R, C_i], 1 or 0
    taps: tuple[Tensor, ...]  # [R, C_i, 1, kernel, kernel], 1 for taps in reach of channels in use, else 0
    inverse_count: tuple[Tensor, ...]  # [R, groups], 1 / (unmasked elements of a sample and group), 0 for 0
    classes: Tensor  # bool [R, classes], class in use


def build_masks(instance: Instance, host: CnnSpec, like: Tensor) -> InstanceMasks:
    """Build the masks of every env, in the dtype of `like`."""
    masks, inverse_counts, size = [], [], host.size
    for i, channels in enumerate(host.channels):
        mask = torch.arange(channels, device=like.device) < used_channels(instance.width, channels).unsqueeze(-1)
        masks.append(mask.to(like.dtype))
        count = masks[-1].unflatten(-1, (norm_groups(channels), -1)).sum(-1) * size**2
        inverse_counts.append(torch.where(count > 0, 1.0 / count.clamp(min=1.0), 0.0))
        size //= 2 if i < host.pools else 1
    classes = torch.arange(host.classes, device=like.device) < instance.classes.unsqueeze(-1)
    distance = (torch.arange(host.kernel, device=like.device) - host.kernel // 2).abs()
    in_reach = torch.maximum(distance.unsqueeze(-1), distance) <= instance.reach[:, None, None]
    reach = in_reach.to(like.dtype)[:, None, None]
    taps = tuple(mask[..., None, None, None] * reach for mask in masks)
    return InstanceMasks(tuple(masks), taps, tuple(inverse_counts), classes)


class HostRows(NamedTuple):
    """Networks of a pass: parameters and masks of the envs, and the env of each row (None: row = env)."""

    leaves: dict[str, Tensor]  # [E, *shape]
    masks: InstanceMasks
    env: Tensor | None

    def pick(self, values: Tensor) -> Tensor:
        """Select values of the envs for every row.  values [E, ...] -> [R, ...]."""
        return values if self.env is None else values.index_select(0, self.env)


def block(i: int, x: Tensor, rows: HostRows, host: CnnSpec) -> Tensor:
    """Convolution, normalisation, ReLU and width mask of block i.

    Shapes: x [B, H, W, R, C_in], or [B, H, W, 1, C_in] shared by all rows -> [B, H, W, R, C_i].
    """
    mask = rows.pick(rows.masks.channels[i])
    weight, gain, bias = (rows.pick(rows.leaves[f"block{i}.{name}"]) for name in ("conv", "gain", "bias"))
    # Parameters are masked instead of activations: equal zeros, also in gradients, on far smaller tensors.
    weight = weight * rows.pick(rows.masks.taps[i])
    gain, bias = gain * mask, bias * mask
    z = ops.stacked_conv(x, weight)
    if host.norm == "batch":
        return F.relu(ops.batch_norm(z, gain, bias))
    inverse_count = rows.pick(rows.masks.inverse_count[i])
    return ops.masked_group_norm(z, gain, bias, channel_mask=mask, inverse_count=inverse_count, floor=0.0)


def head(x: Tensor, rows: HostRows) -> Tensor:
    """Return logits; unused classes have -1e4.  x [B, H, W, R, C] -> [R, B, classes]."""
    leaves, masks = rows.leaves, rows.masks
    weight, bias, used = map(rows.pick, (leaves["head.weight"], leaves["head.bias"], masks.classes))
    logits = ops.linear(ops.spatial_mean(x), weight, bias)
    return torch.where(used.unsqueeze(1), logits, _MASKED)


def _conv_leaf(name: str, channels_in: int, channels_out: int, kernel: int) -> ParamLeaf:
    return fan_in_leaf(name, (channels_out, channels_in, kernel, kernel), channels_in * kernel**2)


@cache_layout
def seed_layout(blueprint: Blueprint, channels: int) -> ParamLayout:
    """Return the leaves of a blueprint in storage order."""
    c, r, q = channels, attention_width(channels), bottleneck_width(channels)
    gain, bias, scale = ParamLeaf("gain", (c,), fill=1.0), ParamLeaf("bias", (c,)), ParamLeaf("scale", (c,))
    leaves = {
        Blueprint.CONV_LIGHT: (_conv_leaf("conv", c, c, 3), bias, scale),
        Blueprint.ATTENTION: (fan_in_leaf("w1", (r, c), c), ParamLeaf("w2", (c, r)), ParamLeaf("b2", (c,))),
        Blueprint.NORM: (ParamLeaf("w", ()), gain, bias),
        Blueprint.DEPTHWISE: (fan_in_leaf("dw", (c, 1, 3, 3), 9), _conv_leaf("conv", c, c, 1), bias, scale),
        Blueprint.BOTTLENECK: (
            *(_conv_leaf("down", c, q, 1), _conv_leaf("mid", q, q, 3), _conv_leaf("up", q, c, 1)),
            *(ParamLeaf("gain", (c,)), bias),
        ),
        Blueprint.CONV_SMALL: (_conv_leaf("conv", c, c, 1), bias, scale),
        Blueprint.CONV_HEAVY: (
            *(_conv_leaf("conv0", c, c, 3), ParamLeaf("gain0", (c,), fill=1.0), ParamLeaf("bias0", (c,))),
            *(_conv_leaf("conv", c, c, 3), bias, scale),
        ),
    }
    return ParamLayout(leaves[blueprint])


@cache_layout
def gate_layout(channels: int) -> ParamLayout:
    """Return the leaves of the gate network, which is initially open at about 0.88."""
    hidden = bottleneck_width(channels)
    first = (fan_in_leaf("v1", (hidden, channels), channels), fan_in_leaf("c1", (hidden,), channels))
    return ParamLayout((*first, fan_in_leaf("v2", (1, hidden), hidden), ParamLeaf("c2", (1,), fill=2.0)))


def input_sizes(parts: dict[Blueprint, Leaves]) -> list[int]:
    """Return the numbers of seeds that share an input block.  parts: [R_b, *shape] per blueprint in `COMPUTE_ORDER`."""
    return [sum(next(iter(parts[b].values())).shape[0] for b in kinds) for kinds in _input_groups(parts)]


def seed_deltas(parts: dict[Blueprint, Leaves], inputs: list[Tensor]) -> list[Tensor]:
    """Return the deltas of the seeds of a slot, in blocks in `COMPUTE_ORDER`.

    Shapes: parts [R_b, *shape] per blueprint, in that order; inputs [B, H, W, n, C] each, n from `input_sizes` -> like
    inputs.
    """
    x = {kinds[0]: block for kinds, block in zip(_input_groups(parts), inputs, strict=True)}
    blocks = {**_conv3x3_blocks(parts, x), **_conv1x1_blocks(parts, x)}
    blocks |= {b: _NORM_BLOCKS[b](parts[b], x[b]) for b in parts if b in _NORM_BLOCKS}
    normal = ops.group_norm(list(blocks.values()), groups=norm_groups(inputs[0].shape[-1])) if blocks else ()
    deltas = dict(zip(blocks, normal, strict=True))
    if Blueprint.NORM in parts:
        p = parts[Blueprint.NORM]
        gain = torch.tanh(p["w"]).unsqueeze(-1).expand_as(p["bias"]).contiguous()
        deltas[Blueprint.NORM] = gain * (deltas[Blueprint.NORM] - x[Blueprint.NORM])
    if Blueprint.ATTENTION in parts:
        p, features = parts[Blueprint.ATTENTION], x[Blueprint.ATTENTION]
        z = ops.perceptron(features.mean((1, 2)), p["w1"], None, p["w2"], p["b2"])
        deltas[Blueprint.ATTENTION] = features * torch.tanh(z / 2)[:, None, None]
    return [deltas[b] for b in COMPUTE_ORDER if b in deltas]


def _input_groups(parts: dict[Blueprint, Leaves]) -> list[list[Blueprint]]:
    shared = [b for b in parts if b in _CONV3X3]
    return [*([shared] if shared else []), *([b] for b in parts if b not in shared)]


def gate_openness(p: Leaves, pooled: Tensor) -> Tensor:
    """Openness of the gates per sample.  p [R, *shape], pooled [B, R, C], mean over H, W -> [B, R] in (0, 1)."""
    return torch.sigmoid(ops.perceptron(pooled, p["v1"], p["c1"], p["v2"], p["c2"])).squeeze(-1)


def _scaled_block(z: Tensor, *parts: Leaves) -> ops.NormBlock:
    """Normalisation, ReLU and scale of adjacent seeds."""
    bias, scale = (ops.concat([leaves[name] for leaves in parts]) for name in ("bias", "scale"))
    return ops.NormBlock(z, None, bias, scale, floor=0.0)


def _conv3x3_blocks(parts: dict[Blueprint, Leaves], x: dict[Blueprint, Tensor]) -> dict[Blueprint, ops.NormBlock]:
    """3x3: conv_light, and conv_heavy, which has a second convolution before."""
    kinds = [b for b in _CONV3X3 if b in parts]
    if not kinds:
        return {}
    weight = ops.concat([parts[b]["conv0" if b is Blueprint.CONV_HEAVY else "conv"] for b in kinds])
    z = ops.stacked_conv(x[kinds[0]], weight)
    if Blueprint.CONV_HEAVY not in parts:
        return {Blueprint.CONV_LIGHT: _scaled_block(z, parts[Blueprint.CONV_LIGHT])}
    heavy = parts[Blueprint.CONV_HEAVY]
    rows = heavy["bias"].shape[0]
    *light, first = z.split([weight.shape[0] - rows, rows][-len(kinds) :], ops.ROWS)
    middle = ops.NormBlock(first, heavy["gain0"], heavy["bias0"], floor=0.0)
    (h,) = ops.group_norm([middle], groups=norm_groups(z.shape[-1]))
    blocks = {Blueprint.CONV_LIGHT: _scaled_block(light[0], parts[Blueprint.CONV_LIGHT])} if light else {}
    return {**blocks, Blueprint.CONV_HEAVY: _scaled_block(ops.stacked_conv(h, heavy["conv"]), heavy)}


def _conv1x1_blocks(parts: dict[Blueprint, Leaves], x: dict[Blueprint, Tensor]) -> dict[Blueprint, ops.NormBlock]:
    """1x1: conv_small, and depthwise after its filters; one block under the first of the two."""
    kinds = [b for b in _CONV1X1 if b in parts]
    if not kinds:
        return {}
    h = [ops.stacked_conv(x[b], parts[b]["dw"]) if b is Blueprint.DEPTHWISE else x[b] for b in kinds]
    z = ops.stacked_conv(ops.concat(h, ops.ROWS), ops.concat([parts[b]["conv"] for b in kinds]))
    return {kinds[0]: _scaled_block(z, *(parts[b] for b in kinds))}


def _bottleneck(p: Leaves, x: Tensor) -> ops.NormBlock:
    z = F.silu(ops.stacked_conv(x, p["down"]))
    return ops.NormBlock(ops.stacked_conv(F.silu(ops.stacked_conv(z, p["mid"])), p["up"]), p["gain"], p["bias"])


_CONV3X3 = (Blueprint.CONV_LIGHT, Blueprint.CONV_HEAVY)
_CONV1X1 = (Blueprint.CONV_SMALL, Blueprint.DEPTHWISE)
_NORM_BLOCKS: dict[Blueprint, Callable[[Leaves, Tensor], ops.NormBlock]] = {  # others that end in a normalisation
    Blueprint.BOTTLENECK: _bottleneck,
    Blueprint.NORM: lambda p, x: ops.NormBlock(x, p["gain"], p["bias"]),
}
