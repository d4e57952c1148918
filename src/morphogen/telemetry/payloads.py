"""Events about all envs of an epoch: arrays of the record, named.  numpy, no tensors."""

from typing import Any, TypeVar

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.events import EpochEvent, field_names
from morphogen.telemetry.kinds import epoch as kinds
from morphogen.telemetry.round_record import VALID, Record, RunFacts, expand_flag, in_stages
from morphogen.telemetry.round_summary import delivered_params, legal_choices, used_heads
from morphogen.vocab.action import VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage
from morphogen.vocab.text import name_map

NO_VALUE: Any = None  # annotations of numpy refuse None as an array


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E], bool [E]."""
    known = used & (values >= 0) & (values < len(names))
    return [names[value] if good else None for value, good in zip(values.tolist(), known.tolist(), strict=True)]


def valid_column(record: Record, name: str) -> Array:
    """Return a column; NaN (None in an event), or None in place of a flag, where it is not measured; codes by name."""
    column = record[name]
    if name in _ENUMS:
        return _ENUMS[name][column]
    if name not in VALID:
        return column
    return np.where(expand_flag(record[VALID[name]], column), column, NO_VALUE if column.dtype == bool else np.nan)


def _name_table(of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table


_ENUMS = {"stage": _name_table(Stage), "outcome": _name_table(Outcome), "reason": _name_table(Reason)}
_ENUMS["op_effective"] = _name_table(Op)
# Columns of fields with other names.
COLUMNS = name_map("loss=val_loss, streak=panic_streak, interaction=interaction_sum, norm=host_layer_norm")
View = TypeVar("View", bound=EpochEvent)


def view(kind: type[View], record: Record, **more: Any) -> View:
    """The columns of a record that have the names of the fields of an event, and more fields."""
    columns = {name: COLUMNS.get(name, name) for name in field_names(kind) if name not in more}
    return kind.build(**{name: valid_column(record, column) for name, column in columns.items()}, **more)


def epoch_event(record: Record) -> kinds.EpochCompleted:
    """State of every env."""
    occupied, ratio = in_stages(record["stage"], OCCUPIED), delivered_params(record) / record["host_params"]
    contribution = np.where(occupied, valid_column(record, "contribution"), np.nan)
    return view(kinds.EpochCompleted, record, params_ratio=ratio, contribution=contribution)


MAX_OTHERS = 2  # ops that are reported besides the chosen one


def actions_event(record: Record, facts: RunFacts) -> kinds.ActionsTaken:
    """Chosen actions, their outcomes, and the most likely legal ops besides, the likeliest first."""
    action = record["action"]
    used = used_heads(action[:, Head.OP])
    names = {**VALUE_NAMES, Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    free = record["op_legal"] & (np.arange(len(Op)) != record["action"][:, :1])
    likely = np.argsort(np.where(free, -record["op_prob"], np.inf), axis=1, kind="stable")[:, :MAX_OTHERS]
    return view(
        kinds.ActionsTaken,
        record,
        **{head.label: choice_names(action[:, head], names[head], used[:, head]) for head in Head},
        choices=legal_choices(record),
        others=[[Op(op).name for op in row if free[env, op]] for env, row in enumerate(likely)],
    )


def attribution_event(record: Record) -> kinds.AttributionMissing | None:
    """Seeds without a fresh contribution; `not_exact`: fresh, but its interactions were not measured."""
    seed, fresh = in_stages(record["stage"], OCCUPIED), record["contribution_valid"]
    player = in_stages(record["stage_ticked"], BLENDED) & (record["alpha"] > 0)
    reason = np.where(player & ~record["measured"][:, None], "skipped", "no_player").astype(object)
    reason = np.where(fresh & ~record["interaction_valid"], "not_exact", reason)
    missing = seed & ~(fresh & record["interaction_valid"])
    if not missing.any():
        return None
    return kinds.AttributionMissing.build(reason=np.where(missing, reason, NO_VALUE))
