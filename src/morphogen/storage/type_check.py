"""What a field of an event may hold: checked against its type, on the way into a file and on the way out."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Span:
    """Bounds of a number, both allowed; None = open."""

    low: float
    high: float | None = None

    def holds(self, value: float) -> bool:
        """Whether the number lies within."""
        return self.low <= value and (self.high is None or value <= self.high)


Count = Annotated[int, Span(0)]
Real = float | None  # None: not measured, or not finite
Positive = Annotated[float, Span(0)] | None
Share = Annotated[float, Span(0, 1)] | None
Row = tuple[Real, ...]
Table = tuple[Row, ...]
_NUMBERS = {int, float, type(None)}  # of which a union is one look at the type


@cache
def check(hint: Any) -> Check:
    """Whether a tidied value is of the type: numbers, names, tuples, mappings, None; no coercion but int for float."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _bounded(check(inner[0]), tuple(one for one in inner[1:] if isinstance(one, Span)))
    if kind in (Union, types.UnionType):
        plain = _NUMBERS.issuperset(inner)
        return _number(inner) if plain else _either(tuple(check(one) for one in inner))
    if kind is Literal:
        return inner.__contains__  # a tuple: what is read may not have a hash
    if kind is tuple:
        return _each(check(inner[0]))
    if kind is dict:
        return _named(check(inner[1]))
    return _record(hint) if is_typeddict(hint) else _plain(hint)


def _plain(hint: Any) -> Check:
    if hint is Any:
        return lambda value: True
    return _number((hint,)) if hint in _NUMBERS else lambda value: isinstance(value, hint)


def _number(hints: tuple[type, ...]) -> Check:
    kinds = (*hints, int) if float in hints else hints
    return lambda value: isinstance(value, kinds) and value is not True and value is not False


def _bounded(inner: Check, spans: tuple[Span, ...]) -> Check:
    return lambda value: inner(value) and all(span.holds(value) for span in spans)


def _either(checks: tuple[Check, ...]) -> Check:
    return lambda value: any(one(value) for one in checks)


def _each(inner: Check) -> Check:
    return lambda value: isinstance(value, tuple) and all(map(inner, value))


def _named(inner: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(inner, value.values()))


def _record(hint: Any) -> Check:
    checks = {name: check(held) for name, held in get_type_hints(hint, include_extras=True).items()}
    return lambda value: (
        isinstance(value, Mapping)
        and value.keys() == checks.keys()
        and all(one(value[name]) for name, one in checks.items())
    )
