"""Trees of tensors: leaves by name, equality, single envs.

A tree is a tensor, a TensorDict or TensorClass, or a tuple, list or dict of trees; other values are
ignored.

    from morphogen.testing.builders import scenes, tree_equality
    slots = scenes.make_slots([[{"stage": 4, "alpha": 0.5}], [{}]])
    assert tree_equality.env_count(slots) == 2
    assert tree_equality.trees_equal(slots[1:], scenes.make_slot())
    assert tree_equality.differing_leaves(slots[:1], slots[1:]) == {"stage", "alpha"}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import is_tensor_collection
from torch import Tensor

from morphogen.compat import tree_map
from morphogen.state.schema import PARTS

# of the leaves of a state
_EMPTY = {leaf.name: leaf.empty for part in PARTS.values() for leaf in part}


def leaves(tree: Any, path: str = "") -> dict[str, Tensor]:
    """Return all tensors of a tree by dotted path."""
    if isinstance(tree, Tensor):
        return {path: tree}
    if is_tensor_collection(tree):
        parts: dict = {
            ".".join((key,) if isinstance(key, str) else key): leaf
            for key, leaf in tree.items(True, True)
        }
    elif isinstance(tree, Mapping):
        parts = dict(tree)
    elif isinstance(tree, Sequence) and not isinstance(tree, str):
        parts = dict(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    else:
        return {}
    named = ((f"{path}.{key}" if path else str(key), part) for key, part in parts.items())
    return {name: leaf for where, part in named for name, leaf in leaves(part, where).items()}


def map_tree(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every tensor, TensorDict and TensorClass of a tree."""
    return tree_map(
        lambda part: change(part) if _is_part(part) else part, tree, is_leaf=is_tensor_collection
    )


def _is_part(tree: Any) -> bool:
    return isinstance(tree, Tensor) or is_tensor_collection(tree)


def copy_tree(tree: Any) -> Any:
    """Copy a tree."""
    return map_tree(tree, lambda part: part.clone())


def move_tree(tree: Any, device: str) -> Any:
    """Move a tree to another device."""
    return map_tree(tree, lambda part: part.to(device))


def cast_tree(tree: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point leaves of a tree."""

    def change(part: Any) -> Any:
        if is_tensor_collection(part):
            return part.apply(change)
        return part.to(dtype) if part.is_floating_point() else part

    return map_tree(tree, change)


def tree_form(tree: Any) -> tuple[frozenset[Any], tuple[str, ...]]:
    """Return shapes and dtypes of the leaves, and the plain values: all that a run may depend on
    without reads.
    """
    shapes = frozenset((path, str(leaf.dtype), *leaf.shape) for path, leaf in leaves(tree).items())
    plain = [part for part in tree if not leaves(part)] if isinstance(tree, tuple) else []
    return shapes, tuple(repr(part) for part in plain)


def env_count(tree: Any, axis: int = 0) -> int:
    """Return the number of envs of the first part with an env axis, or 0; `axis`: of envs in bare
    tensors.
    """
    sizes: list[int] = []
    map_tree(tree, lambda part: sizes.extend(_env_axes(part, axis)[:1]))
    return sizes[0] if sizes else 0


def select_env(tree: Any, env: int, *, count: int, axis: int = 0) -> Any:
    """Select one of `count` envs, keeping the axis; parts of another size stay complete."""

    def cut(part: Any) -> Any:
        if _env_axes(part, axis)[:1] != (count,):
            return part
        return part[env : env + 1] if is_tensor_collection(part) else part.narrow(axis, env, 1)

    return map_tree(tree, cut)


def _env_axes(part: Any, axis: int) -> tuple[int, ...]:
    """Return the sizes of the axes of a part from its env axis on."""
    return tuple(part.batch_size if is_tensor_collection(part) else part.shape[axis:])


def tensors_equal(x: Tensor, y: Tensor, tolerance: float = 0.0) -> bool:
    """Compare dtype, shape and values, NaN equal to itself; `tolerance`: of reals, times 1 +
    |y|.
    """
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if not x.is_floating_point():
        return torch.equal(x, y)
    return torch.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def differing_leaves(a: Any, b: Any, tolerance: float = 0.0) -> set[str]:
    """Return the paths of the leaves that differ or exist in one tree only."""
    left = leaves(a)
    right = leaves(b)
    both = left.keys() & right.keys()
    return (left.keys() ^ right.keys()) | {
        name for name in both if not tensors_equal(left[name], right[name], tolerance)
    }


def trees_equal(a: Any, b: Any) -> bool:
    """Return True for equal leaves, bit for bit, NaN equal to itself."""
    return not differing_leaves(a, b)


def format_tree(tree: Any) -> str:
    """Format the non-empty leaves, one per line; long leaves by their shape."""
    rows = []
    for name, leaf in leaves(tree).items():
        if (leaf != _EMPTY.get(name.rpartition(".")[2], 0)).any():
            form = f"{leaf.dtype} {tuple(leaf.shape)}"
            rows.append(f"{name} = {leaf.tolist() if leaf.numel() <= 24 else form}")
    return "\n".join(rows) or "every leaf is empty"
