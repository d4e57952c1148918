"""Sinks for events, and positions to resume from: the event file, functions, and loggers of scalars.  No tensors.

Scalars are the numbers of events (`telemetry.scalars`), to CSV tables, or through TorchRL's loggers to TensorBoard,
Weights & Biases or MLflow.
"""

import errno
import importlib
import importlib.util
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError
from morphogen.storage.locks import hold_lock
from morphogen.storage.run_directory import LOCK
from morphogen.storage.type_check import Count
from morphogen.telemetry.events import Envelope, EnvEvent, EpochEvent
from morphogen.telemetry.jsonl import EVENT_KINDS, encode
from morphogen.telemetry.kinds.epoch import EpochCompleted, RolledBack
from morphogen.telemetry.record_files import write_record
from morphogen.telemetry.round_record import RoundRecord
from morphogen.telemetry.scalars import CsvTables, event_row


class LoggerPosition(NamedTuple):
    """Of a logger of scalars."""

    id: str | None = None  # of the run, as a service knows it
    files: Mapping[str, Count] = {}  # file -> bytes, of those that a logger keeps itself


UNOPENED = LoggerPosition()  # not opened yet


class SinkPosition(NamedTuple):
    """Of the event file, with what it did not take, and of the loggers."""

    bytes: Count
    seq: Count  # number of the next line
    pending: tuple[str, ...]  # lines
    rounds: Count  # that are over
    dir: str | None  # telemetry.dir
    loggers: Mapping[str, LoggerPosition]


class Sink(Protocol):
    """Destination of events.

    A sink with `kinds` gets the events of these names only; those of envs, slots and epochs are made for sinks that ask
    for them, when their round is over.  A sink with `position` reports its position; a checkpoint waits for a sink with
    `local` files; a sink with `write_record` gets the records of rounds too.
    """

    def write(self, events: Iterable[Envelope]) -> None:
        """Take a batch."""

    def flush(self) -> None:
        """Make what was taken durable."""

    def close(self) -> None:
        """Take no more."""


LOGGED_KINDS = frozenset(name for name, kind in EVENT_KINDS.items() if not issubclass(kind, EpochEvent | EnvEvent))
LOGGED_KINDS |= {RolledBack.NAME}  # all other events of envs, slots and epochs are in the records


