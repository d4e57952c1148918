"""Events about all envs of an epoch: arrays of the record, named.  numpy, no tensors."""

from typing import Any

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.kinds import epoch as kinds
from morphogen.telemetry.round_record import Record, RunFacts, SlotHistory, in_stages
from morphogen.telemetry.round_sums import delivered_params, legal_choices, used_heads
from morphogen.vocab.action import HEADS, VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

NO_VALUE: Any = None  # annotations of numpy refuse None as an array


def enum_names(codes: Array, of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code; codes are those of an enum.  int [...] -> str [...]."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table[codes]


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E], bool [E]."""
    known = used & (values >= 0) & (values < len(names))
    return [names[value] if good else None for value, good in zip(values.tolist(), known.tolist(), strict=True)]


def select_columns(record: Record, *names: str, valid: Array | None = None) -> Record:
    """Leaves of a record by name; NaN (None in an event) where they are not valid.  Shapes broadcast."""
    return {name: record[name] if valid is None else np.where(valid, record[name], np.nan) for name in names}


MAX_OTHERS = 2  # ops that are reported besides the chosen one


def epoch_event(record: Record) -> kinds.EpochCompleted:
    """State of every env."""
    measured = record["contribution_valid"] & in_stages(record["stage"], OCCUPIED)
    return kinds.EpochCompleted.build(
        **select_columns(
            record, "val_loss", "val_acc", "committed_acc", "reward", "skipped", "forwards", "success", "alpha"
        ),
        **select_columns(record, "train_loss", "train_acc", "host_gradient_norm", valid=record["train_valid"]),
        **select_columns(record, "contribution", valid=measured),
        params_ratio=delivered_params(record) / record["host_params"],
        op_effective=enum_names(record["op_effective"], Op),
        stage=enum_names(record["stage"], Stage),
    )


def ablations_event(record: Record) -> kinds.AblationsMeasured:
    """Contribution of every seed."""
    return kinds.AblationsMeasured.build(
        exact=record["exact"],
        **select_columns(record, "acc_table", valid=record["exact"][:, None]),
        **select_columns(record, "host_acc", valid=record["measured"]),
        **select_columns(record, "shapley", valid=record["contribution_valid"]),
        **select_columns(record, "interaction_sum", "boost_received", valid=record["interaction_valid"]),
    )


def actions_event(record: Record, facts: RunFacts) -> kinds.ActionsTaken:
    """Chosen actions, their outcomes, and the most likely legal ops besides, the likeliest first."""
    action = record["action"]
    used = used_heads(action[:, Head.OP])
    names = {**VALUE_NAMES, Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    free = record["op_legal"] & (np.arange(len(Op)) != record["action"][:, :1])
    likely = np.argsort(np.where(free, -record["op_prob"], np.inf), axis=1, kind="stable")[:, :MAX_OTHERS]
    return kinds.ActionsTaken.build(
        **{head.label: choice_names(action[:, head], names[head], used[:, head]) for head in Head},
        **select_columns(record, "op_prob", "log_prob", "entropy", "value", "forced", "reward"),
        **select_columns(record, *(f"{head}_legal" for head in HEADS)),
        choices=legal_choices(record),
        others=[[Op(op).name for op in row if free[env, op]] for env, row in enumerate(likely)],
        outcome=enum_names(record["outcome"], Outcome),
        reason=enum_names(record["reason"], Reason),
    )


def layers_event(record: Record, facts: RunFacts) -> kinds.HostGradients | None:
    """Gradient norms of the parameter tensors of hosts, if they were measured."""
    norm = np.where(record["train_valid"][:, None], record["host_layer_norm"], np.nan)
    return kinds.HostGradients.build(names=facts.layers, norm=norm) if norm.size else None


def slots_event(record: Record, memory: SlotHistory) -> kinds.SlotsMeasured:
    """Gradients and progress of every seed."""
    graded = record["gradient_valid"]
    return kinds.SlotsMeasured.build(
        **select_columns(record, "gradient_norm", "gradient_health", valid=graded),
        **select_columns(record, "gradient_ratio", valid=record["gradient_ratio_valid"]),
        **select_columns(record, "velocity", valid=record["velocity_valid"]),
        vanishing=np.where(graded, record["vanishing"], NO_VALUE),
        exploding=np.where(graded, record["exploding"], NO_VALUE),
        interaction=np.where(record["interaction_valid"], record["interaction_sum"], np.nan),
        age=memory.age,
        epochs_in_stage=memory.epochs_in_stage,
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


def rewards_event(record: Record, totals: Array | None, facts: RunFacts) -> kinds.RewardsPaid:
    """Rewards of every env by component, and the share of every slot in the potential.  totals: [E, C], so far."""
    paid = select_columns(record, "reward", "components", "potential_by_slot")
    return kinds.RewardsPaid.build(names=facts.components, totals=totals, **paid)
