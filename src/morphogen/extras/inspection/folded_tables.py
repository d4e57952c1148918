"""The events of a run folded into tables, in which rounds count from 1.  No tensors."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from morphogen.log.console import round_number
from morphogen.log.events import Envelope
from morphogen.log.jsonl import ROUND_FIELDS
from morphogen.log.kinds.epoch import AblationsMeasured
from morphogen.vocab.text import name_map

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


KINDS = frozenset(TABLES)  # events that tables are made of
