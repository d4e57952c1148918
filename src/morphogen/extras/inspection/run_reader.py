"""A run directory without its checkpoints: config, manifest, and its events folded into tables, in
which rounds count from 1.  No tensors.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import with_config
from typing_extensions import TypedDict

from morphogen.log import run_directory
from morphogen.log.console import round_number
from morphogen.log.events import Envelope
from morphogen.log.jsonl import ROUND_FIELDS
from morphogen.log.kinds.epoch import AblationsMeasured
from morphogen.log.record_files import list_records, read_record
from morphogen.log.round_record import RoundRecord
from morphogen.log.run_log import LOOSE, event_folder, iterate_events, open_run, read_object
from morphogen.vocab.objective import ACCURACY
from morphogen.vocab.text import escape_text, name_map

Row = dict[str, Any]
Tables = defaultdict[str, list[Row]]  # table -> its rows, in the order of the log
TABLES = name_map(  # event -> its table
    "RunStarted=starts, RunCompleted=ends, Evaluated=evaluations, HeldOutPlayed=plays, "
    "RoundCompleted=rounds, PpoUpdated=updates, ActionCounts=actions, MaskHitRates=masks, "
    "RewardSummary=rewards, Throughput=throughput, PhaseProfile=phases, BlueprintScores=scores, "
    "AnomalyDetected=anomalies, EpisodeCompleted=episodes, RolledBack=rollbacks, "
    "AblationsMeasured=ablations"
)
ABLATIONS = ("exact", "host_acc", "shapley")


def fold(events: Iterable[Envelope]) -> Tables:
    """The tables of events."""
    tables: Tables = defaultdict(list)
    for event in events:
        row = {**event.where, "severity": event.severity, **event.data.payload()}
        if isinstance(event.data, AblationsMeasured):
            row = {**event.where, **{name: row[name] for name in ABLATIONS}}
            row["accuracy"] = tuple(env[-1] for env in event.data.acc_table)
        for name in {"round", ROUND_FIELDS.get(event.name, "round")}:
            if row.get(name) is not None:
                row[name] = round_number(row[name])
        tables[TABLES[event.name]].append(row)
    return tables


@with_config(LOOSE)
class RunManifest(TypedDict, total=False):
    """Entries of the manifest of a run that its readers look at."""

    status: str
    versions: dict[str, str]
    score: str
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

    @property
    def score(self) -> str:
        """Name of the score of the task, printable; its percentage is in the columns of
        accuracies.
        """
        return escape_text(self.manifest.get("score", ACCURACY))

    def events(
        self, kinds: Collection[str] | None, rounds: Collection[int] | None = None
    ) -> Iterator[Envelope]:
        """Read the events of these names and rounds (from 0) again; None: all."""
        return iterate_events(event_folder(self.path, self.config), kinds, rounds)

    def last_record(self) -> RoundRecord | None:
        """Read the record of the last round that has one; None without any.  Raises: DataError for
        a damaged file.
        """
        records = list_records(event_folder(self.path, self.config))
        return read_record(records[max(records)]) if records else None


def read_run(path: Path) -> RunLog:
    """Read a run directory.  Raises: ConfigError for another directory, DataError for a damaged
    file.
    """
    config = open_run(path)
    manifest = read_object(path / run_directory.MANIFEST, RunManifest)
    return RunLog(path, config, manifest, fold(iterate_events(event_folder(path, config), TABLES)))
