"""CNN hosts, R at once: blocks of convolution, normalisation and ReLU, and a linear head."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.host import CnnSpec, norm_groups
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.layout import ParamLayout, ParamLeaf, fan_in_leaf
from morphogen.kernels import statistics_dtype
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.linear import linear
from morphogen.kernels.norm import batch_norm, masked_group_norm
from morphogen.kernels.sums import spatial_mean
from morphogen.kernels.take import images_innermost
from morphogen.rules.counts import used_channels
from morphogen.state.env import Instance
from morphogen.state.tree_ops import choose, constant_table


class InstanceMasks(NamedTuple):
    """Masks by which instances restrict hosts: channels and kernel taps in use.  Rows = envs."""

    channels: tuple[Tensor, ...]  # [R, C_i], 1 or 0
    # [R, C_i, 1, kernel, kernel], 1 for taps in reach of channels in use, else 0
    taps: tuple[Tensor, ...]
    # [R, groups], 1 / (unmasked elements of a sample and group), 0 for 0
    inverse_count: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class CnnNetworks:
    """`HostNetworks` of a CNN: a stage before a slot in row 0 is a block, one before a slot in row
    1 is empty.
    """

    host: CnnSpec

    def layout(self) -> ParamLayout:
        """Return the parameters of one host, in storage order."""
        host = self.host
        leaves: list[ParamLeaf] = []
        before = host.channels_in
        for i, channels in enumerate(host.channels):
            shape = (channels, before, host.kernel, host.kernel)
            leaves += [
                fan_in_leaf(f"block{i}.conv.weight", shape, before * host.kernel**2),
                ParamLeaf(f"block{i}.norm.weight", (channels,), fill=1.0),
                ParamLeaf(f"block{i}.norm.bias", (channels,)),
            ]
            before = channels
        leaves += [
            fan_in_leaf("head.weight", (host.classes, before), before),
            fan_in_leaf("head.bias", (host.classes,), before),
        ]
        return ParamLayout(tuple(leaves))

    def masks(self, instance: Instance, like: Tensor) -> InstanceMasks:
        """Return the masks of every env, in the dtype of `like`; the counts, which are statistics,
        at least in float32.
        """
        host = self.host
        masks = []
        inverse_counts = []
        size = host.size
        wide = statistics_dtype(like.dtype)
        for i, channels in enumerate(host.channels):
            mask = torch.arange(channels, device=like.device) < used_channels(
                instance.width, channels
            ).unsqueeze(-1)
            masks.append(mask.to(like.dtype))
            count = (
                torch.unflatten(masks[-1], -1, (norm_groups(channels), -1)).sum(-1, dtype=wide)
                * size**2
            )
            inverse_counts.append(choose(count > 0, 1.0 / count.clamp(min=1.0), 0.0))
            size //= 2 if i < host.pools else 1
        distance = (torch.arange(host.kernel, device=like.device) - host.kernel // 2).abs()
        in_reach = torch.maximum(distance.unsqueeze(-1), distance) <= instance.reach[:, None, None]
        reach = in_reach.to(like.dtype)[:, None, None]
        taps = tuple(mask[..., None, None, None] * reach for mask in masks)
        return InstanceMasks(tuple(masks), taps, tuple(inverse_counts))

    def embed(self, inputs: Tensor) -> Tensor:
        """Return images as features.  [E, B, C, H, W], or [B, C, H, W] shared -> [B, H, W, E or 1,
        C].
        """
        return images_innermost(inputs)

    def stage(self, i: int, x: Tensor, rows: HostRows) -> Tensor:
        """Compute the block before a slot in row 0; nothing before a slot after a pool.

        Shapes: x [B, H, W, R, C_in], or [B, H, W, 1, C_in] shared by all rows -> [B, H, W, R, C].
        """
        after_pool, block = self.host.all_slots[i].place
        if after_pool:
            return x
        mask = rows.pick(rows.masks.channels[block])
        weight, gain, bias = (
            rows.pick(rows.leaves[f"block{block}.{name}"])
            for name in ("conv.weight", "norm.weight", "norm.bias")
        )
        # Parameters are masked instead of activations: equal zeros, also in gradients, on far
        # smaller tensors.
        weight = weight * rows.pick(rows.masks.taps[block])
        gain = gain * mask
        bias = bias * mask
        z = stacked_conv(x, weight)
        if self.host.norm == "batch":
            return batch_norm(z, gain, bias, relu=True)
        inverse_count = rows.pick(rows.masks.inverse_count[block])
        return masked_group_norm(
            z, gain, bias, channel_mask=mask, inverse_count=inverse_count, relu=True
        )

    def head(self, x: Tensor, rows: HostRows) -> Tensor:
        """Return logits.  x [B, H, W, R, C] -> [R, B, classes]."""
        weight, bias = (rows.pick(rows.leaves[name]) for name in ("head.weight", "head.bias"))
        return linear(spatial_mean(x), weight, bias)

    def params_in_use(self, instance: Instance) -> Tensor:
        """Return the parameters in use under the width, the reach and the classes of each env.
        int64 [E].
        """
        host = self.host
        device = instance.width.device
        declared = constant_table(host.channels, torch.int64, device)
        width = used_channels(instance.width.unsqueeze(-1), declared)  # [E, blocks]
        image = constant_table((host.channels_in,), torch.int64, device).expand(len(width), -1)
        taps = (2 * instance.reach + 1).clamp(max=host.kernel).square().unsqueeze(-1)
        blocks = (width * (taps * torch.cat((image, width[:, :-1]), dim=-1) + 2)).sum(-1)
        return blocks + (width[:, -1] + 1) * instance.classes
