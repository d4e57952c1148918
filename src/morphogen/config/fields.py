"""Field types of the specs, and one form of message for every invalid value."""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field as DataclassField
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform
from typing import get_type_hints as type_hints

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ArgsKwargs, core_schema

from morphogen.config.registry import Registry
from morphogen.errors import ConfigError
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import to_plain
from morphogen.vocab.text import format_value, suggest

Settings = dict[str, Any]
Checks = dict[str, tuple[object, str]]  # by the path of a field: it fits, and the allowed values
T = TypeVar("T")
C = TypeVar("C", bound=type)
CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
UNSET: Any = None  # of a field that `resolve` fills, and that has a value afterwards
UNKNOWN_NAME = ("unexpected_keyword_argument", "extra_forbidden")  # types of faults in pydantic


class _Derived:
    """Mark of a field that takes None too, until `resolve` fills it in."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.nullable_schema(handler(source))


DERIVED = _Derived()


@dataclass(frozen=True, eq=False)
class OneOf:
    """A name out of a table, or one of `files` with the path of a file: `NAME:FILE`.  A registry,
    or several in a ChainMap, take the part itself as well.
    """

    among: Collection[str]
    files: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        """The allowed values."""
        return [*self.among, *(f"{name}:FILE" for name in self.files)]

    def check(self, value: Any) -> str:
        """Return a name, or the name of a part.  Raises ValueError for anything else."""
        for registry in reversed(getattr(self.among, "maps", [self.among])):
            value = registry.adopt(value) if isinstance(registry, Registry) else value
        if not isinstance(value, str) or not (self._names_file(value) or value in self.among):
            names = ", ".join(self.names) or "no name, as none is registered"
            raise ValueError(f"one of {names}", suggest(value, self.among))
        return value

    def _names_file(self, value: str) -> bool:
        name, _, file = value.partition(":")
        return name in self.files and bool(file) and value.isprintable()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Settings:
        return {"type": "string", "enum": self.names}


@dataclass(frozen=True, eq=False)
class Names:
    """Distinct names, each in `among` unless it is None, and stored in its order unless their own
    counts.

    Names of parts from outside come last, sorted.
    """

    among: Collection[str] | None = None
    ranked: bool = False  # in the order of preference

    def sort(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in order.  Raises ValueError for a name that occurs twice."""
        if len(set(names)) < len(names):
            raise ValueError("names, each once")
        if self.ranked or self.among is None:
            return names
        builtin = self.among.builtin() if isinstance(self.among, Registry) else self.among
        place = {name: i for i, name in enumerate(builtin)}
        return tuple(sorted(names, key=lambda name: (place.get(name, len(place)), name)))

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        name: Any = str if self.among is None else Annotated[str, OneOf(self.among)]
        names = core_schema.tuple_variable_schema(handler.generate_schema(name), strict=False)
        return core_schema.no_info_after_validator_function(self.sort, names)


