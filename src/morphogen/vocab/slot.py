"""Slots: names, shapes, and their order in the forward pass of a host."""

import re
from dataclasses import dataclass

from morphogen.errors import ConfigError

_NAME = re.compile(r"r(0|[1-9][0-9]*)c(0|[1-9][0-9]*)")


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
    """A place between two host layers where a seed can live."""

    name: str  # r{row}c{col}
    channels: int  # of the features
    size: tuple[int, ...] = ()  # of the features between samples and networks: height and width of images
    execution: int = 0  # place among all slots of the host, in the order of the forward pass
    pooled: bool = False  # the features are max-pooled 2x2 right behind the slot

    def __post_init__(self) -> None:
        parse_slot(self.name)

    @property
    def place(self) -> tuple[int, int]:
        """Row and column."""
        return parse_slot(self.name)
