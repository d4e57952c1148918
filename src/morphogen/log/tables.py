"""The events of a run folded into tables, in which rounds count from 1.  No tensors."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from morphogen.log.console import round_number
from morphogen.log.events import Envelope
from morphogen.log.jsonl import ROUND_FIELDS
from morphogen.log.kinds.epoch import AblationsMeasured, EpochCompleted
from morphogen.vocab.text import name_map

Row = dict[str, Any]
Tables = defaultdict[str, list[Row]]  # table -> its rows, in the order of the log
# Events whose payload is a row as it stands -> its table.
PAYLOAD_TABLES = name_map(
    "RunStarted=starts, RunCompleted=ends, Evaluated=evaluations, HeldOutPlayed=plays, "
    "RoundCompleted=rounds, PpoUpdated=updates, ActionCounts=actions, MaskHitRates=masks, "
    "RewardSummary=rewards, Throughput=throughput, PhaseProfile=phases, BlueprintScores=scores, "
    "AnomalyDetected=anomalies, EpisodeCompleted=episodes, RolledBack=rollbacks"
)


def fold(events: Iterable[Envelope]) -> Tables:
    """The tables of events."""
    tables: Tables = defaultdict(list)
    for event in events:
        table, row = _table_row(event)
        rounds = (
            name
            for name in ("round", ROUND_FIELDS.get(event.name, "round"))
            if row.get(name) is not None
        )
        tables[table].append(row | {name: round_number(row[name]) for name in rounds})
    return tables


def _table_row(event: Envelope) -> tuple[str, Row]:
    """Table of an event, one of KINDS, and the event's row in it."""
    if event.name in PAYLOAD_TABLES:
        return PAYLOAD_TABLES[event.name], {
            **event.where,
            "severity": event.severity,
            **event.data.payload(),
        }
    table, reduce_data = ROW_REDUCERS[event.name]
    return table, {**event.where, **reduce_data(event.data)}


def _epoch_row(data: EpochCompleted) -> Row:
    """Ops that took effect in an epoch, in all envs."""
    taken = zip(data.op_effective, data.success, strict=True)
    return {
        "ops": dict(Counter(data.op_effective)),
        "succeeded": dict(Counter(op for op, success in taken if success)),
    }


def _ablation_row(data: AblationsMeasured) -> Row:
    """The bare host, the whole network, and the share of every slot in the difference."""
    kept = {name: getattr(data, name) for name in ("exact", "host_acc", "shapley")}
    return {**kept, "accuracy": tuple(row[-1] for row in data.acc_table)}


# Events with a number for every env -> their table, and what is kept of them.
ROW_REDUCERS: dict[str, tuple[str, Callable[[Any], Row]]] = {
    "EpochCompleted": ("epochs", _epoch_row),
    "AblationsMeasured": ("ablations", _ablation_row),
}
KINDS = frozenset((*PAYLOAD_TABLES, *ROW_REDUCERS))  # events that tables are made of
