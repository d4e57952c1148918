"""Blueprints: names, codes, also of blueprints from outside, and widths of hidden layers."""

from collections.abc import Iterable
from enum import IntEnum

from morphogen.errors import ConfigError


class Blueprint(IntEnum):
    """Kind of module in a slot; -1 in the state means an empty slot.

    Blueprints of other packages take codes that a run does not use (`Limits.kinds`).

    Example:
        >>> import morphogen as mg
        >>> (
        ...     mg.Blueprint.CONV_LIGHT.label,
        ...     mg.make("tiny", envs=1).limits.kinds[mg.Blueprint.CONV_LIGHT],
        ... )
        ('conv_light', 'conv_light')
    """

    NOOP = 0
    CONV_LIGHT = 1
    ATTENTION = 2
    NORM = 3
    DEPTHWISE = 4
    BOTTLENECK = 5
    CONV_SMALL = 6
    CONV_HEAVY = 7
    LORA = 8
    LORA_LARGE = 9
    MLP_SMALL = 10
    MLP = 11
    FLEX_ATTENTION = 12

    @property
    def label(self) -> str:
        """The name in configs, events and tables: `conv_light`."""
        return self.name.lower()


EMPTY = -1
_SHARED = (Blueprint.CONV_LIGHT, Blueprint.CONV_HEAVY, Blueprint.CONV_SMALL, Blueprint.DEPTHWISE)
COMPUTE_ORDER = (
    *_SHARED,
    *(b for b in Blueprint if b not in (Blueprint.NOOP, *_SHARED)),
)  # those with like layers together
CNN_BLUEPRINTS: tuple[Blueprint, ...] = tuple(Blueprint(code) for code in range(1, 8))


def assign_codes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the name of every code in a run, "" where there is none; 13 of them.

    A blueprint of the package has its own code, one from outside the next free one, in the order of
    `names`.
    Raises: ConfigError for more names than codes.
    """
    names = tuple(names)
    table = [kind.label if kind.label in names else "" for kind in Blueprint]
    free = [code for code, name in enumerate(table) if code != Blueprint.NOOP and not name]
    others = [name for name in names if name not in table]
    if len(others) > len(free):
        raise ConfigError(
            f"blueprints: expected at most {len(free)} of other packages in a run, got "
            f"{len(others)}"
        )
    for code, name in zip(free, others, strict=False):
        table[code] = name
    return tuple(table)


CNN_KINDS = assign_codes(blueprint.label for blueprint in CNN_BLUEPRINTS)


def code_labels(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return a name for every code, also for those without a blueprint in this run.  kinds: of
    `assign_codes`.
    """
    return tuple(name or blueprint.label for name, blueprint in zip(kinds, Blueprint, strict=True))


def attention_width(channels: int) -> int:
    """Hidden width of the attention blueprint: `max(1, C // 4)`."""
    return max(1, channels // 4)


def bottleneck_width(channels: int) -> int:
    """Hidden width of the bottleneck blueprint and of the gate network: `max(8, C // 4)`."""
    return max(8, channels // 4)