class JsonlSink:
    """A sink that appends JSON lines to a file, which no other process writes meanwhile, and keeps records beside it.

    It takes the events about rounds and the run, anomalies and rollbacks.
    """

    local = retries = True
    kinds = LOGGED_KINDS

    def __init__(
        self, path: Path, *, first_seq: int = 0, size: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the file, and cut it to `size` bytes, if set.

        Args:
            first_seq: number of the next line.

        Raises: OSError if the file has another writer or another name, or is a link, a pipe or a device.
        """
        self.name, self.seq, self._clock = path.name, first_seq, clock
        self._folder = path.parent
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(path.with_name(f"{path.name}.{LOCK}")))
            except BlockingIOError:
                raise OSError(errno.EAGAIN, "another process writes it") from None
            self._file = stack.enter_context(os.fdopen(_open_to_append(path), "ab", buffering=0))
            if size is not None:
                self._file.truncate(size)
            self._size = self._file.seek(0, os.SEEK_END)  # bytes of whole lines
            self._opened = stack.pop_all()

    def write(self, events: Iterable[Envelope]) -> None:
        """Append the events in one write, all of them or, where that raises, none; their numbers follow each other."""
        now = self._clock()
        lines = [encode(event, seq=self.seq + i, time=now) for i, event in enumerate(events)]
        data = "".join(lines).encode("ascii")
        try:
            rest = data
            while rest:  # a raw file may take a part only
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._file.truncate(self._size)  # a disk that fills up takes a part
            raise
        self.seq, self._size = self.seq + len(lines), self._size + len(data)

    def write_record(self, record: RoundRecord) -> None:
        """Write the file of the record of a round; OSError if that fails, or if the folder was replaced."""
        if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._folder / self.name)):
            raise OSError(errno.ESTALE, "its folder was replaced by another one")
        write_record(self._folder, record)

    def position(self) -> tuple[int, int]:
        """The bytes of the whole lines, and the number of the next one."""
        return self._size, self.seq

    def flush(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close; closing again does nothing."""
        if not self._file.closed:
            self.flush()
            self._opened.close()


def _open_to_append(path: Path) -> int:
    """Return the descriptor of a regular file to append to."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EINVAL, "expected a file with one name, got a device, a pipe or a file with hard links")
    except OSError:
        os.close(handle)
        raise
    return handle


class CallbackSink(Sink):
    """A sink that hands every batch to a function, as a list."""

    def __init__(self, function: Callable[[list[Envelope]], object]) -> None:
        self.name, self._function = getattr(function, "__name__", type(function).__name__), function

    def write(self, events: Iterable[Envelope]) -> None:
        """Call the function."""
        self._function(list(events))


class MemorySink(CallbackSink):
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        super().__init__(self.events.extend)
        self.name = type(self).__name__


LOGGER_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}  # logger -> package and extra
LOGGER_FILES = {"csv": "*.csv", "tensorboard": "*tfevents*"}  # logger -> what it keeps in its folder
PROJECT = "morphogen"
NO_CONFIG: Mapping[str, Any] = MappingProxyType({})


def check_loggers(names: Iterable[str]) -> None:
    """Raise a ConfigError if the package of a logger is not installed."""
    for name in names:
        if name in LOGGER_PACKAGES and importlib.util.find_spec(LOGGER_PACKAGES[name]) is None:
            package = f'the package {LOGGER_PACKAGES[name]} (pip install "morphogen[{name}]")'
            raise ConfigError(f"telemetry.loggers: expected {package} for {name}, got no such package")


class ScalarSink:
    """A sink for the numbers of events."""

    kinds = LOGGED_KINDS | {EpochCompleted.NAME}

    def __init__(
        self,
        name: str,
        folder: Path,
        spec: TelemetrySpec,
        *,
        run: Path,
        epochs: int,
        config: Mapping[str, Any] = NO_CONFIG,
        position: LoggerPosition = UNOPENED,
    ) -> None:
        """folder: of the files of the logger; run: path of the run for people; epochs: of an episode.

        config: settings of the run by path, logged when the logger begins; position: of a run that is resumed.
        """
        self.name, self.local, self._config = name, name in LOGGER_FILES, config
        self._folder, self._spec, self._epochs, self._position = folder, spec, epochs, position
        self._run = run.absolute()

    @cached_property
    def _logger(self) -> Any:
        """Opened by the thread that writes first: a service may be slow to answer, or refuse."""
        logger = self._open()
        if self._position == UNOPENED and self._config and self.name in _LOG_CONFIG:
            _LOG_CONFIG[self.name](logger.experiment, self._config)
        return logger

    def _open(self) -> Any:
        name, folder, wandb = self.name, str(self._folder), self._spec.wandb
        self._folder.mkdir(parents=True, exist_ok=True)
        if name == "csv":
            return CsvTables(self._folder / name)
        loggers = importlib.import_module("torchrl.record.loggers")
        if name == "tensorboard":
            return loggers.TensorboardLogger(exp_name=name, log_dir=folder)
        if name == "mlflow":
            if self._position.id is not None:
                os.environ["MLFLOW_RUN_ID"] = self._position.id  # of the run that is started next
            artifacts = self._run / self._folder.name / name
            uris = {"tracking_uri": f"sqlite:///{folder}/mlflow.db", "artifact_location": artifacts.as_uri()}
            if uri := os.environ.get("MLFLOW_TRACKING_URI"):
                uris = {"tracking_uri": uri}  # its server knows where artifacts go
            return loggers.MLFlowLogger(exp_name=os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT, **uris)
        return loggers.WandbLogger(
            exp_name=wandb.name or os.environ.get("WANDB_NAME") or self._run.name,
            log_dir=os.environ.get("WANDB_DIR") or folder,
            project=wandb.project or os.environ.get("WANDB_PROJECT") or PROJECT,
            log_env_packages=False,
            tags=list(wandb.tags) or None,  # None: as the environment says, which holds for `mode` too
            id=self._position.id,
            **{field: getattr(wandb, field) for field in ("entity", "group", "mode")},
        )

    def write(self, events: Iterable[Envelope]) -> None:
        """Log the numbers of a batch."""
        for event in events:
            row = event_row(event, self._epochs)
            if row is None:
                continue
            if self.name == "csv":
                self._logger.write(row)
                continue
            for name, value in row.scalars():
                self._logger.log_scalar(name, value, step=row.step)

    def flush(self) -> None:
        """Files take what the logger holds back; a service takes it as it sees fit."""
        if "_logger" in vars(self) and self.local:
            _FLUSH[self.name](self._logger)
            self._position = LoggerPosition(files=dict(_file_sizes(self._folder, self.name)))

    def position(self) -> LoggerPosition:
        """Position of the logger at the last flush, and its run at a service."""
        if "_logger" in vars(self) and not self.local:
            self._position = LoggerPosition(_ID[self.name](self._logger.experiment))
        return self._position

    def close(self) -> None:
        """Close what the logger has open."""
        if "_logger" in vars(self):
            _CLOSE[self.name](self._logger)


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


def _config_page(config: Mapping[str, Any]) -> str:
    """Settings as a table in Markdown."""
    return "\n".join(("| setting | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in config.items())))


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
_FLUSH = {"csv": lambda tables: tables.flush(), "tensorboard": lambda logger: logger.experiment.flush()}
_ID = {"wandb": lambda experiment: experiment.id, "mlflow": lambda experiment: experiment.info.run_id}
