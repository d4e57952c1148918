"""Fixed description of the networks of a run: the host and its enabled slots, as plain numbers."""

from dataclasses import dataclass, field
from typing import Any

from morphogen.state.schema import Sizes
from morphogen.vocab.blueprint import Blueprint, cnn_param_count, gate_param_count
from morphogen.vocab.slot import CnnSpec, SlotSpec


def _derived_field() -> Any:
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Net:
    """Host and enabled slots, in slot order: index s of every slot axis is the position in `slots`.  Hashable."""

    host: CnnSpec
    slots: tuple[SlotSpec, ...]
    execution: tuple[int, ...] = _derived_field()  # positions in `slots`, in the order of the forward pass
    counts: tuple[tuple[int, ...], ...] = _derived_field()  # [S][13] parameters of every blueprint in every slot
    gate_counts: tuple[int, ...] = _derived_field()  # [S] parameters of the gate network of every slot
    seed_sizes: tuple[int, ...] = _derived_field()  # [S] P_s: the largest blueprint of the slot plus its gate network
    host_size: int = _derived_field()  # P: parameters of the host at full width

    def __post_init__(self) -> None:
        slots = self.slots
        counts = tuple(tuple(cnn_param_count(b, slot.channels) for b in Blueprint) for slot in slots)
        gates = tuple(gate_param_count(slot.channels) for slot in slots)
        derived = {
            "execution": tuple(sorted(range(len(slots)), key=lambda s: slots[s].execution)),
            "counts": counts,
            "gate_counts": gates,
            "seed_sizes": tuple(max(row) + gate for row, gate in zip(counts, gates, strict=True)),
            "host_size": self.host.params(),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def names(self) -> tuple[str, ...]:
        """Slot names, in slot order."""
        return tuple(slot.name for slot in self.slots)

    def sizes(self, *, envs: int, window: int, classes: int, table: int = 0) -> Sizes:
        """Return the lengths of the axes of a state of these envs."""
        return Sizes(envs, self.names, self.host_size, self.seed_sizes, window, classes, table)
