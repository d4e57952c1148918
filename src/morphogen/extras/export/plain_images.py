"""The CNN host, and seeds and gates on images, as modules of plain torch.

Parameters of a module are in the order of the leaves of its layout.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from morphogen.config.host import CnnSpec, channels_in_use, norm_groups
from morphogen.vocab.blueprint import attention_width, bottleneck_width


def _conv(inputs: int, outputs: int, kernel: int, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)


def _group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(norm_groups(channels), channels)


class ScaledNorm(nn.Module):
    """Normalisation, bias, ReLU, then a scale per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = norm_groups(channels)
        self.bias = nn.Parameter(torch.zeros(channels, device="cpu"))
        self.scale = nn.Parameter(torch.zeros(channels, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        x = F.group_norm(x, self.groups, torch.ones_like(self.bias), self.bias)
        return self.scale.view(-1, 1, 1) * F.relu(x)


class ChannelAttention(nn.Module):
    """Scales every channel by a function of the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = attention_width(channels)
        self.squeeze = nn.Linear(channels, hidden, bias=False)
        self.excite = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        z = self.excite(F.silu(self.squeeze(x.mean((2, 3)).detach())))
        return x * torch.tanh(z / 2)[:, :, None, None]


class NormShift(nn.Module):
    """Moves the features towards normalised ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.zeros((), device="cpu"))
        self.norm = _group_norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        return torch.tanh(self.amount) * (self.norm(x.contiguous()) - x)


def _bottleneck(c: int) -> nn.Module:
    q = bottleneck_width(c)
    convs = _conv(c, q, 1), nn.SiLU(), _conv(q, q, 3), nn.SiLU(), _conv(q, c, 1)
    return nn.Sequential(*convs, _group_norm(c))


def _conv_heavy(c: int) -> nn.Module:
    first = _conv(c, c, 3), _group_norm(c), nn.ReLU()
    return nn.Sequential(*first, _conv(c, c, 3), ScaledNorm(c))


_SEEDS: dict[str, Callable[[int], nn.Module]] = {
    "conv_light": lambda c: nn.Sequential(_conv(c, c, 3), ScaledNorm(c)),
    "attention": ChannelAttention,
    "norm": NormShift,
    "depthwise": lambda c: nn.Sequential(_conv(c, c, 3, c), _conv(c, c, 1), ScaledNorm(c)),
    "bottleneck": _bottleneck,
    "conv_small": lambda c: nn.Sequential(_conv(c, c, 1), ScaledNorm(c)),
    "conv_heavy": _conv_heavy,
}


def build_seed(blueprint: str, channels: int) -> nn.Module | None:
    """Return a seed of a blueprint; None for one that is not known here."""
    build = _SEEDS.get(blueprint)
    return build and build(channels)


def build_gate(channels: int, kind: str) -> nn.Module:
    """Return the gate of a slot: openness of a seed for each image."""
    del kind
    hidden = bottleneck_width(channels)
    layers = nn.Linear(channels, hidden), nn.SiLU(), nn.Linear(hidden, 1), nn.Sigmoid()
    return nn.Sequential(ChannelMeans(), *layers, nn.Unflatten(1, (1, 1, 1)))


class ChannelMeans(nn.Module):
    """Means of all pixels, which give no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        """Return means.  [B, C, H, W] -> [B, C]."""
        return x.mean((2, 3)).detach()


class NarrowNorm(nn.GroupNorm):
    """Normalisation of the first channels of a host; the others become 0."""

    def __init__(self, channels: int, used: int) -> None:
        super().__init__(norm_groups(channels), channels)
        self.used = used

    def forward(self, x: Tensor) -> Tensor:
        """Return features like x."""
        size = self.num_channels // self.num_groups
        parts: list[Tensor] = []
        for first in range(0, self.used, size):
            part = slice(first, min(first + size, self.used))
            parts.append(F.group_norm(x[:, part], 1, self.weight[part], self.bias[part]))
        return F.pad(torch.cat(parts, 1), (0, 0, 0, 0, 0, self.num_channels - self.used))


class PlainCnn(nn.Module):
    """A CNN: blocks of convolution, normalisation and ReLU, pools after the first ones, and a head
    on the means of all channels.  Slot `r0c0` is behind block 0, `r1c0` behind the pool after it.
    """

    def __init__(self, host: CnnSpec, width: float = 1.0) -> None:
        """width: share of the channels in use."""
        super().__init__()
        before = host.channels_in
        for i, channels in enumerate(host.channels):
            used = channels_in_use(width, channels)
            norm: nn.Module = _group_norm(channels)
            if host.norm == "batch":
                norm = nn.BatchNorm2d(channels, track_running_stats=False)
            elif used < channels:
                norm = NarrowNorm(channels, used)
            layers = {"conv": _conv(before, channels, host.kernel), "norm": norm, "relu": nn.ReLU()}
            self.add_module(f"block{i}", nn.Sequential(OrderedDict(layers)))
            before = channels
        self.blocks = host.blocks
        self.pools = host.pools
        self.head = nn.Linear(before, host.classes)
        self.slots = nn.ModuleDict()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits.  [B, C, H, W] -> [B, classes]."""
        for i in range(self.blocks):
            x = self._grow(f"r0c{i}", self.get_submodule(f"block{i}")(x))
            if i < self.pools:
                x = self._grow(f"r1c{i}", F.max_pool2d(x, 2))
        return self.head(x.mean((2, 3)))

    def _grow(self, name: str, x: Tensor) -> Tensor:
        return self.slots[name](x) if name in self.slots else x


def build_host(host: CnnSpec, leaves: dict[str, Tensor], instance: Any) -> nn.Module:
    """Return a host with the parameters of an env, in the world of its instance, a row.

    Kernel taps out of reach are 0.
    """
    made = PlainCnn(host, float(instance.width))
    distance = (torch.arange(host.kernel, device="cpu") - host.kernel // 2).abs()
    near = torch.maximum(distance.unsqueeze(-1), distance) <= int(instance.reach)
    kept = {name: x * near if ".conv." in name else x for name, x in leaves.items()}
    made.load_state_dict(kept)
    return made
