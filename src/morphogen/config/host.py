"""Hosts without tensors: what a config has to know of a host network, and the numbers of the CNN
host.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from morphogen.errors import ConfigError
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, Blueprint, attention_width, bottleneck_width
from morphogen.vocab.plain import make_plain
from morphogen.vocab.slot import SlotSpec, format_slot, parse_slot

# copies of the features of slots that are stored, measured (`tests/unit/env/test_pieces.py`)
_STORED = 2.25


class Host:
    """Description of a host network.

    A host of your own derives from this class, as a frozen dataclass, and has the methods of
    `hosts.host_networks.HostNetworks` besides: the layout of its parameters and the stages between
    its slots.

    Example:
        >>> from dataclasses import dataclass
        >>> import morphogen as mg
        >>> @dataclass(frozen=True)
        ... class Perceptron(mg.Host):
        ...     classes = 10
        ...     input_shape = (64,)
        ...     all_slots = (
        ...         mg.SlotSpec("r0c0", channels=32),
        ...         mg.SlotSpec("r0c1", channels=32, execution=1),
        ...     )
        ...     blueprints = ("norm",)
        >>> [slot.name for slot in Perceptron().pick_slots(("r0c1", "r0c0"))]
        ['r0c0', 'r0c1']
    """

    __slots__ = ()
    classes: int
    """Logits."""
    input_shape: tuple[int, ...]
    """Of one sample."""
    all_slots: tuple[SlotSpec, ...]
    """In the order of the forward pass."""
    blueprints: tuple[Any, ...]
    """Kinds of seeds that fit every slot, as names or as parts."""
    computed_by: str = ""
    """Place of the class of its networks, `module:class`; "": the host has their methods itself."""
    reach: int = 0
    """Pixels that a kernel sees to each side, places back; 0 where instances do not vary it."""
    width: int | None = None
    """Number that `host.width` sets, if the host has one."""
    vocabulary: int = 0
    """A sample is a sequence of integers below this number; 0: samples are real numbers."""
    isolates: bool = True
    """No gradient reaches the host through the input of a seed; else only after incubation."""
    causal: bool = False
    """Features are a sequence, and no place sees the places after it."""
    dropout: float = 0.0
    """Share of the activations that are dropped in training."""
    chunk: int = 128
    """Samples that are evaluated at once; constant, so that no result depends on other envs."""

    @property
    def labelled(self) -> bool:
        """True if a sample has one label, which instances change; False if it holds its own
        answers.
        """
        return not self.vocabulary

    def params(self, width: float = 1.0, classes: int | None = None) -> int:
        """Return the parameters in use at a width share and a number of classes; by default all of
        the layout.
        """
        layout: Any = self
        return layout.layout().size

    def masks(self, instance: Any, like: Any) -> Any:
        """Return the tensors by which instances restrict their hosts; by default none.

        Args: instance: `Instance` [E]; like: a tensor of the device and dtype of the parameters.
        """
        return ()

    def params_in_use(self, instance: Any) -> Any:
        """Return the parameters in use under each instance, int64 [E]; by default all.  instance:
        `Instance` [E].
        """
        return instance.classes * 0 + self.params()

    def macs(self) -> int | None:
        """Multiply-accumulates of one sample at full width; None: not known."""
        return None

    def activations(self) -> tuple[int, int]:
        """Numbers per sample: stored for the gradient, and at once in evaluation if more than
        features of slots.
        """
        return round(
            _STORED * sum(slot.channels * math.prod(slot.size) for slot in self.all_slots)
        ), 0

    def numbers(self) -> dict[str, object]:
        """Numbers that tell one host from another, in the form of JSON, for events."""
        return {"host": repr(self)}

    def module_name(self, blueprint: str) -> str:
        """Return the name of the module, in the registry of blueprints, that a blueprint is on this
        host.
        """
        return blueprint

    def configured(self, *, width: int | None, norm: str) -> Self:
        """Return the host under the settings `host.width` (None: as it is) and `host.norm`.

        Raises: ConfigError for a setting that the host does not have.
        """
        name = type(self).__name__
        if width != self.width and width is not None:
            raise ConfigError(
                f"host.width: expected {self.width or 'null'} with the host {name}, got {width}"
            )
        if norm != "group":
            raise ConfigError(f"host.norm: expected group with the host {name}, got {norm}")
        return self

    def with_vocabulary(self, vocabulary: int) -> Self:
        """Return the host under the setting `host.vocabulary`.  Raises: ConfigError if it has
        none.
        """
        raise ConfigError(
            f"host.vocabulary: expected null with the host {type(self).__name__}, got {vocabulary}"
        )

    def pick_slots(self, names: tuple[str, ...]) -> tuple[SlotSpec, ...]:
        """Return the named slots in slot order (ascending row, col), whatever the input order.

        Raises: ConfigError for names that are unknown or occur twice, and for no names.
        """
        known = {slot.name: slot for slot in self.all_slots}
        for name in names:
            parse_slot(name)
            if name not in known:
                raise ConfigError(f"slots names {name!r}; this host has {', '.join(known)}")
        if not names or len(set(names)) != len(names):
            raise ConfigError(
                f"slots: expected at least one slot, each named once, got {list(names)}"
            )
        return tuple(sorted((known[name] for name in names), key=lambda slot: slot.place))


@dataclass(frozen=True)
class CnnSpec(Host):
    """Numbers of a CNN host: blocks of convolution, normalisation and ReLU; channels double per
    block.

    Raises: ConfigError for a number out of its range.

    Example:
        >>> import morphogen as mg
        >>> host = mg.CnnSpec(
        ...     base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10
        ... )
        >>> host.params(), [slot.name for slot in host.all_slots]
        (438, ['r0c0', 'r1c0', 'r0c1'])
    """

    base: int  # channels of the first block
    blocks: int
    kernel: int  # height and width, odd
    pools: int  # blocks that halve height and width at their end, the first ones
    channels_in: int
    size: int  # height and width of the input
    classes: int
    norm: str = "group"  # or "batch"

    computed_by = "morphogen.hosts.cnn:CnnNetworks"

    def __post_init__(self) -> None:
        make_plain(self)
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
        for name, (ok, allowed) in checks.items():
            if not ok:
                raise ConfigError(f"host.{name}: expected {allowed}, got {getattr(self, name)!r}")
        derived = {
            "input_shape": (self.channels_in, self.size, self.size),
            "all_slots": self._slots(),
            "blueprints": tuple(blueprint.label for blueprint in CNN_BLUEPRINTS),
            "reach": self.kernel // 2,
            "width": self.base,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def channels(self) -> tuple[int, ...]:
        """Output channels of every block."""
        return tuple(self.base * 2**i for i in range(self.blocks))

    def _slots(self) -> tuple[SlotSpec, ...]:
        slots: list[SlotSpec] = []
        size = self.size
        for i, channels in enumerate(self.channels):
            pooled = i < self.pools
            slots.append(SlotSpec(format_slot(0, i), channels, (size, size), len(slots), pooled))
            if pooled:
                size //= 2
                slots.append(SlotSpec(format_slot(1, i), channels, (size, size), len(slots)))
        return tuple(slots)

    def configured(self, *, width: int | None, norm: str) -> Self:
        """Return the host with `width` base channels (None: as they are) and a kind of
        normalisation.
        """
        return replace(self, base=self.base if width is None else width, norm=norm)

    def params(self, width: float = 1.0, classes: int | None = None) -> int:
        """Parameters in use at a width share and a number of classes."""
        widths = [channels_in_use(width, c) for c in self.channels]
        classes = classes or self.classes
        before = [self.channels_in, *widths[:-1]]
        convs = sum(self.kernel**2 * a * b + 2 * b for a, b in zip(before, widths, strict=True))
        return convs + widths[-1] * classes + classes

    def numbers(self) -> dict[str, object]:
        """Numbers of the host but for its data."""
        return {name: getattr(self, name) for name in ("base", "blocks", "kernel", "pools", "norm")}

    def macs(self) -> int:
        """Multiply-accumulates of one sample at full width."""
        total = 0
        size = self.size
        before = self.channels_in
        for i, channels in enumerate(self.channels):
            total += self.kernel**2 * before * channels * size**2
            size //= 2 if i < self.pools else 1
            before = channels
        return total + before * self.classes


def channels_in_use(width: float, channels: int) -> int:
    """Channels in use at a width share: `ceil(width * C - 1e-6)`, at least 1."""
    return max(1, -int(-(width * channels - 1e-6) // 1))


def norm_groups(channels: int) -> int:
    """Groups of a group normalisation: the largest of 32 .. 2 dividing C with at least 16 channels
    each, else 1.
    """
    return next((g for g in (32, 16, 8, 4, 2) if channels % g == 0 and channels // g >= 16), 1)


def seed_macs(blueprint: Blueprint, slot: SlotSpec) -> int:
    """Multiply-accumulates of a CNN blueprint in a slot, for one sample; its gate network left
    out.
    """
    c = slot.channels
    r = attention_width(slot.channels)
    q = bottleneck_width(slot.channels)
    per_pixel = {
        Blueprint.CONV_LIGHT: 9 * c * c,
        Blueprint.DEPTHWISE: 9 * c + c * c,
        Blueprint.BOTTLENECK: 2 * c * q + 9 * q * q,
        Blueprint.CONV_SMALL: c * c,
        Blueprint.CONV_HEAVY: 18 * c * c,
    }
    pooled = 2 * c * r if blueprint is Blueprint.ATTENTION else 0
    return per_pixel.get(blueprint, 0) * math.prod(slot.size) + pooled
