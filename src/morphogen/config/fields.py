"""Field types of the specs, and one form of message for every invalid value."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field as DataclassField
from dataclasses import dataclass, fields
from functools import reduce
from inspect import cleandoc
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ArgsKwargs, core_schema

from morphogen.config.registry import Registries, Registry
from morphogen.errors import ConfigError
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import to_plain
from morphogen.vocab.text import format_choice, format_value, suggest

Settings = dict[str, Any]
T = TypeVar("T")
C = TypeVar("C", bound=type)
TASK = "task"
SIZE = "size"
LEARNING = "learning"
DEVICE = "device"
OUTPUT = "logging and checkpoints"
GROUPS = (TASK, SIZE, LEARNING, DEVICE, OUTPUT)  # titles of groups of flags in help texts
CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
BY_TASK = "from the task"


class Constraint:
    """Condition on the values of an annotated field, after the check of their type."""

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        raise NotImplementedError

    def convert(self, value: Any) -> Any:
        """Return the stored form of a value.  Raises ValueError for a value that is not allowed."""
        raise NotImplementedError

    def prepare(self, value: Any) -> Any:
        """Return the value to check, before the check of its type."""
        return tuple(value) if isinstance(value, list) else value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        checked = core_schema.no_info_after_validator_function(self.convert, handler(source))
        return core_schema.no_info_before_validator_function(self.prepare, checked)


@dataclass(frozen=True)
class Null:
    """None is allowed too.  meaning: what None stands for."""

    meaning: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.nullable_schema(handler(source))


@dataclass(frozen=True, eq=False)
class OneOf(Constraint):
    """A name out of a table, or the path of a file behind a prefix.  A registry takes the part
    itself as well.
    """

    names: Collection[str]
    prefix: str = ""

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        names = (
            "one of " + ", ".join(self.names) if self.names else "an object (no name is registered)"
        )
        return names + (f" or {self.prefix}FILE" if self.prefix else "")

    def prepare(self, value: Any) -> Any:
        """Return the name of a part that is given as an object."""
        return self.names.adopt(value) if isinstance(self.names, Registry | Registries) else value

    def convert(self, value: str) -> str:
        """Return the name."""
        file = (
            self.prefix
            and value.startswith(self.prefix)
            and value != self.prefix
            and value.isprintable()
        )
        if not (file or value in self.names):
            raise ValueError
        return value


@dataclass(frozen=True)
class Printable(Constraint):
    """A printable string that is not empty."""

    meaning: str

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        return self.meaning

    def convert(self, value: str) -> str:
        """Return the string."""
        if not (value and value.isprintable()):
            raise ValueError
        return value


@dataclass(frozen=True)
class Names(Constraint):
    """Distinct names, each in `among` unless it is None, and stored in its order unless their own
    counts.

    A registry takes the parts themselves as well; names of parts from outside come last, sorted.
    """

    among: Collection[str] | None = None
    least: int = 0
    most: int | None = None
    ranked: bool = False  # in the order of preference

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        known = "" if self.among is None else f" out of {', '.join(self.among)}"
        count = (
            f"exactly {self.least} "
            if self.least == self.most
            else f"at least {self.least} " * (self.least > 0)
        )
        return f"a list of {count}names{known}, each once"

    def prepare(self, value: Any) -> Any:
        """Return the names of parts that are given as objects."""
        value = super().prepare(value)
        if isinstance(value, tuple) and isinstance(self.among, Registry):
            return tuple(map(self.among.adopt, value))
        return value

    def convert(self, value: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in order."""
        known = (
            self.among.builtin() if isinstance(self.among, Registry) else tuple(self.among or ())
        )
        count = len(value) == len(set(value)) and self.least <= len(value) <= (
            self.most or len(value)
        )
        if not count or (self.among is not None and not all(name in self.among for name in value)):
            raise ValueError
        if self.among is None or self.ranked:
            return value
        return tuple(
            sorted(
                value, key=lambda name: (known.index(name) if name in known else len(known), name)
            )
        )


