"""Shards: states of the envs of each rank, joined and divided along the axis of the envs."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from morphogen.config.files import error_line
from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import Tree, memory_order

EPOCHS_FIRST = ("rollout", "columns")  # entries with leaves [t, E, ...]; others have [E, ...]


def join_envs(trees: Sequence[Tree]) -> Tree:
    """Return the trees of neighbouring envs as one.

    Raises: CheckpointError unless they have equal entries.
    """
    try:
        return _map_leaves(_join_leaves, trees)
    except (RuntimeError, ValueError, AttributeError, IndexError) as error:
        raise CheckpointError(f"the shards of the envs differ: {error_line(error)}") from None


def take_envs(tree: Tree, own: Callable[[int], range]) -> Tree:
    """Return the tree of some of its envs.  own: of a number of envs -> those that are taken."""

    def take_rows(leaves: Sequence[Tensor], axis: int) -> Tensor:
        rows = own(leaves[0].shape[axis])
        # a copy keeps the order of the axes in memory
        return leaves[0].narrow(axis, rows.start, len(rows)).clone()

    return _map_leaves(take_rows, [tree])


def _map_leaves(
    function: Callable[[Sequence[Tensor], int], Tensor],
    trees: Sequence[Tree],
    axis: int | None = None,
) -> Tree:
    """Return a tree of the results for the leaves of the same path, and the axis of their envs."""
    first = trees[0]
    if any(tree.keys() != first.keys() for tree in trees):
        raise ValueError(f"expected the entries {', '.join(first)}")
    mapped: Tree = {}
    for name, entry in first.items():
        at = int(name in EPOCHS_FIRST) if axis is None else axis
        entries = [tree[name] for tree in trees]
        mapped[name] = (
            _map_leaves(function, entries, at) if isinstance(entry, dict) else function(entries, at)
        )
    return mapped


def _join_leaves(leaves: Sequence[Tensor], axis: int) -> Tensor:
    """Join leaves; the order of the axes in memory stays."""
    order = memory_order(leaves[0])
    joined = torch.cat([leaf.permute(order) for leaf in leaves], dim=order.index(axis))
    return joined.permute([order.index(axis) for axis in range(joined.ndim)])
