"""Hosts without tensors: what a config has to know of a host network, and the numbers of the CNN
host.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from morphogen.config.fields import Checks, Count, Natural, Several, Spec, raise_all, spec
from morphogen.errors import ConfigError
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, Blueprint, attention_width, bottleneck_width
from morphogen.vocab.slot import SlotSpec, format_slot
from morphogen.vocab.text import format_value

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
    """Outputs: logits of class labels, or numbers."""
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

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output for one sample."""
        return (self.classes,)

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

    def for_data(self, data: Any) -> "Host":
        """Return the host for the samples of a data set or of its name; by default, it has its
        shape already.

        Raises: ConfigError for data whose shape the host has to know, and does not.
        """
        return self

    def start_values(self) -> Any:
        """Return the parameters of hosts at the start of an episode, float32 [K, P], a row for each
        env in turn; NaN and None: they are drawn.
        """
        return None

    def spare_weights(self) -> frozenset[str]:
        """Return the names of entries that a file of parameters may hold besides."""
        return frozenset()

    def module_name(self, blueprint: str) -> str:
        """Return the name of the module, in the registry of blueprints, that a blueprint is on this
        host.
        """
        return blueprint

    def configured(self, *, width: int | None, norm: str, vocabulary: int | None = None) -> Self:
        """Return the host under the settings `host.width`, `host.norm` and `host.vocabulary`; None:
        as it is.

        Raises: ConfigError for a setting that the host does not have.
        """
        own = {"width": self.width, "norm": "group", "vocabulary": None}
        given = {"width": width, "norm": norm, "vocabulary": vocabulary}
        raise_all(
            f"host.{name}: expected {own[name] or 'null'} with the host {type(self).__name__}, got "
            f"{value}"
            for name, value in given.items()
            if value not in (None, own[name])
        )
        return self

    def pick_slots(self, names: tuple[str, ...]) -> tuple[SlotSpec, ...]:
        """Return the named slots in slot order (ascending row, col), whatever the input order.

        Raises: ConfigError for names that are unknown or occur twice, and for no names.
        """
        known = {slot.name: slot for slot in self.all_slots}
        if not names or len(set(names)) != len(names) or not known.keys() >= set(names):
            raise ConfigError(
                f"slots: expected distinct names out of {', '.join(known)}, got "
                f"{format_value(names)}"
            )
        return tuple(sorted((known[name] for name in names), key=lambda slot: slot.place))

    def set_numbers(self, **derived: Any) -> None:
        """Set the attributes that follow from the fields of a host; for its `__post_init__`."""
        for name, value in derived.items():
            object.__setattr__(self, name, value)


@spec
class CnnSpec(Host, Spec):
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

    PATH: ClassVar[str] = "host"
    IS_PART: ClassVar[bool] = True

    base: Count  # channels of the first block
    blocks: Several
    kernel: Count  # height and width, odd
    pools: Natural  # blocks that halve height and width at their end, the first ones
    channels_in: Count
    size: Count  # height and width of the input
    classes: Several
    norm: Literal["group", "batch"] = "group"

    computed_by = "morphogen.hosts.cnn:CnnNetworks"
    blueprints = tuple(blueprint.label for blueprint in CNN_BLUEPRINTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_numbers(
            input_shape=(self.channels_in, self.size, self.size),
            reach=self.kernel // 2,
            width=self.base,
            all_slots=self._slots(),
        )

    def cross_checks(self) -> Checks:
        """Kernels have a centre, and pools leave a pixel."""
        return {
            "kernel": (self.kernel % 2 == 1, "odd"),
            "pools": (self.pools <= self.blocks, "at most blocks"),
            "size": (self.size >> self.pools >= 1, "at least 2 ** pools"),
        }

    @property
    def channels(self) -> tuple[int, ...]:
        """Output channels of every block."""
        return tuple(self.base * 2**i for i in range(self.blocks))

    def _slots(self) -> tuple[SlotSpec, ...]:
        slots: list[SlotSpec] = []
        for i, channels in enumerate(self.channels):
            for row in range(1 + (i < self.pools)):
                size = self._size(i) >> row
                pooled = not row and i < self.pools
                name = format_slot(row, i)
                slots.append(SlotSpec(name, channels, (size, size), len(slots), pooled))
        return tuple(slots)

    def _size(self, block: int) -> int:
        """Height and width in a block, before it halves them."""
        return self.size >> min(block, self.pools)

    def configured(self, *, width: int | None, norm: str, vocabulary: int | None = None) -> Self:
        """Return the host with `width` base channels and a kind of normalisation."""
        super().configured(width=None, norm="group", vocabulary=vocabulary)
        return replace(self, base=width or self.base, norm=norm)

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
        channels = self.channels
        before = (self.channels_in, *channels[:-1])
        return channels[-1] * self.classes + sum(
            self.kernel**2 * before[i] * channels[i] * self._size(i) ** 2
            for i in range(self.blocks)
        )


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
