"""Slots and the CNN host that declares them: names, shapes, order, parameter counts, multiply-accumulates."""

import re
from dataclasses import dataclass

from morphogen.errors import ConfigError
from morphogen.vocab.blueprint import Blueprint, attention_width, bottleneck_width

_NAME = re.compile(r"r(0|[1-9][0-9]*)c(0|[1-9][0-9]*)")
PRE_POOL, POST_POOL, BLOCK_END = "PRE_POOL", "POST_POOL", "BLOCK_END"


def parse_slot(name: str) -> tuple[int, int]:
    """`r0c10` -> (0, 10); anything else is a ConfigError."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"slot: expected r{{row}}c{{col}} with decimal integers without leading zeros, got {name!r}")
    return int(match[1]), int(match[2])


def format_slot(row: int, col: int) -> str:
    """(0, 10) -> `r0c10`."""
    return f"r{row}c{col}"


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """A place between two host layers where a seed can live.  `execution`: order in the forward pass."""

    name: str
    row: int
    col: int
    surface: str
    block: int
    channels: int
    height: int
    width: int
    execution: int


@dataclass(frozen=True, slots=True)
class CnnSpec:
    """Numbers of a CNN host: blocks of convolution, normalisation and ReLU; channels double per block."""

    base: int
    blocks: int
    kernel: int
    pools: int
    channels_in: int
    size: int  # height and width of the input
    classes: int
    norm: str = "group"

    def __post_init__(self) -> None:
        checks = {
            "base": (self.base >= 1, ">= 1"),
            "blocks": (self.blocks >= 2, ">= 2"),
            "kernel": (self.kernel >= 1 and self.kernel % 2 == 1, "odd, >= 1"),
            "pools": (0 <= self.pools <= self.blocks, "0 .. blocks"),
            "channels_in": (self.channels_in >= 1, ">= 1"),
            "size": (self.size >> self.pools >= 1, "at least 2 ** pools"),
            "classes": (self.classes >= 2, ">= 2"),
            "norm": (self.norm in ("group", "batch"), "group or batch"),
        }
        for field, (ok, allowed) in checks.items():
            if not ok:
                raise ConfigError(f"host.{field}: expected {allowed}, got {getattr(self, field)!r}")

    @property
    def channels(self) -> tuple[int, ...]:
        """Output channels of every block."""
        return tuple(self.base * 2**i for i in range(self.blocks))

    @property
    def all_slots(self) -> tuple[SlotSpec, ...]:
        """All slots of the host in execution order."""
        slots: list[SlotSpec] = []
        size = self.size
        for i, channels in enumerate(self.channels):
            slots.append(SlotSpec(format_slot(0, i), 0, i, PRE_POOL, i, channels, size, size, len(slots)))
            if i < self.pools:
                size //= 2
                slots.append(SlotSpec(format_slot(1, i), 1, i, POST_POOL, i, channels, size, size, len(slots)))
        return tuple(slots)

    def pick_slots(self, names: tuple[str, ...]) -> tuple[SlotSpec, ...]:
        """The named slots in slot order (ascending row, col), whatever the input order."""
        known = {slot.name: slot for slot in self.all_slots}
        for name in names:
            parse_slot(name)
            if name not in known:
                raise ConfigError(f"slots names {name!r}; this host has {', '.join(known)}")
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"slots: expected at least one slot, each named once, got {list(names)}")
        return tuple(sorted((known[name] for name in names), key=lambda slot: (slot.row, slot.col)))

    def params(self, width: float = 1.0, classes: int | None = None) -> int:
        """Parameters in use at a width share and a number of classes."""
        return self._count_params([channels_in_use(width, c) for c in self.channels], classes or self.classes)

    def _count_params(self, widths: list[int], classes: int) -> int:
        before = [self.channels_in, *widths[:-1]]
        convs = sum(self.kernel**2 * a * b + 2 * b for a, b in zip(before, widths, strict=True))
        return convs + widths[-1] * classes + classes


def channels_in_use(width: float, channels: int) -> int:
    """Channels in use at a width share: `ceil(width * C - 1e-6)`, at least 1."""
    return max(1, -int(-(width * channels - 1e-6) // 1))


def norm_groups(channels: int) -> int:
    """Groups of a group normalisation: the largest of 32 .. 2 dividing C with at least 16 channels each, else 1."""
    return next((g for g in (32, 16, 8, 4, 2) if channels % g == 0 and channels // g >= 16), 1)


def host_macs(host: CnnSpec) -> int:
    """Of a host at full width."""
    total, size, before = 0, host.size, host.channels_in
    for i, channels in enumerate(host.channels):
        total += host.kernel**2 * before * channels * size**2
        size //= 2 if i < host.pools else 1
        before = channels
    return total + before * host.classes


def seed_macs(blueprint: Blueprint, slot: SlotSpec) -> int:
    """Of a CNN blueprint in a slot, its gate network left out."""
    c, r, q = slot.channels, attention_width(slot.channels), bottleneck_width(slot.channels)
    per_pixel = {
        Blueprint.CONV_LIGHT: 9 * c * c,
        Blueprint.DEPTHWISE: 9 * c + c * c,
        Blueprint.BOTTLENECK: 2 * c * q + 9 * q * q,
        Blueprint.CONV_SMALL: c * c,
        Blueprint.CONV_HEAVY: 18 * c * c,
    }
    pooled = 2 * c * r if blueprint is Blueprint.ATTENTION else 0
    return per_pixel.get(blueprint, 0) * slot.height * slot.width + pooled
