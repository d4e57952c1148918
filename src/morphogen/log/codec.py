"""Codec of host values for checkpoints: to trees of dicts, lists, arrays and plain values, and
back.  No torch.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, PlainValidator, TypeAdapter, ValidationError, ValidationInfo

from morphogen.config.fields import describe_wanted, join_path
from morphogen.errors import CheckpointError
from morphogen.vocab.text import format_value

# None, bool, int, float, str, array or tensor, a list of trees, or a dict of them by name
Tree = Any
ARRAY = "$array"  # key of the index that replaces an array while a tree is checked


def _take_array(value: Any, info: ValidationInfo) -> np.ndarray[Any, Any]:
    arrays: list[Any] = info.context or []
    if (
        not isinstance(value, dict)
        or value.keys() != {ARRAY}
        or value[ARRAY] not in range(len(arrays))
    ):
        raise ValueError("expected an array")
    try:
        return np.asarray(arrays[value[ARRAY]])
    # tensors that are sparse, without values, or of a dtype unknown to numpy
    except (TypeError, RuntimeError):
        raise ValueError("expected a dense array of a dtype of numpy") from None


Array = Annotated[np.ndarray[Any, Any], PlainValidator(_take_array)]


def pack(value: Any) -> Tree:
    """Return the tree of a value: a dict for a dataclass or named tuple, a copy for an array."""
    if isinstance(value, np.ndarray):
        return np.array(value, order="C")
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
        return {name: pack(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): pack(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [pack(inner) for inner in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)  # subclasses become the plain type
    if value is not None:
        raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")
    return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    hint: Any = tuple.__class_getitem__(kind)
    return TypeAdapter(hint, config=ConfigDict(extra="forbid", strict=True))


def unpack(kind: Any, tree: Tree, where: str) -> Any:
    """Return the value of an annotated type that a tree holds.

    Raises: CheckpointError that names the first entry, below `where`, which does not fit.
    """
    arrays: list[Any] = []
    text = json.dumps([tree], default=lambda leaf: arrays.append(leaf) or {ARRAY: len(arrays) - 1})
    try:
        return _adapter(kind).validate_json(text, context=arrays)[0]
    except ValidationError as error:
        raise CheckpointError(describe_fault(error, where, start=1)) from None


def describe_fault(error: ValidationError, where: str, start: int = 0) -> str:
    """Describe the first fault below `where`: its place, the allowed values, and its value.

    start: of the place, in the location of the fault.
    """
    fault = error.errors(include_url=False)[0]
    where = reduce(join_path, fault["loc"][start:], where)
    if fault["type"].startswith("missing"):
        return f"{where} is missing"
    if fault["type"].startswith(("unexpected", "extra")):
        return f"{where} is unknown"
    return f"{where}: {describe_wanted(fault)}, got {format_value(fault['input'])}"
