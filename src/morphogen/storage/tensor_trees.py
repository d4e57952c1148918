"""Trees of tensors on their way to a file and back: nested dicts, compared leaf by leaf before they are taken over."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tensordict import is_tensor_collection
from torch import Tensor

from morphogen.errors import CheckpointError

Tree = dict[str, Any]
T = TypeVar("T")


def to_nested_dict(tree: Any) -> Any:
    """Tensor collections and mappings as nested dicts; tensors on the CPU, each with a storage of its own."""
    if is_tensor_collection(tree):
        tree = {key: tree.get(key) for key in tree.keys()}  # noqa: SIM118  (iterating one walks its rows)
    if isinstance(tree, Mapping):
        return {str(key): to_nested_dict(value) for key, value in tree.items()}
    return tree.detach().cpu().clone() if isinstance(tree, Tensor) else tree


def restore_tree(tree: Any, like: T, where: str) -> T:
    """What a file held as a tensor collection like `like`, on its device.

    A leaf that is missing, extra or of another shape or dtype is a CheckpointError that names it, below `where`.
    """
    check_tree(tree, to_nested_dict(like), where)
    leaves = dict(_leaves(tree))
    take = lambda key, leaf: leaves[".".join(_key_path(key))].to(leaf.device)  # noqa: E731
    return like.named_apply(take, nested_keys=True)  # type: ignore[attr-defined]


def _key_path(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def _leaves(tree: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def check_tree(tree: Any, expected: Tree, where: str) -> None:
    """Two trees have the same leaves, tensors of the same shape and dtype; else a CheckpointError that names one."""
    if not isinstance(tree, dict):
        raise CheckpointError(f"{where} is {_describe_type(tree)}; want a dict")
    have, need = dict(_leaves(tree)), dict(_leaves(expected))
    for leaf in [*need, *have]:
        path = f"{where}.{leaf}"
        if leaf not in have:
            raise CheckpointError(f"{path} is missing")
        if leaf not in need:
            raise CheckpointError(f"{path} is not known here")
        if _describe_type(have[leaf]) != _describe_type(need[leaf]):
            raise CheckpointError(f"{path} is {_describe_type(have[leaf])}; want {_describe_type(need[leaf])}")


def _describe_type(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
