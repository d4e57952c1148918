"""Tensor collections as nested dicts for files, and back after a comparison leaf by leaf."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tensordict import is_tensor_collection
from torch import Tensor

from morphogen.errors import CheckpointError

Tree = dict[str, Any]
T = TypeVar("T")


def to_nested_dict(tree: Any) -> Any:
    """Return collections and mappings as nested dicts; tensors on the CPU, each with its own storage."""
    if is_tensor_collection(tree):
        tree = {key: tree.get(key) for key in tree.keys()}  # noqa: SIM118  (iterating one walks its rows)
    if isinstance(tree, Mapping):
        return {str(key): to_nested_dict(value) for key, value in tree.items()}
    return tree.detach().cpu().clone() if isinstance(tree, Tensor) else tree


def restore_tree(tree: Any, like: T, where: str) -> T:
    """Return a nested dict as a tensor collection like `like`, on the device of `like`.

    Raises: CheckpointError that names the leaf, below `where`, which is missing, extra or of another shape or dtype.
    """
    check_tree(tree, to_nested_dict(like), where)
    leaves = dict(_leaves(tree))
    take = lambda key, leaf: leaves[key if isinstance(key, str) else ".".join(key)].to(leaf.device)  # noqa: E731
    return like.named_apply(take, nested_keys=True)  # type: ignore[attr-defined]


def _leaves(tree: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def check_tree(tree: Any, expected: Tree, where: str) -> None:
    """Raise a CheckpointError that names the first leaf in which two trees differ: missing, extra, shape or dtype."""
    if not isinstance(tree, dict):
        raise CheckpointError(f"{where}: expected a dict, got {_describe_type(tree)}")
    actual, required = dict(_leaves(tree)), dict(_leaves(expected))
    for leaf in [*required, *actual]:
        path = f"{where}.{leaf}"
        if leaf not in actual:
            raise CheckpointError(f"{path} is missing")
        if leaf not in required:
            raise CheckpointError(f"{path} is unknown")
        if (got := _describe_type(actual[leaf])) != (want := _describe_type(required[leaf])):
            raise CheckpointError(f"{path}: expected {want}, got {got}")


def _describe_type(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
