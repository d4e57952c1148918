"""Batches: events that go to the sinks together, filtered by level, made when they are first asked for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
    """Pending events as text: the level and the line of every event."""

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
        """All events as text."""
        events, details = (
            tuple((event.level, encode(event, seq=0, time=0.0)) for event in part)
            for part in (self.events, self.details)
        )
        return EventLines(events, details)

    @classmethod
    def from_lines(cls, lines: EventLines, where: str) -> Self:
        """Read the events of these lines; a CheckpointError by name where a line is invalid."""
        events, details = (tuple(parse_saved_event(text, where, level) for level, text in part) for part in lines)
        return cls(lambda: events, lambda: details)


def parse_saved_event(text: str, where: str, level: str = LEVEL_DEBUG) -> Envelope:
    """Read an event of that level from a line in a checkpoint; a CheckpointError by name where it is invalid."""
    try:
        return replace(decode(text), level=LEVELS[LEVEL_RANK[level]])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{where}: expected a level and the line of an event, got {format_value([level, text])}"
        ) from error


@dataclass(frozen=True)
class EventBatch:
    """Events that a level writes.  `late`: only the events that the level leaves out, after their time."""

    pending: PendingEvents
    level: str
    lifecycle_only: bool = False
    late: bool = False

    @cached_property
    def events(self) -> tuple[Envelope, ...]:
        """The events that are written."""
        rank, pending = LEVEL_RANK[self.level], self.pending
        every = (*pending.events, *(pending.details if self.late or self.level == LEVEL_DEBUG else ()))
        if self.late:
            return tuple(replace(one, late=True) for one in every if LEVEL_RANK[one.level] > rank)
        return tuple(
            one for one in every if LEVEL_RANK[one.level] <= rank and (one.data.LIFECYCLE or not self.lifecycle_only)
        )


def never_dropped(event: Envelope) -> bool:
    """Events of the class lifecycle, and all that are about a round or the run."""
    return event.data.LIFECYCLE or event.epoch is None
