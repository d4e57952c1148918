"""One env the way anybody would write it: an `nn.Module` with one `torch.optim.SGD` for the host and one per seed.

The oracle of the stacked networks.  It imports nothing from `nets`: leaves, order and mathematics are written out here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRAINING, BLENDING, HOLDING, FOSSILIZED = 3, 4, 5, 6
ADD, MULTIPLY, GATE = 1, 2, 3


def group_count(channels: int) -> int:
    return {32: 2, 48: 2, 64: 4, 128: 8}.get(channels, 1)


class Conv(nn.Module):
    """conv_light (k = 3) and conv_small (k = 1)."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c, c, k, padding=k // 2, bias=False)
        self.bias = nn.Parameter(torch.zeros(c))
        self.scale = nn.Parameter(torch.zeros(c))

    def forward(self, x: Tensor) -> Tensor:
        z = F.group_norm(self.conv(x), group_count(x.shape[1]))
        return self.scale.view(-1, 1, 1) * F.relu(z + self.bias.view(-1, 1, 1))


class Attention(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.zeros(max(1, c // 4), c))
        self.w2 = nn.Parameter(torch.zeros(c, max(1, c // 4)))
        self.b2 = nn.Parameter(torch.zeros(c))

    def forward(self, x: Tensor) -> Tensor:
        z = F.linear(F.silu(F.linear(x.mean((2, 3)), self.w1)), self.w2, self.b2)
        return x * (2 * torch.sigmoid(z) - 1)[:, :, None, None]


class Norm(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))
        self.norm = nn.GroupNorm(group_count(c), c)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.w) * (self.norm(x) - x)


class Depthwise(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.dw = nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False)
        self.rest = Conv(c, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.dw(x))


class Bottleneck(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        q = max(8, c // 4)
        self.down = nn.Conv2d(c, q, 1, bias=False)
        self.mid = nn.Conv2d(q, q, 3, padding=1, bias=False)
        self.up = nn.Conv2d(q, c, 1, bias=False)
        self.norm = nn.GroupNorm(group_count(c), c)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.up(F.silu(self.mid(F.silu(self.down(x))))))


class Heavy(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.norm0 = nn.GroupNorm(group_count(c), c)
        self.rest = Conv(c, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(F.relu(self.norm0(self.conv0(x))))


class Gate(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        hidden = max(8, c // 4)
        self.first, self.second = nn.Linear(c, hidden), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.second(F.silu(self.first(x.mean((2, 3))))))[:, :, None, None]


KINDS = {
    1: lambda c: Conv(c, 3),
    2: Attention,
    3: Norm,
    4: Depthwise,
    5: Bottleneck,
    6: lambda c: Conv(c, 1),
    7: Heavy,
}


class Seed(nn.Module):
    """A blueprint with its gate, and where it is in its life."""

    def __init__(self, blueprint: int, channels: int, *, stage: int, algorithm: int, alpha: float) -> None:
        super().__init__()
        self.body, self.gate = KINDS[blueprint](channels), Gate(channels)
        self.stage, self.algorithm, self.alpha = stage, algorithm, alpha

    def forward(self, h: Tensor, on: bool = True) -> Tensor:
        x, a = h.detach(), self.alpha
        if self.stage == TRAINING and self.training:
            d = self.body(x)
            d = x * torch.tanh(d) if self.algorithm == MULTIPLY else d
            return h + (d - d.detach())
        if self.stage == TRAINING or not on or a == 0:
            return h
        if self.algorithm == MULTIPLY:
            return h * (1 + a * torch.tanh(self.body(x)))
        return h + a * self.body(x) * (self.gate(x) if self.algorithm == GATE else 1.0)

    def trained(self) -> list[Tensor]:
        gated = self.algorithm == GATE and self.stage != TRAINING
        return [*leaves(self.body), *(leaves(self.gate) if gated else [])]


class Host(nn.Module):
    """The CNN host with its seeds, `{slot name: Seed}`."""

    def __init__(self, base: int, blocks: int, kernel: int, pools: int, channels_in: int, classes: int) -> None:
        super().__init__()
        self.pools, self.width, self.used = pools, 1.0, classes
        before, sizes = channels_in, [base * 2**i for i in range(blocks)]
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for c in sizes:
            self.convs.append(nn.Conv2d(before, c, kernel, padding=kernel // 2, bias=False))
            self.norms.append(nn.GroupNorm(group_count(c), c))
            before = c
        self.head = nn.Linear(before, classes)
        self.seeds = nn.ModuleDict()

    def forward(self, x: Tensor, off: frozenset[str] = frozenset()) -> Tensor:
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(self.kept_norm(conv(x), norm))
            x = self.grow(f"r0c{i}", x, off)
            if i < self.pools:
                x = self.grow(f"r1c{i}", F.max_pool2d(x, 2), off)
        logits = self.head(x.mean((2, 3)))
        return torch.cat([logits[:, : self.used], torch.full_like(logits[:, self.used :], -1e4)], dim=1)

    def grow(self, name: str, h: Tensor, off: frozenset[str]) -> Tensor:
        return self.seeds[name](h, name not in off) if name in self.seeds else h

    def kept_norm(self, z: Tensor, norm: nn.GroupNorm) -> Tensor:
        """Statistics over the kept channels of each group only; the others are 0."""
        if self.width == 1.0:
            return norm(z)
        keep, size = math.ceil(self.width * z.shape[1] - 1e-6), z.shape[1] // norm.num_groups
        out = []
        for first in range(0, z.shape[1], size):
            use = min(max(keep - first, 0), size)
            part = z[:, first : first + size]
            if use:
                own = part[:, :use]
                mean, var = own.mean((1, 2, 3), keepdim=True), own.var((1, 2, 3), correction=0, keepdim=True)
                here = slice(first, first + use)
                own = (own - mean) / (var + 1e-5).sqrt()
                out.append(own * norm.weight[here].view(-1, 1, 1) + norm.bias[here].view(-1, 1, 1))
            out.append(torch.zeros_like(part[:, use:]))
        return torch.cat(out, dim=1)

    def host_parameters(self) -> list[Tensor]:
        """In the storage order of the host."""
        found: list = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            found += [conv.weight, norm.weight, norm.bias]
        return [*found, self.head.weight, self.head.bias]


def leaves(module: nn.Module) -> list[Tensor]:
    """Parameters of a seed or a gate in storage order."""
    if isinstance(module, Conv):
        return [module.conv.weight, module.bias, module.scale]
    own: list = list(module.parameters(recurse=False))
    return own + [leaf for child in module.children() for leaf in leaves(child)]


def load(parameters: Sequence[Tensor], flat: Tensor) -> None:
    at = 0
    for p in parameters:
        p.data = flat[at : at + p.numel()].view(p.shape).clone()
        at += p.numel()


def flat(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])


@dataclass
class Learner:
    """A host with its optimisers."""

    net: Host
    lr: float
    seed_lr: float
    max_norm: float = 1.0
    decay: float = 5e-4

    def __post_init__(self) -> None:
        own = {"momentum": 0.9}
        self.host = torch.optim.SGD(self.net.host_parameters(), lr=self.lr, weight_decay=self.decay, **own)
        self.seeds = [torch.optim.SGD(seed.trained(), lr=self.seed_lr, **own) for seed in self.net.seeds.values()]

    def step(self, images: Tensor, labels: Tensor) -> float:
        for optimiser in (self.host, *self.seeds):
            optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.net(images), labels)
        loss.backward()
        for optimiser in (self.host, *self.seeds):
            nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], self.max_norm)
            optimiser.step()
        return float(loss.detach())
