"""Loggers of scalars: tables of CSV; TensorBoard, Weights & Biases and MLflow through TorchRL.  No
tensors.

Tables are `round`, `ppo`, `actions`, ... with the round, from 1, as step; `epoch`, means over the
envs, with the epochs of the run counted from 0; and `anomaly`.  A logger names a number
`table/column`.
"""

import csv
import importlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

from morphogen.config import files
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError
from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope, mean_known
from morphogen.log.kinds.epoch import EpochCompleted
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.round_record import RoundRecord
from morphogen.vocab.text import name_map

NAME_PREFIXES = name_map(
    "RoundCompleted=round, PpoUpdated=ppo, ActionCounts=actions, MaskHitRates=masks, "
    "RewardSummary=rewards, "
    "Throughput=throughput, ObservationStats=observation, HiddenHealth=hidden"
)
STEP = "step"
KIND = "kind"
VALUE = "value"
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
        means = {
            name: mean_known(row)
            for name, row in data.payload().items()
            if all(map(_is_scalar, row))
        }
        return ScalarRow("epoch", event.round * epochs + (event.epoch or 0), means)
    if isinstance(data, AnomalyDetected):
        value = 1.0 if data.value is None else float(data.value)
        return ScalarRow(ANOMALY, event.round + 1, {KIND: data.kind, VALUE: value})
    if event.name in NAME_PREFIXES:
        # it is the step
        numbers = {name: value for name, value in data.payload().items() if name != "round"}
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

    def __init__(self, folder: Path, *, rounds: int, epochs: int) -> None:
        """Continue the files of a folder after `rounds` rounds of `epochs` epochs; rows of later
        steps are cut.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._rounds = rounds
        self._epochs = epochs
        self._files: dict[str, TextIO] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        for path in folder.glob("*.csv"):
            self._cut(path)

    def _cut(self, path: Path) -> None:
        """Remove the rows of rounds that the run computes again, and a row that is not complete."""
        last = self._rounds if path.stem != "epoch" else self._rounds * self._epochs - 1
        with files.open_regular(path) as file:
            header, *rows = file.read().decode("utf-8").splitlines(keepends=True) or [""]
        kept = [row for row in rows if row.endswith("\n") and int(row.partition(",")[0]) <= last]
        if len(kept) < len(rows):
            path.write_text("".join((header, *kept)), "utf-8")

    def write(self, row: ScalarRow) -> None:
        """Append a row; a cell is empty where nothing was measured.

        Raises: ValueError for a number that the header of the table has no column for.
        """
        values = {STEP: row.step, **row.values}
        if row.table not in self._files:
            self._open(row.table, tuple(values))
        columns = self._columns[row.table]
        extra = [
            name for name, value in values.items() if value is not None and name not in columns
        ]
        if extra:
            raise ValueError(
                f"{row.table}.csv: expected columns {', '.join(columns)}, got "
                f"{', '.join(extra)} as well"
            )
        csv.writer(self._files[row.table], lineterminator="\n").writerow(
            [values.get(name) for name in columns]
        )

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


# logger -> package and extra
LOGGER_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
PROJECT = "morphogen"
NO_CONFIG: Mapping[str, Any] = MappingProxyType({})


def check_loggers(names: Iterable[str]) -> None:
    """Raise a ConfigError if the package of a logger is not installed."""
    for name in names:
        if name in LOGGER_PACKAGES and importlib.util.find_spec(LOGGER_PACKAGES[name]) is None:
            package = f'the package {LOGGER_PACKAGES[name]} (pip install "morphogen[{name}]")'
            raise ConfigError(f"log.loggers: expected {package} for {name}, got no such package")


class LoggerPlace(NamedTuple):
    """Place of a logger in a run: `folder` of its files, path of the `run` for people, complete
    rounds, epochs each.
    """

    folder: Path
    run: Path
    epochs: int
    rounds: int = 0


class ScalarSink:
    """A sink for the numbers of events.

    A run that is resumed logs again the rounds that it computes again, under the same steps; the
    tables of CSV are cut before.  The id of a run at a service is kept in a file, so that a resumed
    run continues it.
    """

    def __init__(
        self,
        name: str,
        place: LoggerPlace,
        spec: TelemetrySpec,
        config: Mapping[str, Any] = NO_CONFIG,
    ) -> None:
        """config: settings of the run by path, logged when the logger begins."""
        self.name = name
        self.local = name == "csv"
        self._place = place
        self._spec = spec
        self._config = config
        self._id_file = place.folder / f"{name}.id"

    @cached_property
    def _logger(self) -> Any:
        """Opened by the thread that writes first: a service may be slow to answer, or refuse."""
        self._place.folder.mkdir(parents=True, exist_ok=True)
        if self.name == "csv":
            return CsvTables(
                self._place.folder / "csv", rounds=self._place.rounds, epochs=self._place.epochs
            )
        known = self._id_file.read_text("utf-8") if self._id_file.is_file() else None
        logger = _OPEN[self.name](self._place, self._spec, known)
        if self.name in _ID and known is None:
            self._id_file.write_text(_ID[self.name](logger.experiment), "utf-8")
        if self._config and not self._place.rounds and known is None:
            _LOG_CONFIG[self.name](logger.experiment, self._config)
        return logger

    def write_record(self, record: RoundRecord) -> None:
        """Log the means of every epoch of a round."""
        self.write(derive_events(record, {EpochCompleted.NAME}))

    def write(self, events: Iterable[Envelope]) -> None:
        """Log the numbers of events."""
        for row in filter(None, (event_row(event, self._place.epochs) for event in events)):
            if self.name == "csv":
                self._logger.write(row)
                continue
            for name, value in row.scalars():
                self._logger.log_scalar(name, value, step=row.step)

    def flush(self) -> None:
        """Flush file-based loggers; a service flushes on its own schedule."""
        if self.name in _FLUSH and "_logger" in vars(self):
            _FLUSH[self.name](self._logger)

    def close(self) -> None:
        """Close open files of the logger."""
        if "_logger" in vars(self):
            _CLOSE[self.name](self._logger)


def _open_tensorboard(place: LoggerPlace, spec: TelemetrySpec, known: str | None) -> Any:
    loggers = importlib.import_module("torchrl.record.loggers")
    return loggers.TensorboardLogger(exp_name="tensorboard", log_dir=str(place.folder))


def _open_mlflow(place: LoggerPlace, spec: TelemetrySpec, known: str | None) -> Any:
    loggers = importlib.import_module("torchrl.record.loggers")
    if known is not None:
        os.environ["MLFLOW_RUN_ID"] = known  # of the run that is started next
    artifacts = place.run.absolute() / place.folder.name / "mlflow"
    uris = {
        "tracking_uri": f"sqlite:///{place.folder}/mlflow.db",
        "artifact_location": artifacts.as_uri(),
    }
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        uris = {"tracking_uri": uri}  # its server knows where artifacts go
    return loggers.MLFlowLogger(
        exp_name=os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT, **uris
    )


def _open_wandb(place: LoggerPlace, spec: TelemetrySpec, known: str | None) -> Any:
    loggers = importlib.import_module("torchrl.record.loggers")
    wandb = spec.wandb
    return loggers.WandbLogger(
        exp_name=wandb.name or os.environ.get("WANDB_NAME") or place.run.absolute().name,
        log_dir=os.environ.get("WANDB_DIR") or str(place.folder),
        project=wandb.project or os.environ.get("WANDB_PROJECT") or PROJECT,
        log_env_packages=False,
        tags=list(wandb.tags) or None,  # None: as the environment says, which holds for `mode` too
        id=known,
        entity=wandb.entity,
        group=wandb.group,
        mode=wandb.mode,
    )


def _config_page(config: Mapping[str, Any]) -> str:
    """Settings as a table in Markdown."""
    return "\n".join(
        (
            "| setting | value |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in config.items()),
        )
    )


_OPEN = {"tensorboard": _open_tensorboard, "wandb": _open_wandb, "mlflow": _open_mlflow}
_LOG_CONFIG = {  # csv has config.json beside it
    "tensorboard": lambda experiment, config: experiment.add_text("config", _config_page(config)),
    "wandb": lambda experiment, config: experiment.config.update(dict(config)),
    "mlflow": lambda experiment, config: importlib.import_module("mlflow").log_params(dict(config)),
}
_CLOSE = {
    "csv": lambda tables: tables.close(),
    "tensorboard": lambda logger: logger.experiment.close(),
    "wandb": lambda logger: logger.experiment.finish(),
    "mlflow": lambda logger: importlib.import_module("mlflow").end_run(),
}
_FLUSH = {
    "csv": lambda tables: tables.flush(),
    "tensorboard": lambda logger: logger.experiment.flush(),
}
_ID = {
    "wandb": lambda experiment: experiment.id,
    "mlflow": lambda experiment: experiment.info.run_id,
}