class Ascending(Constraint):
    """Two numbers in ascending order."""

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        return "[low, high] with low <= high"

    def convert(self, value: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the pair."""
        if value[0] > value[1]:
            raise ValueError
        return value


Natural = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Name = Annotated[str, Printable("a name")]
FilePath = Annotated[str, Printable("a path"), AfterValidator(lambda path: str(expand_path(path)))]
Span = Annotated[tuple[T, T], Ascending(), Null(BY_TASK)]


def option(*, default: Any, flag: tuple[str, str, str] = ("", "", ""), text: str = "") -> Any:
    """Return a field with a default, and the flag of the command line that sets the field.

    Args:
        flag: name of the flag, name of its value in the help, title of its group of flags.
        text: help of the flag.
    """
    name, value, group = flag
    return Field(
        default, description=text, json_schema_extra={"flag": name, "value": value, "group": group}
    )


def is_unset(value: object) -> bool:
    """Return whether a field of a spec is None, so that `resolve` fills it in."""
    return value is None


class Spec:
    """Base of the specs: immutable, compared by value, all fields checked on construction."""

    __slots__ = ("_settings",)
    __dataclass_fields__: ClassVar[dict[str, DataclassField[Any]]]
    PATH: ClassVar[str] = ""

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        """Return the settings with derived ones added."""
        return settings

    def cross_checks(self) -> list[str]:
        """Return faults between fields, once each field is valid by itself."""
        return []

    def __post_init__(self) -> None:
        raise_all(self.cross_checks())

    def __getstate__(self) -> Settings:
        return vars(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # a nested spec may be an object of a config file
        return {**handler(source), "strict": False}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, Field))
def spec(cls: C) -> C:
    """Make a class a spec: a frozen dataclass that raises all faults as one ConfigError, and
    explains its fields.
    """
    made: Any = pydantic_dataclass(cls, frozen=True, config=CONFIG)
    meanings = {
        name: info.description
        for name, info in made.__pydantic_fields__.items()
        if info.description
    }
    if made.__doc__ and meanings:
        lines = [f"* `{name}`: {meaning}" for name, meaning in meanings.items()]
        made.__doc__ = "\n".join([cleandoc(made.__doc__), "", "Settings:", "", *lines])

    def __init__(self: Any, /, **settings: Any) -> None:
        complete = made.complete(to_plain(settings))
        try:
            made.__pydantic_validator__.validate_python(
                ArgsKwargs((), complete), self_instance=self
            )
        except ValidationError:
            raise_all(_find_faults(made, complete))
        object.__setattr__(self, "_settings", frozenset(settings))

    made.__init__ = __init__
    return made


def _find_faults(owner: Any, settings: Settings) -> list[str]:
    """Return a line for each fault, those between fields included, which are found without the
    invalid settings.
    """
    try:
        owner.__pydantic_validator__.validate_python(ArgsKwargs((), settings))
    except ValidationError as error:
        lines = list_faults(error, owner, settings, owner.PATH)
        places = [fault["loc"] for fault in error.errors()]
        further = [] if () in places else _find_faults(owner, reduce(_without, places, settings))
        return list(dict.fromkeys([*lines, *further]))
    return []


def _without(settings: Settings, loc: Sequence[str | int]) -> Settings:
    """Return the settings without the innermost one at a place."""
    name, *rest = loc
    inner = settings.get(str(name))
    if rest and isinstance(inner, dict) and rest[0] in inner:
        return {**settings, str(name): _without(cast(Settings, inner), rest)}
    return {key: value for key, value in settings.items() if key != name}


def to_settings(spec: Spec, *, explicit: bool = False) -> Settings:
    """Return a spec as nested dicts, lists and numbers; `explicit`: only the
    settings of its constructor.
    """
    names = [field.name for field in fields(spec)]
    if explicit:
        names = [name for name in names if name in getattr(spec, "_settings", names)]
    return {name: _plain(getattr(spec, name), explicit) for name in names}


def explicit_settings(settings: Settings) -> Settings:
    """Return settings in which a spec is replaced by its explicit settings."""
    return {
        name: to_settings(value, explicit=True) if isinstance(value, Spec) else value
        for name, value in settings.items()
    }


def _plain(value: Any, explicit: bool) -> Any:
    if isinstance(value, Spec):
        return to_settings(value, explicit=explicit)
    if isinstance(value, tuple):
        named = getattr(value, "_asdict", None)
        return list(cast("tuple[Any, ...]", value)) if named is None else named()
    return value


def list_faults(error: ValidationError, owner: type, settings: Any, path: str = "") -> list[str]:
    """Return a line for each invalid field of an owner (a spec, a model or a NamedTuple)."""
    lines: list[str] = []
    for fault in error.errors(include_url=False):
        cause = fault.get("ctx", {}).get("error")
        lines.append(
            str(cause)
            if isinstance(cause, ConfigError)
            else _fault_line(fault["loc"], owner, settings, path)
        )
    return list(dict.fromkeys(lines))  # a union has a fault for each of its types


def _fault_line(loc: Iterable[str | int], kind: Any, value: Any, path: str) -> str:
    """Return the message about the innermost field on the way to a fault: `ppo.clip: expected ...,
    got 3`.
    """
    expected = "an object"
    got = ""
    names: list[str] = []
    for name in map(str, loc):
        known = fields_of(kind)
        given = isinstance(value, Mapping)
        if not known or (name not in known and not given):
            break
        path = join_path(path, name)
        if name not in known:
            return (
                f"{path}: expected one of {', '.join(known)}, got an unknown "
                f"name{suggest(name, known)}"
            )
        kind = known[name].annotation
        expected = describe(kind, known[name].metadata)
        names = allowed_names(kind, known[name].metadata)
        got = "nothing" if given and name not in value else ""
        value = value.get(name) if given else getattr(value, name, value)
    return f"{path}: expected {expected}, got {got or format_choice(value, names)}"


def allowed_names(kind: Any, metadata: Iterable[Any]) -> list[str]:
    """Return the names that an annotation allows; none for another kind of value."""
    parts = [*metadata, *get_args(kind)]
    if get_origin(kind) is Literal:
        return parts
    rules = [
        mark.names if isinstance(mark, OneOf) else mark.among
        for mark in parts
        if isinstance(mark, OneOf | Names)
    ]
    found = [name for names in rules for name in names or ()]
    return found + [
        name for part in get_args(kind) if get_args(part) for name in allowed_names(part, ())
    ]


def fields_of(kind: Any) -> Mapping[str, FieldInfo]:
    """Return the fields of a spec, a model or a NamedTuple; empty for any other type."""
    if hasattr(kind, "_field_defaults"):
        return {
            name: FieldInfo.from_annotation(hint)
            for name, hint in type_hints(kind, include_extras=True).items()
        }
    return getattr(kind, "__pydantic_fields__", {})


def describe(kind: Any, metadata: Iterable[Any] = ()) -> str:
    """Return the allowed values of an annotation in words."""
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        metadata = [*inner, *metadata]
    marks = [
        mark
        for outer in metadata
        for mark in (outer.metadata if isinstance(outer, FieldInfo) else [outer])
    ]
    null = next((f" or null ({mark.meaning})" for mark in marks if isinstance(mark, Null)), "")
    rule = next((mark for mark in marks if isinstance(mark, Constraint)), None)
    if isinstance(rule, Ascending):
        return f"{rule.expected}, each {describe(next(iter(get_args(kind))))}{null}"
    if rule is not None:
        return f"{rule.expected}{null}"
    if get_origin(kind) in (Union, UnionType):
        kinds = [inner for inner in get_args(kind) if inner is not NoneType]
        return (
            describe(kinds[0], marks)
            if len(kinds) == 1
            else " or ".join(map(describe, kinds)) + null
        )
    if get_origin(kind) is Literal:
        names = list(get_args(kind))
        return (f"one of {', '.join(names)}" if len(names) > 1 else format_value(names[0])) + null
    if kind in (int, float):
        return _describe_number(kind, marks) + null
    return {bool: "true or false", str: "a string", list: "a list"}.get(kind, "an object") + null


def _describe_number(kind: type, marks: Iterable[Any]) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bounds = {name: getattr(mark, name) for name in signs for mark in marks if hasattr(mark, name)}
    if kind is int and bounds.keys() == {"ge", "le"}:
        return f"an integer in {bounds['ge']} .. {bounds['le']}"
    limits = [
        f"{signs[name]} {'2^63' if bound == 2**63 else format(bound, 'g')}"
        for name, bound in bounds.items()
    ]
    return " ".join(["an integer" if kind is int else "a number", " and ".join(limits)]).strip()


def join_path(path: str, name: str) -> str:
    """`ppo` and `clip` -> `ppo.clip`; a name that is not an identifier is quoted."""
    segment = name if name.isascii() and name.isidentifier() else format_value(name)
    return f"{path}.{segment}" if path else segment


def raise_all(faults: list[str]) -> None:
    """Raise one ConfigError with a line per fault, if there is any."""
    if faults:
        raise ConfigError("\n".join(faults))


def check_flag(flag: str, value: Any, rule: OneOf) -> None:
    """Raise ConfigError unless a rule allows the value of a flag."""
    try:
        rule.convert(value)
    except ValueError:
        raise ConfigError(
            f"{flag}: expected {rule.expected}, got {format_choice(value, rule.names)}"
        ) from None


def merge_settings(lower: Settings, upper: Settings) -> Settings:
    """Return the settings of both; where both set a field, the upper one counts."""
    both = {
        name: merge_settings(lower[name], value)
        for name, value in upper.items()
        if isinstance(value, dict) and isinstance(lower.get(name), dict)
    }
    return {**lower, **upper, **both}
