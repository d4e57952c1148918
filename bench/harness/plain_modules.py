"""Blueprints that `bench.harness.minimal` leaves out, and parameters in the package's order.

The extra `export` has such modules too.  These are oracles of the core: they share no code with the
package, and stay when an extra is taken away.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.harness.minimal import BLUEPRINTS, ScaledNorm, conv, count_groups


class Attention(nn.Module):
    """Scale every channel by a function of the means of all channels."""

    def __init__(self, c: int) -> None:
        super().__init__()
        hidden = max(1, c // 4)
        self.squeeze = nn.Linear(c, hidden, bias=False)
        self.excite = nn.Linear(hidden, c)

    def forward(self, x: Tensor) -> Tensor:
        z = self.excite(F.silu(self.squeeze(x.mean((2, 3)))))
        return x * (2 * torch.sigmoid(z) - 1)[:, :, None, None]


class Norm(nn.Module):
    """Move the features towards normalised ones."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.zeros(()))
        self.norm = nn.GroupNorm(count_groups(c), c)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous()  # torch crashes in the gradient of a last GroupNorm over channels last
        return torch.tanh(self.amount) * (self.norm(x) - x)


def bottleneck(c: int) -> nn.Module:
    q = max(8, c // 4)
    convs = conv(c, q, 1), nn.SiLU(), conv(q, q, 3), nn.SiLU(), conv(q, c, 1)
    return nn.Sequential(*convs, nn.GroupNorm(count_groups(c), c))


def conv_small(c: int) -> nn.Module:
    return nn.Sequential(conv(c, c, 1), ScaledNorm(c))


def conv_heavy(c: int) -> nn.Module:
    first = conv(c, c, 3), nn.GroupNorm(count_groups(c), c), nn.ReLU(inplace=True)
    return nn.Sequential(*first, conv(c, c, 3), ScaledNorm(c))


BODIES: dict[int, Callable[[int], nn.Module]] = {  # by the codes of the package
    1: BLUEPRINTS["conv_light"],
    2: Attention,
    3: Norm,
    4: BLUEPRINTS["depthwise"],
    5: bottleneck,
    6: conv_small,
    7: conv_heavy,
}


class NarrowNorm(nn.GroupNorm):
    """Normalisation of a host that uses its first channels only; the others become 0."""

    def __init__(self, channels: int, width: float) -> None:
        super().__init__(count_groups(channels), channels)
        self.kept = math.ceil(width * channels - 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        out, size = torch.zeros_like(x), self.num_channels // self.num_groups
        for first in range(0, self.kept, size):
            part = slice(first, min(first + size, self.kept))
            out[:, part] = F.group_norm(x[:, part], 1, self.weight[part], self.bias[part])
        return out


def ordered_parameters(module: nn.Module) -> list[Tensor]:
    """Parameters of a seed or a gate in storage order."""
    own: list = list(module.parameters(recurse=False))
    own = own[::-1] if isinstance(module, ScaledNorm) else own  # the package stores its scale last
    return own + [leaf for child in module.children() for leaf in ordered_parameters(child)]


def host_parameters(host: nn.Module) -> list[Tensor]:
    """Parameters of a host without its seeds, in storage order."""
    return [leaf for name, leaf in host.named_parameters() if not name.startswith("slots.")]


def load_parameters(parameters: Sequence[Tensor], flat: Tensor) -> None:
    at = 0
    for p in parameters:
        p.data = flat[at : at + p.numel()].view(p.shape).clone()
        at += p.numel()


def flatten_parameters(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])
