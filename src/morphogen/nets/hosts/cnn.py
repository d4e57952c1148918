"""The CNN host: blocks of convolution, normalisation and ReLU, then a linear head; R networks at once."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import ops
from morphogen.nets.layout import ParamLayout, ParamLeaf, cache_layout, fan_in_leaf
from morphogen.rules.counts import used_channels
from morphogen.state.env import Instance
from morphogen.vocab.slot import CnnSpec, norm_groups

_MASKED = -1e4  # logit of a class that is not in use


@cache_layout
def host_layout(host: CnnSpec) -> ParamLayout:
    """Leaves of one host in storage order."""
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
    """What the instance of an env does to its host: channels and classes in use, what kernels see.  Rows = envs."""

    channels: tuple[Tensor, ...]  # [R, C_i], 1 or 0
    taps: tuple[Tensor, ...]  # [R, C_i, 1, kernel, kernel], 1 where the kernel of a channel in use sees, else 0
    inverse_count: tuple[Tensor, ...]  # [R, groups], 1 / (kept elements of a sample and group)
    classes: Tensor  # bool [R, classes], class in use


def build_masks(instance: Instance, host: CnnSpec, like: Tensor) -> InstanceMasks:
    """The frame of every env, in the dtype of `like`."""
    kept, share, size = [], [], host.size
    for i, channels in enumerate(host.channels):
        mask = torch.arange(channels, device=like.device) < used_channels(instance.width, channels).unsqueeze(-1)
        kept.append(mask.to(like.dtype))
        count = kept[-1].unflatten(-1, (norm_groups(channels), -1)).sum(-1) * size**2
        share.append(torch.where(count > 0, 1.0 / count.clamp(min=1.0), 0.0))
        size //= 2 if i < host.pools else 1
    classes = torch.arange(host.classes, device=like.device) < instance.classes.unsqueeze(-1)
    taps = _kernel_taps(instance.reach, host.kernel, like)[:, None, None]
    seen = tuple(mask[..., None, None, None] * taps for mask in kept)
    return InstanceMasks(tuple(kept), seen, tuple(share), classes)


def _kernel_taps(reach: Tensor, kernel: int, like: Tensor) -> Tensor:
    """1 up to `reach` pixels from the centre of a kernel.  reach int64 [R] -> [R, kernel, kernel]."""
    away = (torch.arange(kernel, device=like.device) - kernel // 2).abs()
    seen = torch.maximum(away.unsqueeze(-1), away) <= reach[:, None, None]
    return seen.to(like.dtype)


class HostRows(NamedTuple):
    """The networks of a pass: parameters and frame of the envs, and which env each row is (None: row = env)."""

    leaves: dict[str, Tensor]  # [E, *shape]
    masks: InstanceMasks
    env: Tensor | None

    def pick(self, values: Tensor) -> Tensor:
        """Values of the envs, for every row.  values [E, ...] -> [R, ...]."""
        return values if self.env is None else values.index_select(0, self.env)


def block(i: int, x: Tensor, rows: HostRows, host: CnnSpec) -> Tensor:
    """Convolution, normalisation, ReLU and width mask of block i.

    Shapes: x [B, H, W, R, C_in], or [B, H, W, 1, C_in] where all rows see the same images -> [B, H, W, R, C_i].
    """
    kept = rows.pick(rows.masks.channels[i])
    weight, gain, bias = (rows.pick(rows.leaves[f"block{i}.{name}"]) for name in ("conv", "gain", "bias"))
    # Masked parameters instead of masked activations: the same zeros, in gradients too, on far smaller tensors.
    weight = weight * rows.pick(rows.masks.taps[i])
    gain, bias = gain * kept, bias * kept
    z = ops.stacked_conv(x, weight)
    if host.norm == "batch":
        return F.relu(ops.batch_norm(z, gain, bias))
    return ops.masked_group_norm(
        z, gain, bias, channel_mask=kept, inverse_count=rows.pick(rows.masks.inverse_count[i]), floor=0.0
    )


def head(x: Tensor, rows: HostRows) -> Tensor:
    """Logits; classes that are not in use have -1e4.  x [B, H, W, R, C] -> [R, B, classes]."""
    weight, bias, used = (
        rows.pick(v) for v in (rows.leaves["head.weight"], rows.leaves["head.bias"], rows.masks.classes)
    )
    logits = ops.linear(ops.spatial_mean(x), weight, bias)
    return torch.where(used.unsqueeze(1), logits, _MASKED)
