"""One env the way anybody would write it: an `nn.Module` and `torch.optim.SGD`, as fast as plain code gets.

The baseline of the benchmarks and the oracle of the stacked networks in the tests.  It imports nothing from the
package: leaves, order and mathematics are written out here.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRAINING, BLENDING, HOLDING, FOSSILIZED = 3, 4, 5, 6
ADD, MULTIPLY, GATE = 1, 2, 3
MOMENTUM, DECAY, MAX_NORM = 0.9, 5e-4, 1.0


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
        z = F.group_norm(self.conv(x), group_count(x.shape[1]), torch.ones_like(self.bias), self.bias)
        return self.scale.view(-1, 1, 1) * F.relu(z, inplace=True)


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
        x = x.contiguous()  # torch crashes in the backward pass of a GroupNorm over channels last that ends there
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
        return self.rest(F.relu(self.norm0(self.conv0(x)), inplace=True))


class GateModule(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        hidden = max(8, c // 4)
        self.first, self.second = nn.Linear(c, hidden), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.second(F.silu(self.first(x.mean((2, 3))))))[:, :, None, None]


BLUEPRINT_MODULES = {
    1: lambda c: Conv(c, 3),
    2: Attention,
    3: Norm,
    4: Depthwise,
    5: Bottleneck,
    6: lambda c: Conv(c, 1),
    7: Heavy,
}


class SeedModule(nn.Module):
    """A blueprint with its gate, and where it is in its life.  isolated: no gradient passes through its input, ever."""

    def __init__(
        self, body: nn.Module, gate: nn.Module, *, stage: int, algorithm: int, alpha: float, isolated: bool
    ) -> None:
        super().__init__()
        self.body, self.gate = body, gate
        self.stage, self.algorithm, self.alpha, self.isolated = stage, algorithm, alpha, isolated

    def forward(self, h: Tensor, on: bool = True) -> Tensor:
        a = self.alpha
        x = h.detach() if self.isolated or self.stage == TRAINING else h
        if self.stage == TRAINING and self.training:
            d = self.body(x)
            d = x * torch.tanh(d) if self.algorithm == MULTIPLY else d
            return h + (d - d.detach())
        if self.stage == TRAINING or not on or a == 0:
            return h
        if self.algorithm == MULTIPLY:
            return torch.addcmul(h, h, torch.tanh(self.body(x)), value=a)
        if self.algorithm == GATE:
            return torch.addcmul(h, self.body(x), self.gate(x), value=a)
        return torch.add(h, self.body(x), alpha=a)

    def trainable_parameters(self) -> list[Tensor]:
        gated = self.algorithm == GATE and self.stage != TRAINING
        return [*ordered_parameters(self.body), *(ordered_parameters(self.gate) if gated else [])]


def cnn_seed(blueprint: int, channels: int, *, stage: int, algorithm: int, alpha: float) -> SeedModule:
    """A seed of a CNN."""
    body, gate = BLUEPRINT_MODULES[blueprint](channels), GateModule(channels)
    return SeedModule(body, gate, stage=stage, algorithm=algorithm, alpha=alpha, isolated=True)


class HostModule(nn.Module):
    """The CNN host with its seeds, `{slot name: Seed}`."""

    def __init__(self, base: int, blocks: int, kernel: int, pools: int, channels_in: int, classes: int) -> None:
        super().__init__()
        self.pools, self.width, self.class_count = pools, 1.0, classes
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
            x = F.relu(self.masked_norm(conv(x), norm), inplace=True)
            x = self.grow(f"r0c{i}", x, off)
            if i < self.pools:
                x = self.grow(f"r1c{i}", F.max_pool2d(x, 2), off)
        logits = self.head(x.mean((2, 3)))
        if self.class_count == logits.shape[1]:
            return logits
        return torch.cat([logits[:, : self.class_count], torch.full_like(logits[:, self.class_count :], -1e4)], dim=1)

    def grow(self, name: str, h: Tensor, off: frozenset[str]) -> Tensor:
        return self.seeds[name](h, name not in off) if name in self.seeds else h

    def masked_norm(self, z: Tensor, norm: nn.GroupNorm) -> Tensor:
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


def ordered_parameters(module: nn.Module) -> list[Tensor]:
    """Parameters of a seed or a gate in storage order."""
    if isinstance(module, Conv):
        return [module.conv.weight, module.bias, module.scale]
    own: list = list(module.parameters(recurse=False))
    return own + [leaf for child in module.children() for leaf in ordered_parameters(child)]


def load_parameters(parameters: Sequence[Tensor], flat: Tensor) -> None:
    at = 0
    for p in parameters:
        p.data = flat[at : at + p.numel()].view(p.shape).clone()
        at += p.numel()


def flatten_parameters(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])


class ModuleLearner:
    """A host with its seeds and one fused optimiser: a group for the host and one for every seed.

    `layout` is that of weights and activations; channels last is faster for wide hosts.
    """

    def __init__(
        self, net: nn.Module, lr: float, seed_lr: float, *, layout: torch.memory_format = torch.contiguous_format
    ) -> None:
        self.net, self.layout = net.to(memory_format=layout), layout
        self.groups = [net.host_parameters(), *(seed.trainable_parameters() for seed in net.seeds.values())]
        knobs = [{"lr": lr, "weight_decay": DECAY}, *({"lr": seed_lr} for _ in net.seeds)]
        named = [{"params": group, **own} for group, own in zip(self.groups, knobs, strict=True)]
        self.optimiser = torch.optim.SGD(named, momentum=MOMENTUM, fused=True)

    def step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """One minibatch; its loss, which the host need not read.  A label -1 counts for nothing."""
        self.optimiser.zero_grad(set_to_none=True)
        logits = self.net(inputs.contiguous(memory_format=self.layout))
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-1)
        loss.backward()
        for group in self.groups:
            nn.utils.clip_grad_norm_(group, MAX_NORM, foreach=True)
        self.optimiser.step()
        return loss.detach()
