"""Parameters as flat rows of named leaves: initial values, splitting, joining."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
