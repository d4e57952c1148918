"""Contents of a run directory without its checkpoints: config, manifest, held-out results, tables of its events."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from morphogen.analysis import tables
from morphogen.analysis.tables import Row, Tables
from morphogen.config.config_files import dump_config, parse_config
from morphogen.errors import ConfigError, DataError
from morphogen.storage import run_directory
from morphogen.storage.files import error_line, parse_json, read_bytes, read_lines
from morphogen.storage.type_check import build_check
from morphogen.telemetry.events import Envelope, tidy
from morphogen.telemetry.jsonl import decode, find_misfit
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.vocab.text import escape_text, format_value

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
        """Name of the directory, printable."""
        return escape_text(self.path.resolve().name)

    def events(self, keep_line: Callable[[str], bool]) -> Iterator[Envelope]:
        """Read the events of the lines that `keep_line` accepts again."""
        for path in event_files(self.path, self.config):
            yield from read_events(path, keep_line)


def read_run(path: Path) -> RunLog:
    """Read a run directory.  Raises: ConfigError for another directory, DataError for a damaged file."""
    if not os.path.lexists(path / run_directory.CONFIG):
        raise ConfigError(f"{path} is not a run directory: {run_directory.CONFIG} not found")
    run_directory.refuse_links(path)
    config = _read_config(path / run_directory.CONFIG)
    manifest, result = _read_object(path / run_directory.MANIFEST, MANIFEST_TYPES), _read_result(path)
    evaluation = _read_evaluation(path / run_directory.EVALUATION)
    return RunLog(path, config, manifest, result, tables.fold(_fitting_events(event_files(path, config))), evaluation)


def _read_config(path: Path) -> Row:
    """The config of a run, every field set."""
    try:
        return json.loads(dump_config(parse_config(_read_bytes(path).decode("utf-8"))))
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


def _read_result(run: Path) -> Row:
    path = run / run_directory.RESULT
    result = _read_object(path, RESULT_TYPES)
    lengths = {len(row) for policy in result.get("policies", {}).values() for row in policy.values()}
    if len(lengths) > 1 or 0 in lengths:
        counts = format_value(sorted(lengths))
        raise DataError(f"{path} is damaged: policies: expected equal numbers of episodes, got {counts}")
    return result


def _read_evaluation(path: Path) -> Row:
    evaluation = _read_object(path, EVALUATION_TYPES)
    profiles = evaluation.get("profiles", {"tau": (), "arms": {}})
    lengths = {len(profiles["tau"]), *(len(end) for band in profiles["arms"].values() for end in band.values())}
    if len(lengths) > 1:
        counts = format_value(sorted(lengths))
        raise DataError(f"{path} is damaged: profiles: expected equal numbers of points, got {counts}")
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
    marker, files = f'"event":"{BatchSummary.NAME}"', event_files(path, _read_config(path / run_directory.CONFIG))
    events = (event for file in files[:1] for event in read_events(file, lambda text: marker in text))
    return [event.data for event in events if isinstance(event.data, BatchSummary)]


def read_events(path: Path, keep_line: Callable[[str], bool] = bool) -> Iterator[Envelope]:
    """Yield the events of the lines that `keep_line` accepts; an incomplete last line is left out."""
    number = 0  # lines that could be read
    try:
        for line in read_lines(path):
            number += 1
            if keep_line(text := line.decode("ascii", "replace")):
                yield decode(text)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged in line {number}: {error_line(error)}") from None


def _fitting_events(paths: Sequence[Path]) -> Iterator[Envelope]:
    """Yield the events of files.  Raises DataError for the first event that does not fit the run that started."""
    start = None
    for path in paths:
        for number, event in enumerate(read_events(path), start=1):
            start = event.data if isinstance(event.data, RunStarted) else start
            fault = "RunStarted is missing" if start is None else find_misfit(start, event)
            if fault is not None:
                raise DataError(f"{path} is damaged in line {number}: {fault}")
            yield event
