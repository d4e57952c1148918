"""Events: the base of all payloads, and the envelope around them.  The kinds are in `kinds`.  No
tensors here.

Numbers are tidied when an event is made: at most 7 significant digits, None for what is not finite.
An event that is read from its line therefore equals the event that was written.  An event with an
invalid field cannot be made.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal, cast, dataclass_transform

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from morphogen.vocab.text import escape_text

Json = dict[str, Any]
COORDINATES = ("round", "epoch", "env", "episode", "slot")
Severity = Literal["", "info", "warning", "error"]  # "": of the kind of event
Index = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0)]
Real = float | None  # None: not measured, or not finite
Positive = Annotated[float, Field(ge=0)] | None
Share = Annotated[float, Field(ge=0, le=1)] | None
RealRow = tuple[Real, ...]
RealTable = tuple[RealRow, ...]
# an int passes as a float, and nothing else as anything else; nested TypedDicts are strict as well
STRICT = ConfigDict(strict=True, extra="forbid")


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
@dataclass(frozen=True, config=STRICT)
class Event:
    """Base of the payloads; its subclasses are frozen dataclasses of pydantic, and inherit keywords
    that they leave out.
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
        dataclass(cls, frozen=True, kw_only=kw_only, config=STRICT)

    @model_validator(mode="before")
    @classmethod
    def _tidy_fields(cls, values: ArgsKwargs) -> ArgsKwargs:
        return ArgsKwargs(tidy(values.args), tidy(values.kwargs or {}))

    def payload(self) -> Json:
        """The fields by their names in the file."""
        return {shown: getattr(self, name) for name, shown in field_names(type(self)).items()}


@cache
def field_names(kind: type[Event]) -> dict[str, str]:
    """Names of the fields in the file (`from` for `from_`), by attribute."""
    return {item.name: item.name.rstrip("_") for item in fields(cast(Any, kind))}


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


@dataclass(frozen=True, slots=True, config=STRICT)
class Envelope:
    """An event and its coordinates; None where a coordinate does not apply.  `round` and `epoch`
    count from 0 here.

    `severity`: by default the severity of the kind.
    """

    data: Event
    round: Index | None = None
    epoch: Index | None = None
    env: Index | None = None
    episode: Index | None = None
    slot: str | None = None
    severity: Severity = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.severity or self.data.SEVERITY)
        for name in self.data.WHERE:
            if getattr(self, name) is None:
                raise ValueError(f"{self.name}.{name}: missing")
        if (self.env is None) != (self.episode is None):
            raise ValueError(f"{self.name}.episode: expected with env or not at all")

    @property
    def name(self) -> str:
        """Name of the event."""
        return self.data.NAME

    @property
    def where(self) -> Json:
        """The coordinates that apply, in the order of the line."""
        return {name: value for name in COORDINATES if (value := getattr(self, name)) is not None}