def check_ascending(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return a pair.  Raises ValueError if it descends."""
    if pair[0] > pair[1]:
        raise ValueError("[low, high] with low <= high")
    return pair


def check_printable(text: str) -> str:
    """Return a text.  Raises ValueError if it is empty or has characters that cannot be shown."""
    if not (text and text.isprintable()):
        raise ValueError("printable text")
    return text


Natural = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Several = Annotated[int, Field(ge=2, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Name = Annotated[str, AfterValidator(check_printable)]
FilePath = Annotated[Name, AfterValidator(lambda path: os.path.abspath(expand_path(path)))]
Pair = Annotated[tuple[T, T], Field(strict=False), AfterValidator(check_ascending)]
Span = Annotated[Pair[T], DERIVED]


def is_unset(value: object) -> bool:
    """Return whether a field of a spec is None, so that `resolve` fills it in."""
    return value is None


class Spec:
    """Base of the specs: immutable, compared by value, all fields checked on construction."""

    __slots__ = ("_settings",)
    __dataclass_fields__: ClassVar[dict[str, DataclassField[Any]]]
    PATH: ClassVar[str] = ""
    IS_PART: ClassVar[bool] = False  # True: other specs name it, and do not hold its settings

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        """Return the settings with derived ones added."""
        return settings

    def cross_checks(self) -> Checks:
        """Return the values of fields that other fields allow, once each is valid by itself."""
        return {}

    def __post_init__(self) -> None:
        raise_all(list_misfits(self, self.PATH, self.cross_checks()))

    def __getstate__(self) -> Settings:
        return vars(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # a nested spec may be an object of a config file
        return {**handler(source), "strict": False}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field, field))
def spec(cls: C) -> C:
    """Make a class a spec: a frozen dataclass of pydantic that raises all faults as one
    ConfigError.
    """
    made: Any = pydantic_dataclass(cls, frozen=True, config=CONFIG)

    def __init__(self: Any, /, **settings: Any) -> None:
        complete = made.complete(to_plain(settings))
        try:
            made.__pydantic_validator__.validate_python(
                ArgsKwargs((), complete), self_instance=self
            )
        except ValidationError as error:
            raise_all(list_faults(error, made, made.PATH))
        object.__setattr__(self, "_settings", frozenset(settings))

    made.__init__ = __init__
    return made


def to_settings(value: Any, *, explicit: bool = False) -> Any:
    """Return a spec as nested dicts, lists and numbers, or the plain form of another value.

    explicit: only the settings of its constructor.
    """
    if isinstance(value, Spec):
        names = [each.name for each in fields(value)]
        if explicit:
            names = [name for name in names if name in getattr(value, "_settings", names)]
        return {name: to_settings(getattr(value, name), explicit=explicit) for name in names}
    if isinstance(value, tuple):
        named = getattr(value, "_asdict", None)
        return list(cast("tuple[Any, ...]", value)) if named is None else named()
    return value


def is_group(value: object) -> bool:
    """Return whether a value is a group of settings of another spec."""
    return isinstance(value, Spec) and not value.IS_PART


def explicit_settings(settings: Settings) -> Settings:
    """Return settings in which a group is replaced by its explicit settings."""
    return {
        name: to_settings(value, explicit=True) if is_group(value) else value
        for name, value in settings.items()
    }


def list_misfits(owner: Any, path: str, checks: Checks) -> list[str]:
    """Return a line for each field of an owner that does not fit."""
    above = f"{path}." if path else ""
    return [
        f"{above}{name}: expected {allowed}, got {format_value(attrgetter(name)(owner))}"
        for name, (fits, allowed) in checks.items()
        if not fits
    ]


def list_faults(error: ValidationError, owner: Any, path: str = "") -> list[str]:
    """Return a line for each invalid field of an owner (a spec, a model or a NamedTuple):
    `ppo.clip: expected ..., got 3`.
    """
    lines: list[str] = []
    for fault in error.errors(include_url=False):
        loc = fault["loc"]
        cause = fault.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            lines.append(str(cause))
            continue
        wanted = describe_wanted(fault)
        got = format_value(fault["input"]) + suggest(fault["input"], re.findall("'(.+?)'", wanted))
        if cause is not None:  # a ValueError with the allowed values, and a hint if there is one
            allowed, *hint = cause.args
            wanted = f"expected {allowed}"
            got += "".join(hint)
        elif fault["type"] in UNKNOWN_NAME:
            kind = reduce(lambda kind, name: fields_of(kind)[str(name)].annotation, loc[:-1], owner)
            wanted = f"expected one of {', '.join(fields_of(kind))}"
            got = f"an unknown name{suggest(loc[-1], fields_of(kind))}"
        elif "missing" in fault["type"]:
            wanted = "expected a value"
            got = "nothing"
        lines.append(f"{reduce(join_path, loc, path)}: {wanted}, got {got}")
    return list(dict.fromkeys(lines))  # a union has a fault for each of its types


def describe_wanted(fault: Mapping[str, Any]) -> str:
    """Describe the allowed values of a fault of pydantic: `expected a number less than 1`."""
    bound = " a number" if fault["type"].startswith(("greater", "less")) else ""
    words = fault["msg"].removeprefix("Value error, ")
    return words.replace("Input should be", f"expected{bound}")


def fields_of(kind: Any) -> Mapping[str, FieldInfo]:
    """Return the fields of a spec, a model or a NamedTuple; empty for any other type."""
    if hasattr(kind, "_field_defaults"):
        return {
            name: FieldInfo.from_annotation(hint)
            for name, hint in type_hints(kind, include_extras=True).items()
        }
    return getattr(kind, "__pydantic_fields__", {})


def join_path(path: str, name: str | int) -> str:
    """`ppo` and `clip` -> `ppo.clip`; a name that is not an identifier is quoted, and a number is
    an index.
    """
    if isinstance(name, int):
        return f"{path}[{name}]"
    segment = name if name.isascii() and name.isidentifier() else format_value(name)
    return f"{path}.{segment}" if path else segment


def raise_all(faults: Iterable[str]) -> None:
    """Raise one ConfigError with a line per fault, if there is any."""
    if text := "\n".join(faults):
        raise ConfigError(text)


def check_flag(flag: str, value: str, rule: OneOf) -> None:
    """Raise ConfigError unless a rule allows the value of a flag."""
    try:
        rule.check(value)
    except ValueError as error:
        expected, hint = error.args
        raise ConfigError(f"{flag}: expected {expected}, got {format_value(value)}{hint}") from None


def merge_settings(lower: Settings, upper: Settings) -> Settings:
    """Return the settings of both; where both set a field, the upper one counts."""
    both = {
        name: merge_settings(lower[name], value)
        for name, value in upper.items()
        if isinstance(value, dict) and isinstance(lower.get(name), dict)
    }
    return {**lower, **upper, **both}
