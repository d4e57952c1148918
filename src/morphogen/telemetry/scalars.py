"""Scalars of events: one row per event for CSV tables, one named number each for loggers.

Tables are `round`, `ppo`, `actions`, ... with the round, from 1, as step; `epoch`, means over the envs, with the epochs
of the run counted through from 0; and `anomaly`.  A logger names a number `table/column`.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from morphogen.telemetry.events import Envelope, mean_known
from morphogen.telemetry.kinds.epoch import EpochCompleted
from morphogen.telemetry.kinds.round import AnomalyDetected
from morphogen.vocab.text import name_map

NAME_PREFIXES = name_map(
    "RoundCompleted=round, PpoUpdated=ppo, ActionCounts=actions, MaskHitRates=masks, RewardSummary=rewards, "
    "Throughput=throughput, ObservationStats=observation, HiddenHealth=hidden"
)
STEP, KIND, VALUE = "step", "kind", "value"
ANOMALY = "anomaly"


class ScalarRow(NamedTuple):
    """Row of a table; None in a column that is not measured."""

    table: str
    step: int
    values: Mapping[str, float | str | None]

    def scalars(self) -> Iterator[tuple[str, float]]:
        """Return name and value of every measured number; an anomaly is named by its kind."""
        if self.table == ANOMALY:
            yield f"{ANOMALY}/{self.values[KIND]}", float(self.values[VALUE] or 0.0)
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
        means = {name: mean_known(row) for name, row in data.payload().items() if all(map(_is_scalar, row))}
        return ScalarRow("epoch", event.round * epochs + (event.epoch or 0), means)
    if isinstance(data, AnomalyDetected):
        value = 1.0 if data.value is None else float(data.value)
        return ScalarRow(ANOMALY, event.round + 1, {KIND: data.kind, VALUE: value})
    if event.name in NAME_PREFIXES:
        numbers = {name: value for name, value in data.payload().items() if name != "round"}  # it is the step
        return ScalarRow(NAME_PREFIXES[event.name], event.round + 1, dict(_flatten("", numbers)))
    return None


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _flatten(path: str, value: Any) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{path}/{name}" if path else name, inner)
    elif _is_scalar(value):
        yield path, None if value is None else float(value)


class CsvTables:
    """A folder of CSV files: one per table, a header, then a row per step."""

    def __init__(self, folder: Path) -> None:
        """folder: made if missing; files in it are continued under their headers."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files: dict[str, TextIO] = {}
        self._columns: dict[str, tuple[str, ...]] = {}

    def write(self, row: ScalarRow) -> None:
        """Append a row; a cell is empty where nothing was measured.

        Raises: ValueError for a number that the header of the table has no column for.
        """
        values = {STEP: row.step, **row.values}
        if row.table not in self._files:
            self._open(row.table, tuple(values))
        columns = self._columns[row.table]
        extra = [name for name, value in values.items() if value is not None and name not in columns]
        if extra:
            raise ValueError(f"{row.table}.csv: expected columns {', '.join(columns)}, got {', '.join(extra)} as well")
        csv.writer(self._files[row.table], lineterminator="\n").writerow([values.get(name) for name in columns])

    def flush(self) -> None:
        """Write out all rows."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _open(self, table: str, columns: tuple[str, ...]) -> None:
        """Open the file of a table; its own header stands, a new file gets these columns."""
        file = (self._folder / f"{table}.csv").open("a+", newline="", encoding="utf-8")
        file.seek(0)
        header = next(csv.reader(file), None)
        if header is None:
            csv.writer(file, lineterminator="\n").writerow(columns)
        file.seek(0, 2)
        self._files[table], self._columns[table] = file, tuple(header or columns)
