"""Codec of host values for checkpoints: to trees of dicts, lists, tensors and plain values, and back."""

import re
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from morphogen.config.fields import join_path
from morphogen.errors import CheckpointError
from morphogen.storage.type_check import check
from morphogen.vocab.text import format_value

Tree = Any  # None, bool, int, float, str, tensor, a list of trees, or a dict of them by name
RATIO = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


def packed(value: Any) -> Tree:
    """Return the tree of a value: dataclasses and named tuples as dicts of fields, arrays as copied tensors.

    Raises: TypeError for a value of any other type.
    """
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, order="C"))
    if isinstance(value, Fraction):
        return str(value)
    if (names := _names(type(value))) is not None:
        return {name: packed(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): packed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [packed(inner) for inner in value]
    for kind in (types.NoneType, bool, int, float, str):
        if isinstance(value, kind):
            return value if value is None else kind(value)  # subclasses become the plain type
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def unpacked(kind: Any, tree: Tree, where: str) -> Any:
    """Return the value of the annotated type `kind` from a tree.

    Raises: CheckpointError that names the first entry, below `where`, that does not fit.
    """
    base, inner = get_origin(kind) or kind, get_args(kind)
    if base in (Union, types.UnionType):
        return _one_of(inner, tree, where)
    if base is np.ndarray:
        return _array(tree, where)
    if base is Fraction:
        return Fraction(_want(isinstance(tree, str) and RATIO.fullmatch(tree), tree, where, "a fraction"))
    if (names := _names(base)) is not None:
        return _fields(base, names, tree, where)
    if base in (Mapping, dict, Counter):
        items = _by_name(int if base is Counter else inner[1], tree, where)
        return Counter(items) if base is Counter else items
    if base is tuple:
        return _row(inner, tree, where)
    name = " ".join([inner[0].__name__, *map(str, inner[1:])]) if base is Annotated else getattr(kind, "__name__", kind)
    return _want(check(kind)(tree), tree, where, name)


def check_arrays(tree: Tree, like: Tree, where: str) -> None:
    """Raise a CheckpointError unless tensors have the shapes and kinds (reals, integers, flags) of `like`."""
    if isinstance(like, Tensor):
        _want(_sort(tree) == _sort(like), tree, where, _sort(like))
    elif isinstance(like, Mapping):
        for name, inner in like.items():
            check_arrays(tree[name], inner, join_path(where, name))
    elif isinstance(like, list):
        _want(len(tree) == len(like), tree, where, f"a list of {len(like)}")
        for i, inner in enumerate(like):
            check_arrays(tree[i], inner, f"{where}[{i}]")


def _names(kind: Any) -> Sequence[str] | None:
    """Return the field names of a dataclass or named tuple; None for another type."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", None) if isinstance(kind, type) and issubclass(kind, tuple) else None


def _fields(kind: Any, names: Sequence[str], tree: Tree, where: str) -> Any:
    _want(isinstance(tree, dict), tree, where, "a dict")
    for name in [*names, *tree]:
        if name not in tree or name not in names:
            fault = "is missing" if name in names else "is unknown"
            raise CheckpointError(f"{join_path(where, str(name))} {fault}")
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: unpacked(hints[name], tree[name], join_path(where, name)) for name in names})


def _by_name(kind: Any, tree: Tree, where: str) -> dict[str, Any]:
    _want(isinstance(tree, dict) and all(isinstance(name, str) for name in tree), tree, where, "a dict by name")
    return {name: unpacked(kind, inner, join_path(where, name)) for name, inner in tree.items()}


def _row(kinds: tuple[Any, ...], tree: Tree, where: str) -> tuple[Any, ...]:
    _want(isinstance(tree, list), tree, where, "a list")
    each = kinds[:1] * len(tree) if kinds[-1] is ... else kinds
    _want(len(tree) == len(each), tree, where, f"a list of {len(each)}")
    return tuple(unpacked(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(each, tree, strict=True)))


def _one_of(kinds: tuple[Any, ...], tree: Tree, where: str) -> Any:
    """Return the value of the first type that fits; the error is that of the last type."""
    *others, last = sorted(kinds, key=lambda kind: kind is not types.NoneType)
    for kind in others:
        try:
            return unpacked(kind, tree, where)
        except CheckpointError:
            continue
    return unpacked(last, tree, where)


def _array(tree: Tree, where: str) -> np.ndarray[Any, Any]:
    _want(isinstance(tree, Tensor), tree, where, "a tensor")
    try:
        return tree.numpy()
    except (TypeError, RuntimeError) as error:  # sparse, without a value, of a dtype that arrays do not have
        raise CheckpointError(f"{where}: expected a plain tensor, got {_text(tree)}: {error}") from error


def _sort(tree: Tree) -> str:
    """Kind of the values of a tensor, and its shape."""
    if not isinstance(tree, Tensor):
        return type(tree).__name__
    kind = "flags" if tree.dtype == torch.bool else "complex numbers" if tree.is_complex() else "integers"
    return f"{'reals' if tree.is_floating_point() else kind} {list(tree.shape)}"


def _want(fits: Any, tree: Tree, where: str, expected: str) -> Tree:
    if not fits:
        raise CheckpointError(f"{where}: expected {expected}, got {_text(tree)}")
    return tree


def _text(tree: Tree) -> str:
    return (
        f"{str(tree.dtype).removeprefix('torch.')} {list(tree.shape)}"
        if isinstance(tree, Tensor)
        else format_value(tree)
    )
