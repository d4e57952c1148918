"""Shards of a checkpoint: states of the envs of each rank, joined and divided along the axis of the envs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.errors import CheckpointError
from morphogen.storage.files import error_line
from morphogen.storage.tensor_trees import Tree, memory_order

EPOCHS_FIRST = ("rollout", "columns")  # entries with leaves [t, E, ...]; the leaves of all others are [E, ...]


def overlapping_shards(shards: int, rank: int, ranks: int) -> range:
    """Return the shards, of all `shards`, that hold envs of a rank of `ranks`."""
    return range(rank * shards // ranks, -(-(rank + 1) * shards // ranks))


def join_envs(trees: Sequence[Tree]) -> Tree:
    """Return the trees of neighbouring envs as one.  Raises: CheckpointError unless they have equal entries."""
    try:
        return _map_leaves(_join_leaves, trees)
    except (RuntimeError, ValueError, AttributeError, IndexError) as error:
        raise CheckpointError(f"the shards of the envs differ: {error_line(error)}") from None


def take_envs(tree: Tree, envs: range) -> Tree:
    """Return the tree of some of its envs."""
    return _map_leaves(lambda leaves, axis: _take_rows(leaves[0], axis, envs), [tree])


def count_envs(tree: Tree) -> int:
    """Return the number of envs in a tree; 0 for a tree without tensors."""
    sizes = (leaf.shape[axis] for leaf, axis in _leaves(tree) if leaf.dim() > axis)
    return next(sizes, 0)


def _leaves(tree: Tree, axis: int | None = None) -> Iterator[tuple[Tensor, int]]:
    for name, entry in tree.items():
        at = int(name in EPOCHS_FIRST) if axis is None else axis
        if isinstance(entry, dict):
            yield from _leaves(entry, at)
        elif isinstance(entry, Tensor):
            yield entry, at


def _map_leaves(function: Callable[[Sequence[Any], int], Any], trees: Sequence[Tree], axis: int | None = None) -> Tree:
    """Return a tree of the results for the leaves of the same path, and the axis of their envs."""
    first = trees[0]
    if any(tree.keys() != first.keys() for tree in trees):
        raise ValueError(f"expected the entries {', '.join(first)}")
    mapped: Tree = {}
    for name, entry in first.items():
        at, entries = int(name in EPOCHS_FIRST) if axis is None else axis, [tree[name] for tree in trees]
        mapped[name] = _map_leaves(function, entries, at) if isinstance(entry, dict) else function(entries, at)
    return mapped


def _join_leaves(leaves: Sequence[Any], axis: int) -> Any:
    """Join leaves; the order of the axes in memory stays."""
    if len(leaves) == 1 or not isinstance(leaves[0], Tensor):
        return leaves[0]
    order = memory_order(leaves[0])
    return _restore_axes(torch.cat([leaf.permute(order) for leaf in leaves], dim=order.index(axis)), order)


def _take_rows(leaf: Any, axis: int, rows: range) -> Any:
    """Take rows of a leaf; the order of the axes in memory stays."""
    if not isinstance(leaf, Tensor) or len(rows) == leaf.shape[axis]:
        return leaf
    order = memory_order(leaf)
    part = leaf.permute(order).narrow(order.index(axis), rows.start, len(rows))
    return _restore_axes(part.clone(memory_format=torch.contiguous_format), order)


def _restore_axes(tensor: Tensor, order: list[int]) -> Tensor:
    return tensor.permute([order.index(axis) for axis in range(tensor.ndim)])
