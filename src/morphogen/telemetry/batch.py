"""Batches: events that go to the sinks together, filtered by level, made when they are first asked for."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVELS
from morphogen.errors import CheckpointError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode, encode
from morphogen.vocab.text import format_value

MakeEvents = Callable[[], Iterable[Envelope]]
LEVEL_RANK = {name: rank for rank, name in enumerate(LEVELS)}


class EventLines(NamedTuple):
    """A moment as text: the level and the line of every event."""

    events: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]


class PendingEvents:
    """Events of an epoch, a round or the run, before a sink selects from them."""

    def __init__(self, events: MakeEvents, details: MakeEvents = tuple) -> None:
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
    def lines(self) -> EventLines:
        """All of it as text."""
        return EventLines(*(tuple(map(_line, own)) for own in (self.events, self.details)))

    @classmethod
    def from_lines(cls, lines: EventLines, where: str) -> Self:
        """The moment that has these lines; a CheckpointError by name where one is none."""
        events, details = (tuple(parse_saved_event(text, where, level) for level, text in own) for own in lines)
        return cls(lambda: events, lambda: details)


def _line(event: Envelope) -> tuple[str, str]:
    return event.level, encode(event, seq=0, time=0.0)


def parse_saved_event(text: str, where: str, level: str = LEVEL_DEBUG) -> Envelope:
    """The event of a line that a checkpoint holds, of that level; a CheckpointError by name where it is none."""
    try:
        return replace(decode(text), level=LEVELS[LEVEL_RANK[level]])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{where} holds {format_value([level, text])}; want a level and the line of an event"
        ) from error


@dataclass(frozen=True)
class EventBatch:
    """The part of a moment that a level writes.  `late`: only what that level leaves out, after its time."""

    pending: PendingEvents
    level: str
    lifecycle_only: bool = False
    late: bool = False

    @cached_property
    def events(self) -> tuple[Envelope, ...]:
        """The events that are written."""
        rank, moment = LEVEL_RANK[self.level], self.pending
        every = (*moment.events, *(moment.details if self.late or self.level == LEVEL_DEBUG else ()))
        if self.late:
            return tuple(replace(one, late=True) for one in every if LEVEL_RANK[one.level] > rank)
        return tuple(
            one for one in every if LEVEL_RANK[one.level] <= rank and (one.data.LIFECYCLE or not self.lifecycle_only)
        )


@dataclass(frozen=True, slots=True)
class RetainedEvents:
    """Remains of dropped batches: events that are never dropped, in order, and counts of the others."""

    events: tuple[Envelope, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)

    def merge_with(self, other: "EventBatch | RetainedEvents") -> "RetainedEvents":
        """These, and what is left of a batch or of others."""
        kept = tuple(one for one in other.events if never_dropped(one))
        gone = Counter(one.name for one in other.events if not never_dropped(one))
        before = other.dropped if isinstance(other, RetainedEvents) else Counter[str]()
        return RetainedEvents(self.events + kept, self.dropped + gone + before)


def never_dropped(event: Envelope) -> bool:
    """Events of the class lifecycle, and all that are about a round or the run."""
    return event.data.LIFECYCLE or event.epoch is None
