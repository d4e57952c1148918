"""Rows and tests of the core that need an extra: they are left out where the extra is missing."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import pytest

T = TypeVar("T")


def has_extra(name: str) -> bool:
    return find_spec(f"morphogen.extras.{name}") is not None


def needs_extra(name: str) -> pytest.MarkDecorator:
    """The mark of a test that runs only with an extra."""
    return pytest.mark.skipif(not has_extra(name), reason=f"needs the extra {name}")


def rows_of_extra(name: str, build: Callable[[], dict[str, T]]) -> dict[str, T]:
    """Rows that an extra adds to a table of tests; none where it is missing."""
    return build() if has_extra(name) else {}


CSV = ("csv",) if has_extra("loggers") else ()  # the logger that writes files
