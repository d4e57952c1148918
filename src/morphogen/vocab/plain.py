"""Numbers of NumPy and torch as the numbers of Python, which a config can be written with."""

import contextlib
from dataclasses import fields
from typing import Any

from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

LIBRARIES = ("numpy", "torch")


def to_plain(value: Any) -> Any:
    """Return a value with Python numbers and lists in place of scalars and arrays, also inside
    dicts and lists.
    """
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


def read_count(name: str, value: object, least: int = 1) -> int:
    """Return a number of things, such as episodes.  Raises ConfigError unless it is an integer from
    `least` on.
    """
    count = to_plain(value)
    if type(count) is not int or count < least:
        raise ConfigError(f"{name}: expected an integer >= {least}, got {format_value(count)}")
    return count
