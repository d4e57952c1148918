"""Scalars: numbers of events through TorchRL's loggers to CSV files, TensorBoard, Weights & Biases or MLflow.

Names are `round/*`, `ppo/*`, `actions/*`, ... with the round, from 1, as step, and `epoch/*`, means over the envs, with
the epochs of the run counted through from 0.
"""

import importlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.kinds.epoch import EpochCompleted
from morphogen.telemetry.kinds.round import AnomalyDetected
from morphogen.telemetry.writer import UNOPENED, LoggerPosition

NAME_PREFIXES = {
    "RoundCompleted": "round",
    "PpoUpdated": "ppo",
    "ActionCounts": "actions",
    "MaskHitRates": "masks",
    "RewardSummary": "rewards",
    "Throughput": "throughput",
    "ObservationStats": "observation",
    "HiddenHealth": "hidden",
}
LOGGER_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}  # logger -> package and extra
LOGGER_FILES = {"csv": "*.csv", "tensorboard": "*tfevents*"}  # logger -> what it keeps in its folder
PROJECT = "morphogen"


def check_loggers(names: Iterable[str]) -> None:
    """Raise a ConfigError if the package of a logger is not installed."""
    for name in names:
        if name in LOGGER_PACKAGES and importlib.util.find_spec(LOGGER_PACKAGES[name]) is None:
            raise ConfigError(
                f"telemetry.loggers names {name}, but the package {LOGGER_PACKAGES[name]} is not installed; "
                f'want pip install "morphogen[{name}]"'
            )


class ScalarSink:
    """A sink for the numbers of events."""

    def __init__(
        self, name: str, folder: Path, spec: TelemetrySpec, *, epochs: int, position: LoggerPosition = UNOPENED
    ) -> None:
        """folder: of the files of the logger; epochs: of an episode; position: of a run that is resumed."""
        self.name, self.local = name, name in LOGGER_FILES
        self._folder, self._spec, self._epochs, self._position = folder, spec, epochs, position

    @cached_property
    def _logger(self) -> Any:
        """Opened by the thread that writes first: a service may be slow to answer, or refuse."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return _open_logger(self.name, self._folder, self._spec, self._position.id)

    def write(self, events: Iterable[Envelope]) -> None:
        """Log the numbers of a batch."""
        for event in events:
            for name, value, step in event_scalars(event, self._epochs):
                self._logger.log_scalar(name, value, step=step)

    def flush(self) -> None:
        """Files take what the logger holds back; a service takes it as it sees fit."""
        if "_logger" in vars(self) and self.local:
            _FLUSH[self.name](self._logger.experiment)
            self._position = LoggerPosition(files=dict(_file_sizes(self._folder, self.name)))

    def position(self) -> LoggerPosition:
        """Position of the logger at the last flush, and its run at a service."""
        if "_logger" in vars(self) and not self.local:
            self._position = LoggerPosition(_ID[self.name](self._logger.experiment))
        return self._position

    def close(self) -> None:
        """Close what the logger has open."""
        if "_logger" in vars(self):
            _CLOSE[self.name](self._logger.experiment)


def truncate_files(folder: Path, name: str, sizes: Mapping[str, int]) -> None:
    """Take from the files of a logger what came after they had these sizes."""
    for file, size in [*_file_sizes(folder, name)]:
        if file not in sizes:
            (folder / file).unlink()
        elif sizes[file] < size:
            os.truncate(folder / file, sizes[file])


def _file_sizes(folder: Path, name: str) -> Iterator[tuple[str, int]]:
    """Files of a logger, by their names below the folder, and their bytes."""
    for path in (folder / name).rglob(LOGGER_FILES[name]):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path.stat().st_size


def event_scalars(event: Envelope, epochs: int) -> Iterator[tuple[str, float, int]]:
    """Name, value and step of every number in an event; what is not measured is left out."""
    if event.round is None or event.late:
        return
    data = event.data
    if isinstance(data, EpochCompleted):
        step = event.round * epochs + (event.epoch or 0)
        for name, row in data.payload().items():
            known = [float(value) for value in row if isinstance(value, int | float)]
            if known:
                yield f"epoch/{name}", fmean(known), step
    elif isinstance(data, AnomalyDetected):
        yield f"anomaly/{data.kind}", 1.0 if data.value is None else data.value, event.round + 1
    elif event.name in NAME_PREFIXES:
        numbers = _flatten(NAME_PREFIXES[event.name], data.payload())
        yield from ((name, value, event.round + 1) for name, value in numbers)


def _flatten(path: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(f"{path}/{name}", inner)
    elif isinstance(value, int | float):
        yield path, float(value)


def _open_logger(name: str, folder: Path, spec: TelemetrySpec, id: str | None) -> Any:
    loggers, place = importlib.import_module("torchrl.record.loggers"), folder.absolute()
    if name == "csv":
        return loggers.CSVLogger(exp_name=name, log_dir=str(folder))
    if name == "tensorboard":
        return loggers.TensorboardLogger(exp_name=name, log_dir=str(folder))
    if name == "mlflow":
        if id is not None:
            os.environ["MLFLOW_RUN_ID"] = id  # of the run that is started next
        uris = {"tracking_uri": f"sqlite:///{place / 'mlflow.db'}", "artifact_location": (place / name).as_uri()}
        return loggers.MLFlowLogger(exp_name=PROJECT, **uris)
    fields = {name: getattr(spec.wandb, name) for name in ("entity", "group", "mode")}
    return loggers.WandbLogger(
        exp_name=spec.wandb.name or place.parent.name,
        log_dir=str(folder),
        project=spec.wandb.project or PROJECT,
        log_env_packages=False,
        tags=list(spec.wandb.tags),
        id=id,
        **fields,
    )


def _each_file(method: str, experiment: Any) -> None:
    for file in experiment.files.values():
        getattr(file, method)()


_CLOSE = {
    "csv": partial(_each_file, "close"),
    "tensorboard": lambda experiment: experiment.close(),
    "wandb": lambda experiment: experiment.finish(),
    "mlflow": lambda experiment: importlib.import_module("mlflow").end_run(),
}
_FLUSH = {"csv": partial(_each_file, "flush"), "tensorboard": lambda experiment: experiment.flush()}
_ID = {"wandb": lambda experiment: experiment.id, "mlflow": lambda experiment: experiment.info.run_id}
