"""Types of what the constructor of a spec takes beside the values of its fields.  Type checkers read these functions.

A field has the type that it has in a resolved spec.  The constructor takes more: None for what `resolve` fills in, a
dict for a group, a list for a tuple, and a part for the name of a part.  `pydantic` converts them; nothing here runs.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def by_task(value: T | None) -> T:
    """Type a field that is None until the spec is resolved; the type of the field is that of a resolved spec."""
    return cast(T, value)


def as_group(value: T | Mapping[str, Any]) -> T:
    """Type a group of settings: the group, or the settings of its constructor by name."""
    return cast(T, value)


def as_pair(value: tuple[T, T] | list[T] | None) -> tuple[T, T]:
    """Type a range that is None until the spec is resolved."""
    return cast("tuple[T, T]", value)


def as_optional_pair(value: tuple[T, T] | list[T] | None) -> tuple[T, T] | None:
    """Type a range, or None for no range."""
    return cast("tuple[T, T] | None", value)


def as_part(value: object) -> str:
    """Type the name of a part: the name, or the part itself."""
    return cast(str, value)


def as_names(value: tuple[Any, ...] | list[Any] | None) -> tuple[str, ...]:
    """Type a list of names, or of parts; None as in `by_task`."""
    return cast("tuple[str, ...]", value)
