"""Events: the base of all payloads, and the envelope around them.  The kinds are in `kinds`.  No
tensors here.

Numbers are tidied when an event is made: at most 7 significant digits, None for what is not finite.
An event that is read from its line therefore equals the event that was written.  An event with an
invalid field cannot be made.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from statistics import fmean
from typing import Any, ClassVar, cast, dataclass_transform, get_type_hints

from pydantic import TypeAdapter, ValidationError

from morphogen.log.type_check import build_adapter, describe_fault
from morphogen.vocab.text import escape_text, format_value

Json = dict[str, Any]
SEVERITIES = ("info", "warning", "error")
COORDINATES = ("round", "epoch", "env", "episode", "slot", "arm")
NAME_COORDINATES = ("slot", "arm")


def tidy(value: Any) -> Any:
    """A value as events hold it: 7 significant digits, None for NaN and infinities, tuples for
    lists, text to print.
    """
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


def mean_known(values: Iterable[float | None]) -> float | None:
    """Mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass_transform(frozen_default=True)
class Event:
    """Base of the payloads; its subclasses are frozen dataclasses, and inherit keywords that
    they leave out.
    """

    NAME: ClassVar[str]  # of the event
    SEVERITY: ClassVar[str] = "info"
    WHERE: ClassVar[tuple[str, ...]] = ()  # coordinates that its envelope has

    def __init_subclass__(
        cls, *, name: str | None = None, kw_only: bool = False, **attributes: Any
    ) -> None:
        cls.NAME = name or cls.__name__
        for key, value in attributes.items():
            setattr(cls, key.upper(), value)
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def __post_init__(self) -> None:
        values = {
            shown: tidy(getattr(self, name)) for name, shown in field_names(type(self)).items()
        }
        for name, value in zip(field_names(type(self)), values.values(), strict=True):
            object.__setattr__(self, name, value)
        try:
            _adapter(type(self)).validate_python(values)
        except ValidationError as error:
            raise ValueError(f"{type(self).__name__}.{describe_fault(error)}") from None

    def payload(self) -> Json:
        """The fields by their names in the file."""
        return {shown: getattr(self, name) for name, shown in field_names(type(self)).items()}


@cache
def field_names(kind: type[Event]) -> dict[str, str]:
    """Names of the fields in the file (`from` for `from_`), by attribute."""
    return {item.name: item.name.rstrip("_") for item in fields(cast(Any, kind))}


@cache
def _adapter(kind: type[Event]) -> TypeAdapter[Json]:
    hints = get_type_hints(kind, include_extras=True)
    return build_adapter(
        kind.__name__, {shown: hints[name] for name, shown in field_names(kind).items()}
    )


class RunEvent(Event):
    """About the run."""


class RoundEvent(Event, where=("round",)):
    """About a round."""


class EpochEvent(Event, where=("round", "epoch")):
    """About an epoch of all envs of a record: tuples over envs, [E], or over envs and slots,
    [E][S].
    """


class EnvEvent(Event, where=("round", "epoch", "env", "episode")):
    """About one env in one epoch."""


class SlotEvent(EnvEvent, where=(*EnvEvent.WHERE, "slot")):
    """About one slot of one env in one epoch."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event and its coordinates; None where a coordinate does not apply.  `round` and `epoch`
    count from 0 here.

    `severity`: by default the severity of the kind.
    """

    data: Event
    round: int | None = None
    epoch: int | None = None
    env: int | None = None
    episode: int | None = None
    slot: str | None = None
    arm: str | None = None
    severity: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.severity or self.data.SEVERITY)
        for fault in self._errors():
            raise ValueError(f"{self.name}.{fault}")

    @property
    def name(self) -> str:
        """Name of the event."""
        return self.data.NAME

    @property
    def where(self) -> Json:
        """The coordinates that apply, in the order of the line."""
        return {name: value for name in COORDINATES if (value := getattr(self, name)) is not None}

    def _errors(self) -> Iterator[str]:
        where = self.where
        if missing := [name for name in self.data.WHERE if name not in where]:
            yield f"{missing[0]}: missing"
        if (self.env is None) != (self.episode is None):
            yield (
                f"episode: expected with env or not at all, got env {self.env} and episode "
                f"{self.episode}"
            )
        for name, value in where.items():
            if name in NAME_COORDINATES and not isinstance(value, str):
                yield f"{name}: expected a name, got {format_value(value)}"
            if name not in NAME_COORDINATES and (type(value) is not int or not 0 <= value < 2**63):
                yield f"{name}: expected an integer >= 0 of 64 bits, got {format_value(value)}"
        if self.severity not in SEVERITIES:
            yield (
                f"severity: expected one of {', '.join(SEVERITIES)}, got "
                f"{format_value(self.severity)}"
            )
