"""Batches: events that go to the sinks together, filtered by level, made when they are first asked for."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVELS
from morphogen.errors import CheckpointError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import line, parse
from morphogen.vocab.text import format_value

Make = Callable[[], Iterable[Envelope]]
RANK = {name: rank for rank, name in enumerate(LEVELS)}


class Lines(NamedTuple):
    """A moment as text: the level and the line of every event."""

    events: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]


class Moment:
    """What happened in an epoch, or is told of a round or of the run; what of it is written is another question."""

    def __init__(self, events: Make, details: Make = tuple) -> None:
        """Pure functions, called by whoever asks first: the events of all levels below debug, and those of debug."""
        self._events, self._details = events, details

    @cached_property
    def events(self) -> tuple[Envelope, ...]:
        """The events of all levels below debug."""
        return tuple(self._events())

    @cached_property
    def details(self) -> tuple[Envelope, ...]:
        """The events of level debug."""
        return tuple(self._details())

    @property
    def lines(self) -> Lines:
        """All of it as text."""
        return Lines(*(tuple(map(_line, own)) for own in (self.events, self.details)))

    @classmethod
    def of(cls, lines: Lines, where: str) -> Self:
        """The moment that has these lines; a CheckpointError by name where one is none."""
        events, details = (tuple(told(text, where, level) for level, text in own) for own in lines)
        return cls(lambda: events, lambda: details)


def _line(event: Envelope) -> tuple[str, str]:
    return event.level, line(event, seq=0, time=0.0)


def told(text: str, where: str, level: str = LEVEL_DEBUG) -> Envelope:
    """The event of a line that a checkpoint holds, of that level; a CheckpointError by name where it is none."""
    try:
        return replace(parse(text), level=LEVELS[RANK[level]])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{where} holds {format_value([level, text])}; want a level and the line of an event"
        ) from error


@dataclass(frozen=True)
class Batch:
    """The part of a moment that a level writes.  `late`: only what that level leaves out, after its time."""

    moment: Moment
    level: str
    lifecycle_only: bool = False
    late: bool = False

    @cached_property
    def events(self) -> tuple[Envelope, ...]:
        """The events that are written."""
        rank, moment = RANK[self.level], self.moment
        every = (*moment.events, *(moment.details if self.late or self.level == LEVEL_DEBUG else ()))
        if self.late:
            return tuple(replace(one, late=True) for one in every if RANK[one.level] > rank)
        return tuple(
            one for one in every if RANK[one.level] <= rank and (one.data.LIFECYCLE or not self.lifecycle_only)
        )


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of batches that had to make room: what is never dropped, in order, and how much was."""

    events: tuple[Envelope, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)

    def with_(self, other: "Batch | Remains") -> "Remains":
        """These, and what is left of a batch or of others."""
        kept = tuple(one for one in other.events if never_dropped(one))
        gone = Counter(one.name for one in other.events if not never_dropped(one))
        before = other.dropped if isinstance(other, Remains) else Counter[str]()
        return Remains(self.events + kept, self.dropped + gone + before)


def never_dropped(event: Envelope) -> bool:
    """Events of the class lifecycle, and all that are about a round or the run."""
    return event.data.LIFECYCLE or event.epoch is None
