"""Fields of frozen specs: what a field accepts is said once and checked wherever a value comes in."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value


def join_path(path: str, name: str) -> str:
    """`ppo` and `clip` -> `ppo.clip`; a name that is no identifier is quoted."""
    segment = name if name.isascii() and name.isidentifier() else format_value(name)
    return f"{path}.{segment}" if path else segment


def raise_all(faults: list[str]) -> None:
    """Raise one ConfigError with a line per fault, if there is any."""
    if faults:
        raise ConfigError("\n".join(faults))


@dataclass(frozen=True, kw_only=True)
class FieldType:
    """Allowed values of a field.  `null` says what None stands for; "" = None is refused."""

    null: str = ""

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return "a value"

    def accepts(self, value: object) -> bool:
        """Return whether a value that is not None is allowed."""
        return True

    def freeze(self, value: Any) -> Any:
        """The form in which an accepted value is stored."""
        return value

    def plain(self, value: Any) -> Any:
        """The form in which a stored value is written to JSON."""
        return value

    def faults(self, path: str, value: object) -> list[str]:
        """One line for each thing that is wrong with the value."""
        if (value is None and self.null) or (value is not None and self.accepts(value)):
            return []
        return [f"{path} is {format_value(value)}; want {self.text}{f' or null ({self.null})' if self.null else ''}"]


@dataclass(frozen=True, kw_only=True)
class Int(FieldType):
    """An integer in low .. high.  `words` are strings that are allowed as well."""

    low: int
    high: int | None = None
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The allowed values in words."""
        open_ended = f"an integer >= {self.low} and < 2^63"
        span = open_ended if self.high is None else f"an integer in {self.low} .. {self.high}"
        return " or ".join([span, *(f'"{word}"' for word in self.words)])

    def accepts(self, value: object) -> bool:
        """An int in range; True is no number and 1.0 is no integer."""
        if isinstance(value, str):
            return value in self.words
        return type(value) is int and self.low <= value < (2**63 if self.high is None else self.high + 1)


