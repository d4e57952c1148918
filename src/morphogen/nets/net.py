"""Fixed description of the networks of a run: host and enabled slots, and parameters as flat rows of named leaves."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from morphogen.state.schema import Sizes
from morphogen.vocab.blueprint import Blueprint, cnn_param_count, gate_param_count
from morphogen.vocab.slot import CnnSpec, SlotSpec

Leaves = dict[str, Tensor]  # name -> [R, *shape]


@dataclass(frozen=True)
class ParamLeaf:
    """One parameter tensor, initially uniform in `fill + [-bound, bound)`."""

    name: str
    shape: tuple[int, ...]
    bound: float = 0.0
    fill: float = 0.0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def fan_in_leaf(name: str, shape: tuple[int, ...], fan: int) -> ParamLeaf:
    """Return a leaf that is initially uniform in `[-b, b)`, `b = 1 / sqrt(fan)`."""
    return ParamLeaf(name, shape, bound=fan**-0.5)


@dataclass(frozen=True)
class ParamLayout:
    """Leaves in storage order, from offset 0; a row may be longer than its leaves."""

    leaves: tuple[ParamLeaf, ...]
    size: int = field(init=False, compare=False)  # elements of all leaves

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(leaf.size for leaf in self.leaves))

    def leaf_parts(self, flat: Tensor) -> Iterator[tuple[ParamLeaf, Tensor]]:
        """Return every leaf with its part of the rows, flat.  flat [R, >= size] -> [R, leaf.size] each."""
        sizes = [leaf.size for leaf in self.leaves]
        parts = flat.split([*sizes, flat.shape[-1] - self.size], dim=-1)
        return zip(self.leaves, parts[:-1], strict=True)

    def split(self, flat: Tensor) -> Leaves:
        """Return leaves as views of one split, whose gradient is one tensor.  flat [R, >= size] -> [R, *shape]."""
        return {leaf.name: part.view(-1, *leaf.shape) for leaf, part in self.leaf_parts(flat)}

    def join(self, leaves: Leaves) -> Tensor:
        """Concatenate leaves, the inverse of `split`.  [R, *shape] each -> [R, size]."""
        return torch.cat([leaves[leaf.name].reshape(-1, leaf.size) for leaf in self.leaves], dim=-1)

    def draw(self, uniform: Tensor) -> Tensor:
        """Return initial rows.  uniform [R, >= size] in [0, 1) -> [R, size]."""
        rows = [leaf.fill + leaf.bound * (2.0 * part - 1.0) for leaf, part in self.leaf_parts(uniform)]
        return torch.cat(rows, dim=-1)


def cache_layout(make: Callable[..., ParamLayout]) -> Callable[..., ParamLayout]:
    """Cache the results of `make`; a graph, in which layouts are constants, is traced through `make` itself."""
    return functools.partial(_call_cached, make, functools.cache(make))


def _call_cached(make: Callable[..., ParamLayout], cached: Callable[..., ParamLayout], *key: object) -> ParamLayout:
    return make(*key) if torch.compiler.is_compiling() else cached(*key)


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
