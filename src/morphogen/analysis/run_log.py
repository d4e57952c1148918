"""Contents of a run directory without its checkpoints: config, manifest, held-out results, tables of its events."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from morphogen.analysis import tables
from morphogen.analysis.tables import Row, Tables
from morphogen.config.config_files import build_spec, dump_config, parse_settings
from morphogen.errors import ConfigError, DataError
from morphogen.storage import run_directory
from morphogen.storage.files import error_line, parse_json, read_bytes, read_lines
from morphogen.storage.type_check import build_check
from morphogen.telemetry.events import Envelope, tidy
from morphogen.telemetry.jsonl import decode, find_misfit
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.vocab.text import format_value

RANK_FILES = "events.rank*.jsonl"
Numbers = tuple[float, ...]


class PolicyResult(TypedDict):
    """A policy on held-out instances, a number per episode."""

    network_value: Numbers
    committed_accuracy: Numbers
    params_ratio: Numbers
    success_share: Numbers
    stability: Numbers
    params: Numbers
    rollbacks: Numbers


class IntervalEstimate(TypedDict):
    """A number with its interval."""

    value: float
    low: float
    high: float


class EstimateBand(TypedDict):
    """Numbers over a grid, with their intervals."""

    value: Numbers
    low: Numbers
    high: Numbers


class Profiles(TypedDict):
    """Shares of episodes with a network value above tau."""

    tau: Numbers
    arms: dict[str, EstimateBand]


MANIFEST_TYPES = {"status": str, "versions": dict[str, str], "last_checkpoint": str | None}
RESULT_TYPES = {"policies": dict[str, PolicyResult]}
EVALUATION_TYPES = {"statistics": dict[str, dict[str, IntervalEstimate | None]], "profiles": Profiles}


@dataclass(frozen=True, slots=True)
class RunLog:
    """One run, as far as it has come."""

    path: Path
    config: Row
    manifest: Row
    result: Row  # empty: nothing was evaluated
    tables: Tables
    evaluation: Row  # of `morphogen evaluate`; empty: there was none

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.resolve().name

    def events(self, keep_line: Callable[[str], bool]) -> Iterator[Envelope]:
        """Read the events of the lines that `keep_line` accepts again."""
        for path in event_files(self.path, self.config):
            yield from read_events(path, keep_line)


def read_run(path: Path) -> RunLog:
    """Read a run directory.  Raises: ConfigError for another directory, DataError for a damaged file."""
    if not os.path.lexists(path / run_directory.CONFIG):
        raise ConfigError(f"{path} is not a run directory: {run_directory.CONFIG} not found")
    config = _read_config(path / run_directory.CONFIG)
    manifest, result = (
        _read_object(path / run_directory.MANIFEST, MANIFEST_TYPES),
        _read_object(path / run_directory.RESULT, RESULT_TYPES),
    )
    _check_lengths(path / run_directory.RESULT, result.get("policies", {}))
    judged = _read_evaluation(path / run_directory.EVALUATION)
    fitting = _FitCheck()
    parts = [tables.fold(fitting.events(file)) for file in event_files(path, config)]
    return RunLog(path, config, manifest, result, reduce(tables.merge, parts, tables.EMPTY_TABLES), judged)


def _read_config(path: Path) -> Row:
    """The config of a run, every field set."""
    try:
        settings, faults = parse_settings(_read_bytes(path).decode("utf-8"))
        return json.loads(dump_config(build_spec(settings, faults)))
    except (UnicodeDecodeError, ConfigError) as error:
        raise DataError(f"{path} is damaged: {error}") from None


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None


def _read_object(path: Path, types: Mapping[str, Any]) -> Row:
    """Read a JSON object whose values fit `types`; empty without the file."""
    if not os.path.lexists(path):
        return {}
    raw = _read_bytes(path)
    try:
        values = tidy(parse_json(raw))
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error_line(error)}") from None
    for name, hint in types.items():
        if name in values and not build_check(hint)(values[name]):
            raise DataError(f"{path} is damaged: {name} is {format_value(values[name])}")
    return values


def _check_lengths(path: Path, policies: Mapping[str, PolicyResult]) -> None:
    lengths = {len(row) for judged in policies.values() for row in judged.values()}
    if len(lengths) > 1 or 0 in lengths:
        raise DataError(
            f"{path} is damaged: policies: expected equal numbers of episodes, got {format_value(sorted(lengths))}"
        )


def _read_evaluation(path: Path) -> Row:
    evaluation = _read_object(path, EVALUATION_TYPES)
    profiles = evaluation.get("profiles", {"tau": (), "arms": {}})
    lengths = {len(profiles["tau"]), *(len(end) for band in profiles["arms"].values() for end in band.values())}
    if len(lengths) > 1:
        raise DataError(
            f"{path} is damaged: profiles: expected equal numbers of points, got {format_value(sorted(lengths))}"
        )
    if any(ends.get("mean") is None for ends in evaluation.get("statistics", {}).values()):
        raise DataError(f"{path} is damaged: statistics of an arm have no mean")
    return evaluation


def event_files(path: Path, config: Row) -> tuple[Path, ...]:
    """Return the existing event files of a run, by rank."""
    folder = run_directory.events_folder(path, config["telemetry"]["dir"])
    ranks = sorted(folder.glob(RANK_FILES), key=lambda file: (len(file.name), file.name))
    return tuple(file for file in (folder / run_directory.EVENTS, *ranks) if os.path.lexists(file))


def read_rounds(path: Path) -> list[BatchSummary]:
    """Return the completed rounds in the event file of a run."""
    marker = f'"event":"{BatchSummary.NAME}"'
    batches = (
        read_events(file, lambda text: marker in text)
        for file in event_files(path, _read_config(path / run_directory.CONFIG))[:1]
    )
    return [event.data for events in batches for event in events if isinstance(event.data, BatchSummary)]


def read_events(path: Path, keep_line: Callable[[str], bool] = bool) -> Iterator[Envelope]:
    """Yield the events of the lines that `keep_line` accepts; an incomplete last line is left out."""
    texts = (line.decode("ascii", "replace") for line in _read_lines(path))
    yield from (_decode_event(path, number, text) for number, text in enumerate(texts, start=1) if keep_line(text))


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None


class _FitCheck:
    """Check of events against the run that started."""

    def __init__(self) -> None:
        self._start: RunStarted | None = None

    def events(self, path: Path) -> Iterator[Envelope]:
        """Yield the events of a file.  Raises DataError for the first event that does not fit."""
        for number, event in enumerate(read_events(path), start=1):
            self._start = event.data if isinstance(event.data, RunStarted) else self._start
            fault = "RunStarted is missing" if self._start is None else find_misfit(self._start, event)
            if fault is not None:
                raise DataError(f"{path} is damaged in line {number}: {fault}")
            yield event


def _decode_event(path: Path, number: int, text: str) -> Envelope:
    try:
        return decode(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged in line {number}: {error_line(error)}") from None
