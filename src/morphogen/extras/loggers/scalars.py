"""Scalars of events: which numbers belong to which table and step, and the base of all loggers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope, mean_known
from morphogen.log.kinds.epoch import EpochCompleted
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.round_record import RoundRecord
from morphogen.log.writer import LoggerPlace, Sink
from morphogen.vocab.text import name_map

TABLES = name_map(  # event about a round -> its table
    "RoundCompleted=round, PpoUpdated=ppo, ActionCounts=actions, MaskHitRates=masks, "
    "RewardSummary=rewards, Throughput=throughput, ObservationStats=observation, "
    "HiddenHealth=hidden"
)
ANOMALY = "anomaly"


class ScalarRow(NamedTuple):
    """Row of a table; None in a column that is not measured."""

    table: str
    step: int
    values: Mapping[str, float | str | None]

    def scalars(self) -> Iterator[tuple[str, float]]:
        """Yield name and value of every measured number; an anomaly is named by its kind."""
        if self.table == ANOMALY:
            yield f"{ANOMALY}/{self.values['kind']}", float(self.values["value"] or 0.0)
            return
        for name, value in self.values.items():
            if isinstance(value, float):
                yield f"{self.table}/{name}", value


def event_row(event: Envelope, epochs: int) -> ScalarRow | None:
    """Return the row of an event; None for events without one.  epochs: of an episode."""
    if event.round is None:
        return None
    data = event.data
    if isinstance(data, EpochCompleted):
        means = {
            name: mean_known(row)
            for name, row in data.payload().items()
            if all(map(_is_scalar, row))
        }
        return ScalarRow("epoch", event.round * epochs + (event.epoch or 0), means)
    if isinstance(data, AnomalyDetected):
        value = 1.0 if data.value is None else float(data.value)
        return ScalarRow(ANOMALY, event.round + 1, {"kind": data.kind, "value": value})
    if event.name in TABLES:
        # the round is the step
        numbers = {name: value for name, value in data.payload().items() if name != "round"}
        return ScalarRow(TABLES[event.name], event.round + 1, dict(_flatten("", numbers)))
    return None


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _flatten(path: str, value: Any) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{path}/{name}" if path else name, inner)
    elif _is_scalar(value):
        yield path, None if value is None else float(value)


class ScalarSink(Sink, ABC):
    """A sink for the numbers of events."""

    NAME: ClassVar[str]  # of the logger, in settings
    KEEPS_LINKS: ClassVar[bool] = False

    def __init__(self, place: LoggerPlace, spec: TelemetrySpec) -> None:
        self.name = self.NAME
        self._place = place
        self._spec = spec

    @classmethod
    def check(cls) -> None:
        """Raise a ConfigError if the logger cannot be used."""

    @abstractmethod
    def write_row(self, row: ScalarRow) -> None:
        """Log the numbers of a row."""

    def write_record(self, record: RoundRecord) -> None:
        """Log the means of every epoch of a round."""
        self.write(derive_events(record, {EpochCompleted.NAME}))

    def write(self, events: Iterable[Envelope]) -> None:
        """Log the numbers of events."""
        for event in events:
            row = event_row(event, self._place.epochs)
            if row is not None:
                self.write_row(row)
