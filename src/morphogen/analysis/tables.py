"""Analytics: the events of a run folded into tables, in which rounds count from 1.  No tensors.

tables = fold(events)                    # or one by one, by update: the same tables
tables = merge(fold(first), fold(rest))  # wherever the log is split
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

from morphogen.analysis.console import round_number
from morphogen.telemetry.events import Envelope, mean_known
from morphogen.telemetry.jsonl import ROUND_FIELDS
from morphogen.telemetry.kinds.epoch import AblationsMeasured, EpochCompleted, RewardsPaid, SlotsMeasured
from morphogen.vocab.text import name_map

Row = dict[str, Any]
CHUNK_EVENTS = 64  # events that are folded one by one before their tables are merged with others
# Events whose payload is a row as it stands -> its table.
PAYLOAD_TABLES = name_map(
    "RunStarted=starts, RunResumed=resumes, RunCompleted=ends, CheckpointSaved=checkpoints, "
    "CheckpointFailed=checkpoint_faults, Evaluated=evaluations, HeldOutPlayed=plays, TelemetryEscalated=escalations, "
    "SinkFailed=sink_faults, RoundCompleted=rounds, PpoUpdated=updates, "
    "ActionCounts=actions, MaskHitRates=masks, RewardSummary=rewards, Throughput=throughput, PhaseProfile=phases, "
    "BlueprintScores=scores, MemoryUsed=memory, ObservationStats=observations, HiddenHealth=hidden, "
    "TrendDetected=trends, PerformanceDropped=drops, AnomalyDetected=anomalies, EpisodeCompleted=episodes, "
    "RolledBack=rollbacks, AnomalySeen=signs, SnapshotTaken=snapshots"
)


@dataclass(frozen=True, slots=True)
class Tables:
    """Rows in the order of the log, by table."""

    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def __getitem__(self, table: str) -> tuple[Row, ...]:
        return self.rows.get(table, ())


EMPTY_TABLES = Tables()


def fold(events: Iterable[Envelope]) -> Tables:
    """The tables of events."""
    source, parts = iter(events), list[Tables]()
    while chunk := list(islice(source, CHUNK_EVENTS)):
        parts.append(reduce(add_event, chunk, EMPTY_TABLES))
    while len(parts) > 1:  # in pairs, so that no row is copied more often than there are levels
        parts = [reduce(merge, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0] if parts else EMPTY_TABLES


def add_event(tables: Tables, event: Envelope) -> Tables:
    """The tables with one event more."""
    row = _table_row(event)
    return tables if row is None else merge(tables, Tables({row[0]: (row[1],)}))


def merge(first: Tables, rest: Tables) -> Tables:
    """The tables of a log, from those of its first part and those of the rest."""
    return Tables({name: first[name] + rest[name] for name in {**first.rows, **rest.rows}})


def _table_row(event: Envelope) -> tuple[str, Row] | None:
    """Table of an event and the event's row in it; None without a table."""
    if event.name in PAYLOAD_TABLES:
        table, row = PAYLOAD_TABLES[event.name], {"severity": event.severity, **event.data.payload()}
    elif event.name in ROW_REDUCERS:
        table, reduce_data = ROW_REDUCERS[event.name]
        row = reduce_data(event.data)
    else:
        return None
    row = {**event.where, **row}
    rounds = {name: row[name] for name in ("round", ROUND_FIELDS.get(event.name, "round")) if row.get(name) is not None}
    return table, row | {name: round_number(value) for name, value in rounds.items()}


def _epoch_row(data: EpochCompleted) -> Row:
    """An epoch as means over the envs, and the ops that took effect."""
    names = ("train_loss", "val_loss", "val_acc", "committed_acc", "reward", "host_gradient_norm", "params_ratio")
    taken = zip(data.op_effective, data.success, strict=True)
    return {
        **{name: mean_known(getattr(data, name)) for name in names},
        "skipped": sum(data.skipped),
        "forwards": sum(data.forwards),
        "ops": dict(Counter(data.op_effective)),
        "succeeded": dict(Counter(op for op, success in taken if success)),
        "stages": dict(Counter(stage for env in data.stage for stage in env)),
    }


def _ablation_row(data: AblationsMeasured) -> Row:
    """The bare host, the whole network, and the share of every slot in the difference."""
    kept = {name: getattr(data, name) for name in ("exact", "host_acc", "shapley", "interaction_sum")}
    return {**kept, "accuracy": tuple(row[-1] for row in data.acc_table)}


def _gradient_row(data: SlotsMeasured) -> Row:
    """The gradients of an epoch over all slots where they were measured."""
    health, ratio = ([value for env in table for value in env] for table in (data.gradient_health, data.gradient_ratio))
    flags = ([flag for env in table for flag in env] for table in (data.vanishing, data.exploding))
    return {
        "gradient_health": mean_known(health),
        "gradient_health_min": min((value for value in health if value is not None), default=None),
        "gradient_ratio": mean_known(ratio),
        **{name: sum(map(bool, flag)) for name, flag in zip(("vanishing", "exploding"), flags, strict=True)},
    }


def _payment_row(data: RewardsPaid) -> Row:
    """Rewards of an epoch, means over the envs."""
    return {"components": {name: mean_known(row[i] for row in data.components) for i, name in enumerate(data.names)}}


# Events with a number for every env -> their table, and what is kept of them.
ROW_REDUCERS: dict[str, tuple[str, Callable[[Any], Row]]] = {
    "EpochCompleted": ("epochs", _epoch_row),
    "AblationsMeasured": ("ablations", _ablation_row),
    "SlotsMeasured": ("gradients", _gradient_row),
    "RewardsPaid": ("payments", _payment_row),
}
KINDS = frozenset((*PAYLOAD_TABLES, *ROW_REDUCERS))  # events that tables are made of