@dataclass(frozen=True, kw_only=True)
class Real(FieldType):
    """A finite number; `above` and `below` are bounds that are not allowed themselves."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def text(self) -> str:
        """The allowed values in words."""
        bounds = (("> ", self.above), (">= ", self.low), ("< ", self.below), ("<= ", self.high))
        return " ".join(
            ["a finite number", " and ".join(f"{sign}{b:g}" for sign, b in bounds if b is not None)]
        ).strip()

    def accepts(self, value: object) -> bool:
        """A finite int or float within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            return False
        inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return inside and (self.above is None or value > self.above) and (self.below is None or value < self.below)

    def freeze(self, value: Any) -> Any:
        """A float."""
        return None if value is None else float(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


@dataclass(frozen=True, kw_only=True)
class Flag(FieldType):
    """True or False."""

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return "true or false"

    def accepts(self, value: object) -> bool:
        """A bool and nothing that merely looks like one."""
        return type(value) is bool


@dataclass(frozen=True, kw_only=True)
class Choice(FieldType):
    """One name out of a list or a table that may grow; where there is a prefix, also the path of a file behind it."""

    names: Collection[str]
    prefix: str = ""

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return "one of " + ", ".join(self.names) + (f" or {self.prefix}FILE" if self.prefix else "")

    def accepts(self, value: object) -> bool:
        """A known name, or a path behind the prefix."""
        if not isinstance(value, str) or not value.isprintable():
            return False
        return value in self.names or bool(self.prefix and value.removeprefix(self.prefix) not in (value, ""))


@dataclass(frozen=True, kw_only=True)
class Text(FieldType):
    """A printable string that is not empty; `fits` decides which."""

    what: str
    fits: Callable[[str], bool] = bool

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return self.what

    def accepts(self, value: object) -> bool:
        """A string that fits."""
        return isinstance(value, str) and value.isprintable() and self.fits(value)


@dataclass(frozen=True, kw_only=True)
class Names(FieldType):
    """Distinct names; `among` () = any name.  Known names are stored in the order of `among`."""

    among: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None

    @property
    def text(self) -> str:
        """The allowed values in words."""
        known = f" out of {', '.join(self.among)}" if self.among else ""
        count = f"exactly {self.least} " if self.least == self.most else f"at least {self.least} " * (self.least > 0)
        return f"a list of {count}names{known}, each once"

    def accepts(self, value: object) -> bool:
        """A list or tuple of distinct allowed strings."""
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            return False
        known = not self.among or all(name in self.among for name in value)
        count = self.least <= len(value) and (self.most is None or len(value) <= self.most)
        return known and count and len(set(value)) == len(value)

    def freeze(self, value: Any) -> Any:
        """A tuple, in the order of the known names."""
        if value is None:
            return None
        return tuple(name for name in self.among if name in value) if self.among else tuple(value)

    def plain(self, value: Any) -> Any:
        """A list."""
        return None if value is None else list(value)


@dataclass(frozen=True, kw_only=True)
class Span(FieldType):
    """A range `[low, high]` with low <= high; both ends are checked by `of`."""

    of: Int | Real

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return f"[low, high] with low <= high, each {self.of.text}"

    def accepts(self, value: object) -> bool:
        """Two allowed numbers in ascending order."""
        pair = isinstance(value, list | tuple) and len(value) == 2 and all(self.of.accepts(end) for end in value)
        return pair and value[0] <= value[1]

    def freeze(self, value: Any) -> Any:
        """A tuple of two numbers."""
        return None if value is None else tuple(self.of.freeze(end) for end in value)

    def plain(self, value: Any) -> Any:
        """A list of two numbers."""
        return None if value is None else list(value)


@dataclass(frozen=True, kw_only=True)
class PerKey(FieldType):
    """A number for each of some names: stored as a tuple in their order, written as an object; absent = default."""

    names: tuple[str, ...]
    defaults: tuple[float, ...]
    each: tuple[Real, ...]

    def faults(self, path: str, value: object) -> list[str]:
        """Faults of each entry, and of names that do not exist."""
        if isinstance(value, tuple) and len(value) == len(self.names):
            value = dict(zip(self.names, value, strict=True))
        if not isinstance(value, Mapping):
            return [f"{path} is {format_value(value)}; want an object with keys out of {', '.join(self.names)}"]
        wants = dict(zip(self.names, self.each, strict=True))
        unknown = [name for name in value if name not in wants]
        found = [f"{join_path(path, str(name))} is unknown; want one of {', '.join(self.names)}" for name in unknown]
        return found + [line for n, w in wants.items() if n in value for line in w.faults(join_path(path, n), value[n])]

    def freeze(self, value: Any) -> Any:
        """A tuple of floats in the order of the names."""
        if isinstance(value, tuple):
            value = dict(zip(self.names, value, strict=True))
        return tuple(float(value.get(n, d)) for n, d in zip(self.names, self.defaults, strict=True))

    def plain(self, value: Any) -> Any:
        """An object with every name."""
        return dict(zip(self.names, value, strict=True))


@dataclass(frozen=True, kw_only=True)
class Group(FieldType):
    """A nested spec."""

    spec: type

    @property
    def text(self) -> str:
        """The allowed values in words."""
        return f"a {self.spec.__name__}"

    def accepts(self, value: object) -> bool:
        """An instance of the spec."""
        return isinstance(value, self.spec)


def spec_field(default: Any, wanted: FieldType) -> Any:
    """A dataclass field with a default and a rule for its values."""
    return field(default=default, metadata={"want": wanted})


def nested(spec: type) -> dict[str, FieldType]:
    """Metadata of a dataclass field that holds a nested spec."""
    return {"want": Group(spec=spec)}


class Spec:
    """Base of the specs: every field is checked on construction, and all faults are told together."""

    PATH: ClassVar[str] = ""

    def __post_init__(self) -> None:
        wants: dict[str, FieldType] = {one.name: one.metadata["want"] for one in fields(self)}  # type: ignore[arg-type]
        raise_all(
            [line for name, w in wants.items() for line in w.faults(join_path(self.PATH, name), getattr(self, name))]
        )
        for name, wanted in wants.items():
            object.__setattr__(self, name, wanted.freeze(getattr(self, name)))
        raise_all(self.cross_checks())

    def cross_checks(self) -> list[str]:
        """Faults between fields, once each field is right by itself."""
        return []
