"""Contents of a run directory without its checkpoints: config, manifest, held-out results, tables of its events."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from morphogen.telemetry.derive import VIEW_KINDS, derive_events
from morphogen.telemetry.events import Envelope, tidy
from morphogen.telemetry.jsonl import decode, find_misfit
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, RunStarted
from morphogen.telemetry.record_files import list_records, read_shards
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import escape_text, format_value

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

    def events(self, kinds: Collection[str] | None, rounds: Collection[int] | None = None) -> Iterator[Envelope]:
        """Read the events of these names and rounds (from 0) again; None: all."""
        return iterate_events(event_folder(self.path, self.config), kinds, rounds)


def open_run(path: Path) -> Row:
    """Read the config of a run directory.  Raises: ConfigError for another directory, DataError for a damaged file."""
    if not os.path.lexists(path / run_directory.CONFIG):
        events_only = os.path.lexists(path / run_directory.EVENTS)  # --telemetry-dir
        hint = "; name the run directory of these events, which reads them too" if events_only else ""
        raise ConfigError(f"{path} is not a run directory: {run_directory.CONFIG} not found{hint}")
    run_directory.refuse_links(path)
    return _read_config(path / run_directory.CONFIG)


def read_run(path: Path) -> RunLog:
    """Read a run directory.  Raises: ConfigError for another directory, DataError for a damaged file."""
    config = open_run(path)
    manifest, result = _read_object(path / run_directory.MANIFEST, MANIFEST_TYPES), _read_result(path)
    evaluation = _read_evaluation(path / run_directory.EVALUATION)
    rows = tables.fold(iterate_events(event_folder(path, config), tables.KINDS))
    return RunLog(path, config, manifest, result, rows, evaluation)


def _read_config(path: Path) -> Row:
    """The config of a run, every field set."""
    try:
        return json.loads(dump_config(parse_config(_read_bytes(path).decode("utf-8"))))
    except (UnicodeDecodeError, ConfigError) as error:
        raise DataError(f"{path} is damaged: {error}{run_directory.missing_imports(path.parent)}") from None


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


def event_folder(path: Path, config: Row) -> Path:
    """Return the folder of the event file and the records of a run."""
    return run_directory.events_folder(path, config["telemetry"]["dir"])


def read_rounds(path: Path) -> list[BatchSummary]:
    """Return the completed rounds in the event file of a run."""
    folder = event_folder(path, _read_config(path / run_directory.CONFIG))
    marker = f'"event":"{BatchSummary.NAME}"'
    events = read_events(folder / run_directory.EVENTS, lambda text: marker in text)
    return [event.data for event in events if isinstance(event.data, BatchSummary)]


def events(
    path: Path | str, *, kinds: Collection[str] | None = None, rounds: Collection[int] | None = None
) -> Iterator[Envelope]:
    """Iterate over the events of a run in order: those of its event file, and those that its records hold.

    Args:
        path: run directory; that of a run that still goes on is fine.
        kinds: names of events, such as `StageChanged`; None: all.
        rounds: rounds of events, from 0; None: all, and the events about the run.

    Returns: events with `data`, the fields of the event, and `round`, `epoch`, `env`, `slot`, which count from 0.
    Raises: ConfigError for a folder that is no run directory, DataError for a damaged file.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {"preset": "tiny", "rounds": 2, "envs": 4, "policy_name": "wait", "episode_length": 2}
        >>> fields["telemetry"] = {"level": "normal"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(**fields, final_episodes=0, out=folder)
        ...     found = list(mg.events(folder, kinds={"EpochCompleted"}, rounds={1}))
        >>> [(event.round, event.epoch, event.data.op_effective) for event in found]
        [(1, 0, ('WAIT', 'WAIT', 'WAIT', 'WAIT')), (1, 1, ('WAIT', 'WAIT', 'WAIT', 'WAIT'))]
    """
    path = expand_path(path)
    return iterate_events(event_folder(path, open_run(path)), kinds, rounds)


def read_events(path: Path, keep_line: Callable[[str], bool] = bool) -> Iterator[Envelope]:
    """Yield the events of the lines that `keep_line` accepts; an incomplete last line is left out."""
    number = 0  # lines that could be read
    try:
        for line in read_lines(path):
            number += 1
            if keep_line(text := line.decode("ascii", "replace")):
                yield decode(text)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged in line {number}: {error_line(error)}") from None


def iterate_events(
    folder: Path, kinds: Collection[str] | None = None, rounds: Collection[int] | None = None
) -> Iterator[Envelope]:
    """Yield the events of a folder.  Raises DataError for the first one that does not fit the run that started."""
    path, start = folder / run_directory.EVENTS, None
    records = {round: paths for round, paths in list_records(folder).items() if rounds is None or round in rounds}
    waiting = [*records]
    for number, event in enumerate(read_events(path), start=1):
        start = event.data if isinstance(event.data, RunStarted) else start
        fault = "RunStarted is missing" if start is None else find_misfit(start, event)
        if start is None or fault is not None:
            raise DataError(f"{path} is damaged in line {number}: {fault}")
        ends = isinstance(event.data, RunCompleted)
        while waiting and (ends or (event.round is not None and waiting[0] <= event.round)):
            yield from record_events(records[waiting.pop(0)], start, kinds)
        if event.epoch is not None and event.round in records:
            continue  # the record has it
        if (kinds is None or event.name in kinds) and (rounds is None or event.round in rounds):
            yield event
    if start is not None:
        for round in waiting:
            yield from record_events(records[round], start, kinds)


def record_events(
    paths: Sequence[Path], start: RunStarted, kinds: Collection[str] | None = None, *, first_epoch: int = 0
) -> Iterator[Envelope]:
    """Yield the events of the record of a round, from its files.  Raises DataError for a damaged or foreign file."""
    if kinds is not None and VIEW_KINDS.isdisjoint(kinds):
        return
    record, path = read_shards(paths), paths[0]
    own, run = record.facts, (start.task, start.slots, start.blueprints, start.epochs, start.envs)
    if (own.task, own.slots, own.blueprints, own.epochs, own.envs) != run:
        raise DataError(f"{path} is damaged: it is the record of another run")
    try:
        yield from derive_events(record, kinds, first_epoch=first_epoch)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error_line(error)}") from None
