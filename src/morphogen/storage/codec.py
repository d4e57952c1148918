"""Codec of host values for checkpoints: to trees of dicts, lists, tensors and plain values, and back."""

import re
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from morphogen.config.fields import join_path
from morphogen.errors import CheckpointError
from morphogen.storage.type_check import build_check
from morphogen.vocab.text import format_value

Tree = Any  # None, bool, int, float, str, tensor, a list of trees, or a dict of them by name
FRACTION = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


def pack(value: Any) -> Tree:
    """The tree of a value: a dataclass or named tuple by its fields, an array as a tensor with a storage of its own."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, order="C"))
    if isinstance(value, Fraction):
        return str(value)
    if (names := _field_names(type(value))) is not None:
        return {name: pack(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): pack(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [pack(inner) for inner in value]
    for kind in (types.NoneType, bool, int, float, str):
        if isinstance(value, kind):
            return value if value is None else kind(value)  # subclasses become the plain type
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def unpack(kind: Any, tree: Tree, where: str) -> Any:
    """The value of an annotated kind that a tree holds; a CheckpointError by name where it holds none."""
    own, inner = get_origin(kind) or kind, get_args(kind)
    if own in (Union, types.UnionType):
        return _unpack_union(inner, tree, where)
    if own is np.ndarray:
        return _unpack_array(tree, where)
    if own is Fraction:
        return Fraction(_expect(isinstance(tree, str) and FRACTION.fullmatch(tree), tree, where, "a fraction"))
    if (names := _field_names(own)) is not None:
        return _unpack_fields(own, names, tree, where)
    if own in (Mapping, dict, Counter):
        held = int if own is Counter else inner[1]
        return (Counter if own is Counter else dict)(_unpack_mapping(held, tree, where))
    if own is tuple:
        return _unpack_tuple(inner, tree, where)
    return _expect(build_check(kind)(tree), tree, where, getattr(kind, "__name__", str(kind)))


def check_arrays(tree: Tree, like: Tree, where: str) -> None:
    """Raise a CheckpointError unless tensors have the shapes and kinds (reals, integers, flags) of `like`."""
    if isinstance(like, Tensor):
        _expect(_tensor_kind(tree) == _tensor_kind(like), tree, where, _tensor_kind(like))
    elif isinstance(like, Mapping):
        for name, inner in like.items():
            check_arrays(tree[name], inner, join_path(where, name))
    elif isinstance(like, list):
        _expect(len(tree) == len(like), tree, where, f"a list of {len(like)}")
        for i, inner in enumerate(like):
            check_arrays(tree[i], inner, f"{where}[{i}]")


def _field_names(kind: Any) -> Sequence[str] | None:
    """The fields of a dataclass or named tuple; None for another kind."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", None) if isinstance(kind, type) and issubclass(kind, tuple) else None


def _unpack_fields(kind: Any, names: Sequence[str], tree: Tree, where: str) -> Any:
    _expect(isinstance(tree, dict), tree, where, "a dict")
    for name in [*names, *tree]:
        if name not in tree or name not in names:
            fault = "is missing" if name in names else "is unknown"
            raise CheckpointError(f"{join_path(where, str(name))} {fault}")
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: unpack(hints[name], tree[name], join_path(where, name)) for name in names})


def _unpack_mapping(kind: Any, tree: Tree, where: str) -> dict[str, Any]:
    _expect(isinstance(tree, dict) and all(isinstance(name, str) for name in tree), tree, where, "a dict by name")
    return {name: unpack(kind, inner, join_path(where, name)) for name, inner in tree.items()}


def _unpack_tuple(kinds: tuple[Any, ...], tree: Tree, where: str) -> tuple[Any, ...]:
    _expect(isinstance(tree, list), tree, where, "a list")
    each = kinds[:1] * len(tree) if kinds[-1] is ... else kinds
    _expect(len(tree) == len(each), tree, where, f"a list of {len(each)}")
    return tuple(unpack(kind, one, f"{where}[{i}]") for i, (kind, one) in enumerate(zip(each, tree, strict=True)))


def _unpack_union(kinds: tuple[Any, ...], tree: Tree, where: str) -> Any:
    """The value of the first kind that fits; the last one says what is wrong."""
    *others, last = sorted(kinds, key=lambda kind: kind is not types.NoneType)
    for kind in others:
        try:
            return unpack(kind, tree, where)
        except CheckpointError:
            continue
    return unpack(last, tree, where)


def _unpack_array(tree: Tree, where: str) -> np.ndarray[Any, Any]:
    _expect(isinstance(tree, Tensor), tree, where, "a tensor")
    try:
        return tree.numpy()
    except (TypeError, RuntimeError) as error:  # sparse, without a value, of a dtype that arrays do not have
        raise CheckpointError(f"{where} is {_describe(tree)}; want a plain tensor: {error}") from error


def _tensor_kind(tree: Tree) -> str:
    """Kind and shape of a tensor."""
    if not isinstance(tree, Tensor):
        return type(tree).__name__
    kind = "flags" if tree.dtype == torch.bool else "complex numbers" if tree.is_complex() else "integers"
    return f"{'reals' if tree.is_floating_point() else kind} {list(tree.shape)}"


def _expect(fits: Any, tree: Tree, where: str, wanted: str) -> Tree:
    if not fits:
        raise CheckpointError(f"{where} is {_describe(tree)}; want {wanted}")
    return tree


def _describe(tree: Tree) -> str:
    return (
        f"{str(tree.dtype).removeprefix('torch.')} {list(tree.shape)}"
        if isinstance(tree, Tensor)
        else format_value(tree)
    )
