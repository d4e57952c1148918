"""What a run directory tells without its checkpoints: config, manifest, held-out results, tables of its events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from morphogen.errors import ConfigError, DataError
from morphogen.run import directory
from morphogen.run.reading import parsed, reason, whole
from morphogen.run.telemetry import analytics
from morphogen.run.telemetry.analytics import Row, Tables
from morphogen.run.telemetry.events import Envelope
from morphogen.run.telemetry.kinds.round import BatchSummary
from morphogen.run.telemetry.lines import parse

RANKS = "events.rank*.jsonl"


@dataclass(frozen=True, slots=True)
class Log:
    """One run, as far as it has come."""

    path: Path
    config: Row
    manifest: Row
    result: Row  # empty: nothing was evaluated
    tables: Tables

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.resolve().name

    def events(self, wanted: Callable[[str], bool]) -> Iterator[Envelope]:
        """The events whose lines are wanted, read again."""
        for path in event_files(self.path, self.config):
            yield from read(path, wanted)


def load(path: Path) -> Log:
    """Read a run directory; one that is none is a ConfigError, a damaged file in it a DataError."""
    if not (path / directory.CONFIG).is_file():
        raise ConfigError(f"run directory is {path}, which holds no {directory.CONFIG}; want the directory of a run")
    config, manifest, result = (_json(path / name) for name in (directory.CONFIG, directory.MANIFEST, directory.RESULT))
    parts = [analytics.fold(read(file)) for file in event_files(path, config)]
    return Log(path, config, manifest, result, reduce(analytics.merge, parts, analytics.EMPTY))


def _json(path: Path) -> Row:
    """An object; empty where there is no such file."""
    try:
        return parsed(whole(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: {reason(error)}") from None


def event_files(path: Path, config: Row) -> tuple[Path, ...]:
    """The event files of a run that exist, by rank."""
    telemetry: dict[str, Any] = config.get("telemetry", {})
    folder = Path(telemetry.get("dir") or path)
    ranks = sorted(folder.glob(RANKS), key=lambda file: (len(file.name), file.name))
    return tuple(file for file in (folder / directory.EVENTS, *ranks) if file.is_file())


def rounds(path: Path) -> list[BatchSummary]:
    """The rounds that the event file of a run tells of."""
    wanted = f'"event":"{BatchSummary.NAME}"'
    found = (read(file, lambda text: wanted in text) for file in event_files(path, _json(path / directory.CONFIG))[:1])
    return [event.data for events in found for event in events if isinstance(event.data, BatchSummary)]


def read(path: Path, wanted: Callable[[str], bool] = bool) -> Iterator[Envelope]:
    """The events of a file whose lines are wanted; a last line that was cut is no line yet."""
    with path.open("rb") as file:
        whole = (line.decode("ascii", "replace") for line in file if line.endswith(b"\n"))
        yield from (_event(path, number, text) for number, text in enumerate(whole, start=1) if wanted(text))


def _event(path: Path, number: int, text: str) -> Envelope:
    try:
        return parse(text)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged in line {number}: {error}") from None
