"""CNN host: blocks of convolution, normalisation and ReLU, then a linear head; R networks at once."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import ops
from morphogen.nets.layout import ParamLayout, ParamLeaf, cache_layout, fan_in_leaf
from morphogen.rules.counts import used_channels
from morphogen.state.env import Instance
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
    return ops.masked_group_norm(
        z, gain, bias, channel_mask=mask, inverse_count=rows.pick(rows.masks.inverse_count[i]), floor=0.0
    )


def head(x: Tensor, rows: HostRows) -> Tensor:
    """Return logits; unused classes have -1e4.  x [B, H, W, R, C] -> [R, B, classes]."""
    weight, bias, used = (
        rows.pick(v) for v in (rows.leaves["head.weight"], rows.leaves["head.bias"], rows.masks.classes)
    )
    logits = ops.linear(ops.spatial_mean(x), weight, bias)
    return torch.where(used.unsqueeze(1), logits, _MASKED)
