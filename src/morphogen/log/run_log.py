"""The log of a run read back: its config and its events."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from morphogen.config.files import error_line, parse_json, read_bytes, read_lines
from morphogen.errors import ConfigError, DataError
from morphogen.log import run_directory
from morphogen.log.codec import describe_fault
from morphogen.log.derive import derive_events, derived_kinds
from morphogen.log.events import Envelope, Json, tidy
from morphogen.log.jsonl import decode
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import RunCompleted, RunStarted
from morphogen.log.record_files import list_records, read_record
from morphogen.vocab.paths import expand_path

# settings that no reader looks at are not checked
LOOSE = ConfigDict(strict=True, extra="allow")


@with_config(LOOSE)
class TelemetryGroup(TypedDict):
    """Settings of the log of a run."""

    level: str
    dir: str | None


@with_config(LOOSE)
class RunConfig(TypedDict):
    """Settings of a run that its readers look at."""

    task: str
    policy_name: str
    slots: tuple[str, ...]
    instance: dict[str, tuple[float, float] | None]
    seed: int
    rounds: int
    envs: int
    episode_length: int
    telemetry: TelemetryGroup
    data: Json
    reward: Json


def open_run(path: Path) -> Json:
    """Read the config of a run directory.  Raises: ConfigError for another directory, DataError for
    a damaged file.
    """
    if not os.path.lexists(path / run_directory.CONFIG):
        events_only = os.path.lexists(path / run_directory.EVENTS)  # --telemetry-dir
        hint = (
            "; name the run directory of these events, which reads them too" if events_only else ""
        )
        raise ConfigError(f"{path} is not a run directory: {run_directory.CONFIG} not found{hint}")
    run_directory.refuse_links(path)
    return read_config(path)


def read_config(run: Path) -> Json:
    """The config of a run."""
    return read_object(run / run_directory.CONFIG, RunConfig)


def read_object(path: Path, kind: Any) -> Json:
    """Read a JSON object whose values fit the keys of a TypedDict; empty without the file."""
    if not os.path.lexists(path):
        return {}
    try:
        values = tidy(parse_json(read_bytes(path)))
        return TypeAdapter(kind).validate_python(values)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None
    except ValidationError as error:
        raise DataError(f"{path} is damaged: {describe_fault(error, path.stem)}") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error_line(error)}") from None


def event_folder(path: Path, config: Json) -> Path:
    """Return the folder of the event file and the records of a run."""
    return run_directory.events_folder(path, config["telemetry"]["dir"])


def read_rounds(path: Path) -> list[BatchSummary]:
    """Return the completed rounds in the event file of a run."""
    found = read_events(event_folder(path, read_config(path)) / run_directory.EVENTS)
    return [event.data for event in found if isinstance(event.data, BatchSummary)]


def events(
    path: Path | str, *, kinds: Collection[str] | None = None, rounds: Collection[int] | None = None
) -> Iterator[Envelope]:
    """Iterate over the events of a run in order: from its event file, and derived from its records.

    Args:
        path: run directory; the run may still be running.
        kinds: names of events, such as `StageChanged`; None: all.
        rounds: rounds of events, from 0; None: all, and the events about the run.

    Returns: events with `data`, the fields of the event, and `round`, `epoch`, `env`, `slot`, which
    count from 0.
    Raises: ConfigError for a folder that is no run directory, DataError for a damaged file.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 2,
        ...     "envs": 4,
        ...     "policy_name": "wait",
        ...     "episode_length": 2,
        ... }
        >>> fields["telemetry"] = {"level": "normal"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(**fields, final_episodes=0, out=folder)
        ...     found = list(mg.events(folder, kinds={"EpochCompleted"}, rounds={1}))
        >>> [(event.round, event.epoch, event.data.op_effective) for event in found]
        [(1, 0, ('WAIT', 'WAIT', 'WAIT', 'WAIT')), (1, 1, ('WAIT', 'WAIT', 'WAIT', 'WAIT'))]
    """
    path = expand_path(path)
    return iterate_events(event_folder(path, open_run(path)), kinds, rounds)


def read_events(path: Path) -> Iterator[Envelope]:
    """Yield the events of an event file; an incomplete last line is left out."""
    number = 0  # lines that could be read
    try:
        for line in read_lines(path):
            number += 1
            yield from decode(line.decode("ascii", "replace"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} is damaged in line {number}: {error_line(error)}") from None


def iterate_events(
    folder: Path, kinds: Collection[str] | None = None, rounds: Collection[int] | None = None
) -> Iterator[Envelope]:
    """Yield the events of a folder, the derived ones of a round before the events about it."""
    path = folder / run_directory.EVENTS
    start = None
    records = list_records(folder)
    waiting = [round for round in records if rounds is None or round in rounds]
    for event in read_events(path):
        start = event.data if isinstance(event.data, RunStarted) else start
        if start is None:
            raise DataError(f"{path} is damaged in line 1: RunStarted is missing")
        ends = isinstance(event.data, RunCompleted)
        while waiting and (ends or (event.round is not None and waiting[0] <= event.round)):
            yield from record_events(records[waiting.pop(0)], start, kinds)
        if (kinds is None or event.name in kinds) and (rounds is None or event.round in rounds):
            yield event
    while start is not None and waiting:
        yield from record_events(records[waiting.pop(0)], start, kinds)


def record_events(
    path: Path, start: RunStarted, kinds: Collection[str] | None = None
) -> Iterator[Envelope]:
    """Yield the events of the record of a round, from its file.  Raises DataError for a damaged or
    foreign file.
    """
    if kinds is not None and derived_kinds().isdisjoint(kinds):
        return
    record = read_record(path)
    own = record.facts
    run = (start.task, start.slots, start.blueprints, start.epochs, start.envs)
    if (own.task, own.slots, own.blueprints, own.epochs, own.envs) != run:
        raise DataError(f"{path} is damaged: it is the record of another run")
    try:
        yield from derive_events(record, kinds)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error_line(error)}") from None
