"""Slots: names, shapes, and their order in the forward pass of a host."""

import re
from dataclasses import dataclass

from morphogen.errors import ConfigError
from morphogen.vocab.plain import make_plain

_NAME = re.compile(r"r(0|[1-9][0-9]*)c(0|[1-9][0-9]*)")


def parse_slot(name: str) -> tuple[int, int]:
    """Return row and column of a name: `r0c10` -> (0, 10).  Raises: ConfigError for another form of
    name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"slot: expected r{{row}}c{{col}} with decimal integers without leading zeros, "
            f"got {name!r}"
        )
    return int(match[1]), int(match[2])


def format_slot(row: int, col: int) -> str:
    """Return the name of a place: (0, 10) -> `r0c10`."""
    return f"r{row}c{col}"


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """Place between two host layers where a seed can live.

    Raises: ConfigError for a name other than `r{row}c{col}`.

    Example:
        >>> import morphogen as mg
        >>> slot = mg.SlotSpec("r1c0", channels=16, size=(4, 4), execution=1)
        >>> slot.place, slot.name in [slot.name for slot in mg.make("tiny", envs=1).net.slots]
        ((1, 0), True)
    """

    name: str
    """r{row}c{col}."""
    channels: int
    """Of the features."""
    size: tuple[int, ...] = ()
    """Of the features between samples and networks: height and width of images."""
    execution: int = 0
    """Place among all slots of the host, in the order of the forward pass."""
    pooled: bool = False
    """The features are max-pooled 2x2 right after the slot."""

    def __post_init__(self) -> None:
        make_plain(self)
        parse_slot(self.name)

    @property
    def place(self) -> tuple[int, int]:
        """Row and column."""
        return parse_slot(self.name)
