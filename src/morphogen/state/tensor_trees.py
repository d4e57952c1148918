"""Trees of tensors and plain values: from tensor collections and back, to safetensors files and
back.

A file holds the tensors by path, and in its metadata the tree as JSON with a reference in place of
each tensor.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from tensordict import is_tensor_collection
from torch import Tensor

from morphogen.config.files import check_depth, error_line, open_regular, write_atomic
from morphogen.errors import CheckpointError

Tree = dict[str, Any]
T = TypeVar("T")
# keys in place of a tensor in the JSON: name, order of the axes in memory
REFERENCE = "$tensor"
ORDER = "$order"
ZIP_MAGIC = b"PK"  # first bytes of the files of formats 1 to 3


def to_nested_dict(tree: Any) -> Any:
    """Return collections and mappings as nested dicts; tensors on the CPU, each with its own
    storage.
    """
    if is_tensor_collection(tree):
        # because iterating over a tree walks its rows
        tree = {key: tree.get(key) for key in tree.keys()}  # noqa: SIM118
    if isinstance(tree, Mapping):
        return {str(key): to_nested_dict(value) for key, value in tree.items()}
    return tree.detach().cpu().clone() if isinstance(tree, Tensor) else tree


def restore_tree(tree: Any, like: T, where: str) -> T:
    """Return a nested dict as a tensor collection like `like`, on the device of `like`.

    Raises: CheckpointError that names the leaf, below `where`, which is missing, extra or of
    another shape or dtype.
    """
    if not isinstance(tree, dict):
        raise CheckpointError(f"{where}: expected a dict, got {_describe_type(tree)}")
    leaves = dict(_leaves(tree))
    required = dict(_leaves(to_nested_dict(like)))
    for leaf in [*required, *leaves]:
        if leaf not in leaves or leaf not in required:
            raise CheckpointError(f"{where}.{leaf} is {'unknown' if leaf in leaves else 'missing'}")
        got = _describe_type(leaves[leaf])
        expected = _describe_type(required[leaf])
        if got != expected:
            raise CheckpointError(f"{where}.{leaf}: expected {expected}, got {got}")

    def take(key: Any, leaf: Tensor) -> Tensor:
        return leaves[key if isinstance(key, str) else ".".join(key)].to(leaf.device)

    collection: Any = like
    return collection.named_apply(take, nested_keys=True)


def _leaves(tree: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _describe_type(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def encode_tree(tree: Any) -> bytes:
    """Return a tree of dicts, lists, tensors, arrays and plain values as the bytes of a safetensors
    file.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_take_tensors(tree, "", tensors))
    return safetensors.torch.save(tensors, {"tree": text})


def save_tree(tree: Any, path: Path) -> None:
    """Write a tree to a file in one step.  Raises: OSError if the file cannot be written."""
    write_atomic(path, encode_tree(tree))


def _take_tensors(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return a tree with references in place of its tensors, which are added to `tensors` by
    path.
    """
    if isinstance(tree, np.ndarray):
        tree = torch.from_numpy(tree)
    if isinstance(tree, Tensor):
        if path in tensors:
            raise ValueError(f"two tensors have the path {path}")
        order = memory_order(tree)  # kept: sums depend on it to the last bit
        tensors[path] = tree.contiguous()
        return {REFERENCE: path} if order == sorted(order) else {REFERENCE: path, ORDER: order}
    above = f"{path}." if path else ""
    if isinstance(tree, dict):
        return {key: _take_tensors(value, f"{above}{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_tensors(value, f"{above}{i}", tensors) for i, value in enumerate(tree)]
    return tree


def memory_order(tensor: Tensor) -> list[int]:
    """Return the axes of a tensor from the outermost in memory to the innermost."""
    return sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))


def load_tree(path: Path, *, label: str) -> Any:
    """Return the tree of a file, tensors on the CPU, each with its own storage.

    The file runs no code, and takes no more memory than its bytes: safetensors checks that the
    header and the declared tensors fill the file exactly, before tensors are copied from it.

    Args:
        label: kind of file, for the error message.

    Raises: CheckpointError if the file is missing, damaged, of an older format or holds anything
    else.
    """
    try:
        with open_regular(path) as file:
            if file.read(2) == ZIP_MAGIC:
                raise ValueError("expected a safetensors file, got a file of an older format")
            # of any name
            with safetensors.safe_open(f"/dev/fd/{file.fileno()}", framework="pt") as content:
                text = (content.metadata() or {}).get("tree")
                names = content.keys()
                tensors = {name: content.get_tensor(name).clone() for name in names}
        if text is None:
            raise ValueError("expected a tree in its metadata, got none")
        return _place_tensors(text, tensors)
    except FileNotFoundError:
        raise CheckpointError(f"{label} {path} is missing") from None
    except Exception as error:  # a damaged file can raise any exception
        raise CheckpointError(f"{label} {path} cannot be read: {error_line(error)}") from None


def _place_tensors(text: str, tensors: dict[str, Tensor]) -> Any:
    """Return the tree of a JSON text, each of `tensors` in the one place that refers to it."""

    def place(entry: Tree) -> Any:
        if REFERENCE not in entry or not entry.keys() <= {REFERENCE, ORDER}:
            return entry
        tensor = tensors.pop(entry[REFERENCE], None)
        shown = f"the tensor {ascii(entry[REFERENCE])[:60]}"
        if tensor is None:
            raise ValueError(f"{shown} is missing or has two places")
        order = entry.get(ORDER, [*range(tensor.ndim)])
        if sorted(order) != [*range(tensor.ndim)]:
            raise ValueError(f"{shown} has the axes {ascii(order)[:60]}")
        inverse = [order.index(axis) for axis in range(tensor.ndim)]
        return tensor.permute(order).contiguous().permute(inverse)

    try:
        tree = json.loads(text, object_hook=place)
    except RecursionError:
        raise ValueError("nested too deep") from None
    check_depth(tree)
    if tensors:
        raise ValueError(f"the tensor {ascii(next(iter(tensors)))[:60]} has no place in the tree")
    return tree
