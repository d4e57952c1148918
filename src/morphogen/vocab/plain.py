"""Numbers of NumPy and torch as the numbers of Python, which a config can be written with."""

import contextlib
from dataclasses import fields
from typing import Any

LIBRARIES = ("numpy", "torch")


def to_plain(value: Any) -> Any:
    """Return a value with Python numbers and lists in place of scalars and arrays, also inside dicts and lists."""
    if isinstance(value, dict):
        return {name: to_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return getattr(value, "_make", type(value))(map(to_plain, value))
    if type(value).__module__.partition(".")[0] in LIBRARIES and hasattr(value, "tolist"):
        with contextlib.suppress(RuntimeError):  # a tensor without values
            return value.tolist()
    return value


def make_plain(owner: Any) -> None:
    """Put Python numbers in place of scalars and arrays in the fields of a frozen dataclass."""
    for field in fields(owner):
        if field.init:
            object.__setattr__(owner, field.name, to_plain(getattr(owner, field.name)))
