"""Type checks of event fields, for values that are written and values that are read.  No torch."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

ValueCheck = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number, both allowed; None = open."""

    low: float
    high: float | None = None

    def contains(self, value: float) -> bool:
        """Return whether the number is within the bounds."""
        return self.low <= value and (self.high is None or value <= self.high)


Count = Annotated[int, Bounds(0)]
Real = float | None  # None: not measured, or not finite
Positive = Annotated[float, Bounds(0)] | None
Share = Annotated[float, Bounds(0, 1)] | None
RealRow = tuple[Real, ...]
RealTable = tuple[RealRow, ...]
_NUMBERS = {int, float, type(None)}  # of which a union is one look at the type


@cache
def build_check(hint: Any) -> ValueCheck:
    """Check that a value is of a type: numbers, names, tuples, mappings, None; no coercion but int for float."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _bounds_check(build_check(inner[0]), tuple(one for one in inner[1:] if isinstance(one, Bounds)))
    if kind in (Union, types.UnionType):
        plain = _NUMBERS.issuperset(inner)
        return _number_check(inner) if plain else _union_check(tuple(build_check(one) for one in inner))
    if kind is Literal:
        return inner.__contains__  # a tuple: values that are read may be unhashable
    if kind is tuple:
        return _tuple_check(build_check(inner[0]))
    if kind is dict:
        return _mapping_check(build_check(inner[1]))
    return _typed_dict_check(hint) if is_typeddict(hint) else _instance_check(hint)


def _instance_check(hint: Any) -> ValueCheck:
    if hint is Any:
        return lambda value: True
    return _number_check((hint,)) if hint in _NUMBERS else lambda value: isinstance(value, hint)


def _number_check(hints: tuple[type, ...]) -> ValueCheck:
    kinds = (*hints, int) if float in hints else hints
    return lambda value: isinstance(value, kinds) and value is not True and value is not False


def _bounds_check(inner: ValueCheck, spans: tuple[Bounds, ...]) -> ValueCheck:
    return lambda value: inner(value) and all(span.contains(value) for span in spans)


def _union_check(checks: tuple[ValueCheck, ...]) -> ValueCheck:
    return lambda value: any(one(value) for one in checks)


def _tuple_check(inner: ValueCheck) -> ValueCheck:
    return lambda value: isinstance(value, tuple) and all(map(inner, value))


def _mapping_check(inner: ValueCheck) -> ValueCheck:
    return lambda value: isinstance(value, Mapping) and all(map(inner, value.values()))


def _typed_dict_check(hint: Any) -> ValueCheck:
    checks = {name: build_check(held) for name, held in get_type_hints(hint, include_extras=True).items()}
    return lambda value: (
        isinstance(value, Mapping)
        and value.keys() == checks.keys()
        and all(fits(value[name]) for name, fits in checks.items())
    )
