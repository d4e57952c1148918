"""A run directory without its checkpoints: config, manifest, tables of its events."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import with_config
from typing_extensions import TypedDict

from morphogen.config.files import error_line
from morphogen.errors import DataError
from morphogen.extras.inspection.folded_tables import KINDS, Row, Tables, fold
from morphogen.log import run_directory
from morphogen.log.events import Envelope
from morphogen.log.run_log import LOOSE, event_folder, iterate_events, open_run, read_object
from morphogen.vocab.text import escape_text


@with_config(LOOSE)
class RunManifest(TypedDict, total=False):
    """Entries of the manifest of a run that its readers look at."""

    status: str
    versions: dict[str, str]
    last_checkpoint: str | None


@dataclass(frozen=True, slots=True)
class RunLog:
    """One run, as far as it has come."""

    path: Path
    config: Row
    manifest: Row
    tables: Tables

    @property
    def name(self) -> str:
        """Name of the directory, printable."""
        return escape_text(self.path.resolve().name)

    def events(
        self, kinds: Collection[str] | None, rounds: Collection[int] | None = None
    ) -> Iterator[Envelope]:
        """Read the events of these names and rounds (from 0) again; None: all."""
        return iterate_events(event_folder(self.path, self.config), kinds, rounds)


def read_run(path: Path) -> RunLog:
    """Read a run directory.  Raises: ConfigError for another directory, DataError for a damaged
    file.
    """
    config = open_run(path)
    manifest = read_object(path / run_directory.MANIFEST, RunManifest)
    folder = event_folder(path, config)
    try:
        rows = fold(iterate_events(folder, KINDS))
    except DataError:
        raise
    except (ValueError, IndexError) as error:  # rows of unequal lengths
        raise DataError(
            f"{folder / run_directory.EVENTS} is damaged: {error_line(error)}"
        ) from None
    return RunLog(path, config, manifest, rows)
