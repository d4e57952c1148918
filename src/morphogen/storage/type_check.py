"""Type checks of event fields, for values that are written and values that are read.  No torch."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Span:
    """Bounds of a number, both included; None: open."""

    low: float
    high: float | None = None

    def __str__(self) -> str:
        return f">= {self.low}" if self.high is None else f"in [{self.low}, {self.high}]"

    def holds(self, value: float) -> bool:
        """Tell if a number lies within the bounds."""
        return self.low <= value and (self.high is None or value <= self.high)


Count = Annotated[int, Span(0)]
Real = float | None  # None: not measured, or not finite
Positive = Annotated[float, Span(0)] | None
Share = Annotated[float, Span(0, 1)] | None
Row = tuple[Real, ...]
Table = tuple[Row, ...]
_NUMBERS = {int, float, type(None)}  # a union of these is one isinstance


@cache
def check(hint: Any) -> Check:
    """Return a predicate of values that fit a type: numbers, names, tuples, mappings, None.

    An int fits float, and a bool fits bool only; nothing else is converted.
    """
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        fits, spans = check(inner[0]), tuple(span for span in inner[1:] if isinstance(span, Span))
        return lambda value: fits(value) and all(span.holds(value) for span in spans)
    if kind in (Union, types.UnionType):
        if _NUMBERS.issuperset(inner):
            return _number(inner)
        checks = tuple(check(option) for option in inner)
        return lambda value: any(fits(value) for fits in checks)
    if kind is Literal:
        return inner.__contains__  # a tuple: values that are read may be unhashable
    if kind is tuple:
        item = check(inner[0])
        return lambda value: isinstance(value, tuple) and all(map(item, value))
    if kind is dict:
        entry = check(inner[1])
        return lambda value: isinstance(value, Mapping) and all(map(entry, value.values()))
    if hint is Any:
        return lambda value: True
    if is_typeddict(hint):
        return _record(hint)
    return _number((hint,)) if hint in _NUMBERS else lambda value: isinstance(value, hint)


def _number(hints: tuple[type, ...]) -> Check:
    kinds = (*hints, int) if float in hints else hints
    return lambda value: isinstance(value, kinds) and value is not True and value is not False


def _record(hint: Any) -> Check:
    checks = {name: check(kind) for name, kind in get_type_hints(hint, include_extras=True).items()}
    return lambda value: (
        isinstance(value, Mapping)
        and value.keys() == checks.keys()
        and all(fits(value[name]) for name, fits in checks.items())
    )
