"""Field types of the specs, and one form of message for every invalid value."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field as DataclassField
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
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

from morphogen.config.registry import Registry
from morphogen.errors import ConfigError
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import to_plain
from morphogen.vocab.text import format_choice, format_value, suggest

Settings = dict[str, Any]
Checks = dict[str, tuple[bool, str]]  # by the path of a field: it fits, and the allowed values
T = TypeVar("T")
C = TypeVar("C", bound=type)
TASK = "task"
SIZE = "size"
LEARNING = "learning"
DEVICE = "device"
OUTPUT = "logging and checkpoints"
GROUPS = (TASK, SIZE, LEARNING, DEVICE, OUTPUT)  # titles of groups of flags in help texts
CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
BY_TASK = "from the task"
UNSET: Any = None  # of a field that `resolve` fills, and that has a value afterwards


class Flag(NamedTuple):
    """Flag of the command line that sets a field; the docstring of the field is its help."""

    name: str
    value: str  # its name in the help
    group: str  # one of `GROUPS`


class Constraint(ABC):
    """Condition on the values of an annotated field, after the check of their type."""

    expected: Any  # the allowed values in words

    @abstractmethod
    def convert(self, value: Any) -> Any:
        """Return the stored form of a value.  Raises ValueError for a value that is not allowed."""

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
    """A name out of a table, or one of `files` with the path of a file: `NAME:FILE`.  A registry,
    or several in a ChainMap, take the part itself as well.
    """

    among: Collection[str]
    files: Collection[str] = ()

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        names = (
            "one of " + ", ".join(self.among) if self.among else "an object (no name is registered)"
        )
        return names + "".join(f" or {name}:FILE" for name in self.files)

    def prepare(self, value: Any) -> Any:
        """Return the name of a part that is given as an object."""
        for registry in reversed(getattr(self.among, "maps", [self.among])):
            value = registry.adopt(value) if isinstance(registry, Registry) else value
        return value

    def convert(self, value: str) -> str:
        """Return the name."""
        name, _, file = value.partition(":")
        named_file = name in self.files and file and value.isprintable()
        if not (named_file or value in self.among):
            raise ValueError
        return value


@dataclass(frozen=True)
class Printable(Constraint):
    """A printable string that is not empty.  expected: the allowed values in words."""

    expected: str

    def convert(self, value: str) -> str:
        """Return the string."""
        if not (value and value.isprintable()):
            raise ValueError
        return value


@dataclass(frozen=True)
class Names(Constraint):
    """Distinct names, each in `among` unless there are none, and stored in its order unless their
    own counts.

    A registry takes the parts themselves as well; names of parts from outside come last, sorted.
    """

    among: Collection[str] = ()
    least: int = 0
    most: int | None = None
    ranked: bool = False  # in the order of preference

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        known = f" out of {', '.join(self.among)}" if self.among else ""
        count = f"at least {self.least} " if self.least else ""
        return f"a list of {count}names{known}, each once"

    def prepare(self, value: Any) -> Any:
        """Return the names of parts that are given as objects."""
        if isinstance(value, tuple | list) and isinstance(self.among, Registry):
            value = list(map(self.among.adopt, value))
        return super().prepare(value)

    def convert(self, value: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in order."""
        count = len(value)
        if len(set(value)) < count or not self.least <= count <= (self.most or count):
            raise ValueError
        if self.among and not all(name in self.among for name in value):
            raise ValueError
        if self.ranked or not self.among:
            return value
        builtin = self.among.builtin() if isinstance(self.among, Registry) else self.among
        place = {name: i for i, name in enumerate(builtin)}
        return tuple(sorted(value, key=lambda name: (place.get(name, len(place)), name)))


class Ascending(Constraint):
    """Two numbers in ascending order."""

    expected = "[low, high] with low <= high"

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
            raise_all(list_faults(error, made, complete, made.PATH))
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


def unwrap(kind: Any, metadata: Iterable[Any] = ()) -> tuple[Any, list[Any]]:
    """Return the type of an annotation without None, and the marks around it."""
    marks = [
        mark
        for outer in metadata
        for mark in (outer.metadata if isinstance(outer, FieldInfo) else [outer])
    ]
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        return unwrap(kind, [*inner, *marks])
    kinds = [inner for inner in get_args(kind) if inner is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(kinds) == 1:
        return unwrap(kinds[0], marks)
    return kind, marks


def allowed_names(kind: Any, metadata: Iterable[Any] = ()) -> list[str]:
    """Return the names that an annotation allows; none for another kind of value."""
    kind, marks = unwrap(kind, metadata)
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [name for mark in marks if isinstance(mark, OneOf | Names) for name in mark.among]


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
    kind, marks = unwrap(kind, metadata)
    rule = next((mark for mark in marks if isinstance(mark, Constraint)), None)
    simple = {bool: "true or false", str: "a string", list: "a list"}
    if isinstance(rule, Ascending):
        text = f"{rule.expected}, each {describe(next(iter(get_args(kind))))}"
    elif rule is not None:
        text = str(rule.expected)
    elif get_origin(kind) in (Union, UnionType):
        text = " or ".join(describe(each) for each in get_args(kind) if each is not NoneType)
    elif get_origin(kind) is Literal:
        names = list(get_args(kind))
        text = f"one of {', '.join(names)}" if len(names) > 1 else format_value(names[0])
    elif kind in (int, float):
        text = _describe_number(kind, marks)
    else:
        text = simple.get(kind, "an object")
    return text + "".join(f" or null ({mark.meaning})" for mark in marks if isinstance(mark, Null))


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


def raise_all(faults: Iterable[str]) -> None:
    """Raise one ConfigError with a line per fault, if there is any."""
    if text := "\n".join(faults):
        raise ConfigError(text)


def check_flag(flag: str, value: Any, rule: OneOf) -> None:
    """Raise ConfigError unless a rule allows the value of a flag."""
    try:
        rule.convert(value)
    except ValueError:
        raise ConfigError(
            f"{flag}: expected {rule.expected}, got {format_choice(value, rule.among)}"
        ) from None


def merge_settings(lower: Settings, upper: Settings) -> Settings:
    """Return the settings of both; where both set a field, the upper one counts."""
    both = {
        name: merge_settings(lower[name], value)
        for name, value in upper.items()
        if isinstance(value, dict) and isinstance(lower.get(name), dict)
    }
    return {**lower, **upper, **both}
