"""Parameters as flat rows of named leaves: initial values, splitting, joining."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from morphogen.errors import ConfigError
from morphogen.kernels.elementwise import by_vectors
from morphogen.vocab.text import format_value

# keeps normal values finite: half a step above the least number that is drawn
LEAST = 2.0**-24 - 1.0
Leaves = dict[str, Tensor]  # name -> [R, *shape]
LeafMap = Mapping[str, Tensor]  # leaves to read: a dict, or a TensorDict with tensors only


@dataclass(frozen=True)
class ParamLeaf:
    """One parameter tensor of every network, initially uniform in `fill + [-bound, bound)`, or
    normal.

    Args:
        name: unique among the leaves of a layout.
        shape: of the parameter of one network; stacked, it is [R, *shape].
        bound, fill: half of the width, and the centre, of the range of initial values.
        std: standard deviation of initial values that are normal; 0 = they are uniform.

    Example:
        >>> import morphogen as mg
        >>> mg.ParamLeaf("gain", (4,), fill=1.0).size
        4
    """

    name: str
    shape: tuple[int, ...]
    bound: float = 0.0
    fill: float = 0.0
    std: float = 0.0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def fan_in_leaf(name: str, shape: tuple[int, ...], fan: int) -> ParamLeaf:
    """Return a leaf that is initially uniform in `[-b, b)`, `b = 1 / sqrt(fan)`, like the layers of
    `torch.nn`.

    Args:
        name, shape: as in `ParamLeaf`.
        fan: number of inputs of the layer, at least 1.

    Example:
        >>> import morphogen as mg
        >>> mg.fan_in_leaf("weight", (10, 64), fan=64)
        ParamLeaf(name='weight', shape=(10, 64), bound=0.125, fill=0.0, std=0.0)
    """
    return ParamLeaf(name, shape, bound=fan**-0.5)


@dataclass(frozen=True)
class ParamLayout:
    """Leaves in storage order, from offset 0; a row may be longer than its leaves.

    Promise: `split` of `join` returns the leaves, and `join` of `split` the first `size` elements
    of every row.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> layout = mg.ParamLayout(
        ...     (mg.fan_in_leaf("weight", (2, 4), 4), mg.ParamLeaf("bias", (2,), fill=1.0))
        ... )
        >>> rows = layout.draw(
        ...     torch.full((3, layout.size), 0.5)
        ... )  # 3 networks; 0.5 is the middle of every range
        >>> leaves = layout.split(rows)
        >>> layout.size, leaves["weight"].shape, leaves["bias"][0].tolist()
        (10, torch.Size([3, 2, 4]), [1.0, 1.0])
        >>> torch.equal(layout.join(leaves), rows)
        True
    """

    leaves: tuple[ParamLeaf, ...]
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)  # elements of every leaf
    size: int = field(init=False, compare=False)  # of all leaves

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(leaf.size for leaf in self.leaves))
        object.__setattr__(self, "size", sum(self.sizes))

    def leaf_parts(self, flat: Tensor) -> Iterator[tuple[ParamLeaf, Tensor]]:
        """Return every leaf with its part of the rows, flat.  flat [R, >= size] -> [R, leaf.size]
        each.
        """
        parts = flat.split_with_sizes([*self.sizes, flat.shape[-1] - self.size], dim=-1)
        return zip(self.leaves, parts[:-1], strict=True)

    def split(self, flat: Tensor) -> Leaves:
        """Return leaves as views of one split, whose gradient is one tensor.  flat [R, >= size] ->
        [R, *shape].
        """
        return {leaf.name: part.view(-1, *leaf.shape) for leaf, part in self.leaf_parts(flat)}

    def join(self, leaves: Leaves) -> Tensor:
        """Concatenate leaves, the inverse of `split`.  [R, *shape] each -> [R, size]."""
        return torch.cat([leaves[leaf.name].reshape(-1, leaf.size) for leaf in self.leaves], dim=-1)

    def find(self, patterns: Sequence[str], setting: str) -> frozenset[str]:
        """Return the names of the leaves that match any pattern, as of a shell.

        Raises: ConfigError, for this setting, for a pattern that matches no leaf.
        """
        names = [leaf.name for leaf in self.leaves]
        found: set[str] = set()
        for pattern in patterns:
            matches = {name for name in names if fnmatchcase(name, pattern)}
            if not matches:
                known = f"expected patterns of the names {', '.join(names)}"
                raise ConfigError(f"{setting}: {known}, got {format_value(pattern)}")
            found |= matches
        return frozenset(found)

    def draw(self, uniform: Tensor) -> Tensor:
        """Return initial rows.  uniform [R, >= size] in [0, 1) -> [R, size]."""
        return torch.cat(
            [_initial_values(leaf, part) for leaf, part in self.leaf_parts(uniform)], dim=-1
        )


def _initial_values(leaf: ParamLeaf, uniform: Tensor) -> Tensor:
    """Map numbers in [0, 1) to initial values, one by one."""
    centred = 2.0 * uniform - 1.0
    if not leaf.std:
        return leaf.fill + leaf.bound * centred
    normal = by_vectors(torch.erfinv, centred.clamp(min=LEAST))
    return leaf.fill + leaf.std * math.sqrt(2.0) * normal
