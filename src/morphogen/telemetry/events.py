"""Events: what all of them share, and the envelope around them.  The kinds are in `kinds`.  No tensors here.

Numbers are tidied when an event is made: at most 7 significant digits, None for what is not finite; so an event read
back from its line equals the one that was written.  An event whose fields are not of their types cannot be made.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, get_type_hints

from morphogen.storage.type_check import ValueCheck, build_check
from morphogen.vocab.text import escape_text, format_value

Json = dict[str, Any]
SEVERITIES = ("info", "warning", "error")
COORDINATES = ("round", "epoch", "env", "episode", "slot", "arm")


def tidy(value: Any) -> Any:
    """A value as events hold it: 7 significant digits, None for NaN and infinities, tuples for lists, text to print."""
    if isinstance(value, float):  # the most frequent first
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError("an event cannot hold an integer of more than 64 bits")
        return value
    if isinstance(value, str):
        return value if value.isprintable() else escape_text(value)
    if value is None:
        return value
    if isinstance(value, Mapping):
        return {tidy(str(key)): tidy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple([tidy(inner) for inner in value])
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return tidy(value.tolist())
    raise TypeError(f"an event cannot hold a {type(value).__name__}")


class Event:
    """Base of the payloads."""

    __slots__ = ()
    NAME: ClassVar[str] = ""  # of the event, where the dataclass is called differently
    LEVEL: ClassVar[str] = "minimal"  # lowest level at which it is written
    LIFECYCLE: ClassVar[bool] = False  # never dropped
    SEVERITY: ClassVar[str] = "info"
    WHERE: ClassVar[tuple[str, ...]] = ()  # coordinates that its envelope has

    def __post_init__(self) -> None:
        for name, hint, good in _field_checks(type(self)):
            value = tidy(getattr(self, name))
            object.__setattr__(self, name, value)
            if not good(value):
                raise ValueError(
                    f"{type(self).__name__}.{name.rstrip('_')} is {format_value(value)}; want {_type_name(hint)}"
                )

    def payload(self) -> Json:
        """The fields by name, as they stand in the file (`from_` without the underscore)."""
        return {shown: getattr(self, name) for name, shown in _field_names(type(self))}


@cache
def _field_names(kind: type[Event]) -> tuple[tuple[str, str], ...]:
    """Its fields, and how they are called in the file."""
    return tuple((one.name, one.name.rstrip("_")) for one in fields(kind))  # type: ignore[arg-type]


@cache
def _field_checks(kind: type[Event]) -> tuple[tuple[str, Any, ValueCheck], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, hints[one.name], build_check(hints[one.name])) for one in fields(kind))  # type: ignore[arg-type]


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


class RunEvent(Event):
    """About the run."""

    __slots__ = ()
    LIFECYCLE: ClassVar[bool] = True


class RoundEvent(Event):
    """About a round."""

    __slots__ = ()
    LEVEL: ClassVar[str] = "normal"
    WHERE: ClassVar[tuple[str, ...]] = ("round",)


class EpochEvent(Event):
    """About an epoch of all envs of a record: tuples over envs, [E], or over envs and slots, [E][S]."""

    __slots__ = ()
    LEVEL: ClassVar[str] = "debug"
    WHERE: ClassVar[tuple[str, ...]] = ("round", "epoch")


class EnvEvent(Event):
    """About one env in one epoch."""

    __slots__ = ()
    LIFECYCLE: ClassVar[bool] = True
    WHERE: ClassVar[tuple[str, ...]] = ("round", "epoch", "env", "episode")


class SlotEvent(Event):
    """About one slot of one env in one epoch."""

    __slots__ = ()
    LIFECYCLE: ClassVar[bool] = True
    WHERE: ClassVar[tuple[str, ...]] = ("round", "epoch", "env", "episode", "slot")


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event and what it is about; None where a coordinate does not apply.

    `severity`, `level`: those of the kind where they are not given; the level is not part of the line.
    """

    data: Event
    round: int | None = None
    epoch: int | None = None
    env: int | None = None
    episode: int | None = None
    slot: str | None = None
    arm: str | None = None
    severity: str = ""
    late: bool = False  # written after its time, when the level was raised
    level: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.severity or self.data.SEVERITY)
        object.__setattr__(self, "level", self.level or self.data.LEVEL)
        for fault in self._errors():
            raise ValueError(f"{self.name} {fault}")

    @property
    def name(self) -> str:
        """The name of the event: that of its dataclass, or what the dataclass says."""
        return self.data.NAME or type(self.data).__name__

    @property
    def where(self) -> Json:
        """The coordinates that apply, in the order of the line."""
        return {name: value for name in COORDINATES if (value := getattr(self, name)) is not None}

    def _errors(self) -> Iterator[str]:
        where = self.where
        if missing := [name for name in self.data.WHERE if name not in where]:
            yield f"has no {', '.join(missing)}"
        if (self.env is None) != (self.episode is None):
            yield f"has env {self.env} and episode {self.episode}; want both or neither"
        if bad := [name for name, value in where.items() if not _is_coordinate(name, value)]:
            expected = "a name" if bad[0] in NAME_COORDINATES else "an integer >= 0"
            yield f"has {bad[0]} {format_value(where[bad[0]])}; want {expected}"
        if self.severity not in SEVERITIES:
            yield f"has severity {format_value(self.severity)}; want one of {', '.join(SEVERITIES)}"
        if type(self.late) is not bool:
            yield f"has late {format_value(self.late)}; want true or false"


NAME_COORDINATES = ("slot", "arm")


def _is_coordinate(name: str, value: Any) -> bool:
    return isinstance(value, str) if name in NAME_COORDINATES else type(value) is int and value >= 0
