"""What is fixed about the networks of a run: the host and its enabled slots, as plain numbers."""

from dataclasses import dataclass
from functools import cached_property

from morphogen.state.schema import Sizes
from morphogen.vocab.blueprint import Blueprint, cnn_count, gate_count
from morphogen.vocab.slot import CnnSpec, SlotSpec


@dataclass(frozen=True)
class Net:
    """Host and enabled slots, in slot order: index s of every slot axis is the position in `slots`.  Hashable."""

    host: CnnSpec
    slots: tuple[SlotSpec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Slot names, in slot order."""
        return tuple(slot.name for slot in self.slots)

    @cached_property
    def execution(self) -> tuple[int, ...]:
        """Positions in `slots` in the order in which the forward pass meets them."""
        return tuple(sorted(range(len(self.slots)), key=lambda s: self.slots[s].execution))

    @property
    def host_size(self) -> int:
        """P: parameters of the host at full width."""
        return self.host.params()

    @cached_property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """[S][13] parameters of every blueprint in every slot; 0 where the topology does not have it."""
        return tuple(tuple(cnn_count(b, slot.channels) for b in Blueprint) for slot in self.slots)

    @cached_property
    def gate_counts(self) -> tuple[int, ...]:
        """[S] parameters of the gate network of every slot."""
        return tuple(gate_count(slot.channels) for slot in self.slots)

    @cached_property
    def seed_sizes(self) -> tuple[int, ...]:
        """[S] P_s: the largest blueprint of the slot plus its gate network."""
        return tuple(max(row) + gate for row, gate in zip(self.counts, self.gate_counts, strict=True))

    def sizes(self, *, envs: int, window: int, classes: int, table: int = 0) -> Sizes:
        """The numbers behind the axes of a state of so many envs."""
        return Sizes(envs, self.names, self.host_size, self.seed_sizes, window, classes, table)
