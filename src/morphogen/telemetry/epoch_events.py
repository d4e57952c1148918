"""One epoch of all envs, told as arrays: how they stand, and in detail what was chosen, measured and paid."""

from collections.abc import Iterator

import numpy as np

from morphogen.telemetry.episode_events import delivered_params
from morphogen.telemetry.event_tally import (
    HEAD_USED,
    HEAD_VALUES,
    Array,
    Record,
    choice_names,
    enum_names,
    mask_invalid,
)
from morphogen.telemetry.kinds.epoch import (
    AblationsMeasured,
    ActionsTaken,
    AttributionMissing,
    EpochCompleted,
    RewardsPaid,
    SlotsMeasured,
)
from morphogen.telemetry.record_memory import EpisodeMemory, RunFacts, in_stages
from morphogen.vocab.action import Head, Op, Outcome, Reason
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

MAX_OTHERS = 2  # ops that are told besides the chosen one


def epoch_event(record: Record) -> EpochCompleted:
    """State of every env."""
    trained, seed = record["train_valid"], in_stages(record["stage"], OCCUPIED)
    return EpochCompleted(
        train_loss=mask_invalid(record["train_loss"], trained),
        train_acc=mask_invalid(record["train_acc"], trained),
        val_loss=record["val_loss"],
        val_acc=record["val_acc"],
        committed_acc=record["committed_acc"],
        reward=record["reward"],
        host_gradient_norm=mask_invalid(record["host_gradient_norm"], trained),
        params_ratio=delivered_params(record) / record["host_params"],
        skipped=record["skipped"],
        forwards=record["forwards"],
        op_effective=enum_names(record["op_effective"], Op),
        success=record["success"],
        stage=enum_names(record["stage"], Stage),
        alpha=record["alpha"],
        contribution=mask_invalid(record["contribution"], record["contribution_valid"] & seed),
    )


def ablations_event(record: Record) -> AblationsMeasured:
    """Contribution of every seed."""
    pairs = record["interaction_valid"]
    return AblationsMeasured(
        acc_table=mask_invalid(record["acc_table"], record["exact"][:, None]),
        exact=record["exact"],
        host_acc=mask_invalid(record["host_acc"], record["measured"]),
        shapley=mask_invalid(record["shapley"], record["contribution_valid"]),
        interaction_sum=mask_invalid(record["interaction_sum"], pairs),
        boost_received=mask_invalid(record["boost_received"], pairs),
    )


def debug_events(
    record: Record, memory: EpisodeMemory, facts: RunFacts
) -> Iterator[ActionsTaken | SlotsMeasured | AttributionMissing | RewardsPaid]:
    """Events of an epoch at level debug.  memory: after it."""
    yield actions_event(record, facts.slots)
    yield slots_event(record, memory)
    missing = attribution_event(record)
    if any(any(row) for row in missing.reason):
        yield missing
    yield RewardsPaid(names=facts.components, components=record["components"], totals=memory.components)


def actions_event(record: Record, slots: tuple[str, ...]) -> ActionsTaken:
    """Chosen actions and their outcomes."""
    action = record["action"]
    used = HEAD_USED[np.clip(action[:, Head.OP], 0, len(Op) - 1)]
    names = {**HEAD_VALUES, Head.SLOT: slots}
    return ActionsTaken(
        **{head.label: choice_names(action[:, head], names[head], used[:, head]) for head in Head},
        op_prob=record["op_prob"],
        op_legal=record["op_legal"],
        others=_likely_others(record),
        log_prob=record["log_prob"],
        entropy=record["entropy"],
        value=record["value"],
        outcome=enum_names(record["outcome"], Outcome),
        reason=enum_names(record["reason"], Reason),
        forced=record["forced"],
    )


def _likely_others(record: Record) -> list[list[str]]:
    """The most likely legal ops besides the chosen one, the likeliest first."""
    ops = np.arange(len(Op))
    free = record["op_legal"] & (ops != record["action"][:, :1])
    order = np.argsort(np.where(free, -record["op_prob"], np.inf), axis=1, kind="stable")[:, :MAX_OTHERS]
    return [[Op(op).name for op in row if free[env, op]] for env, row in enumerate(order)]


def slots_event(record: Record, memory: EpisodeMemory) -> SlotsMeasured:
    """Gradients and progress of every seed."""
    graded = record["gradient_valid"]
    return SlotsMeasured(
        gradient_norm=mask_invalid(record["gradient_norm"], graded),
        gradient_health=mask_invalid(record["gradient_health"], graded),
        gradient_ratio=mask_invalid(record["gradient_ratio"], record["gradient_ratio_valid"]),
        vanishing=np.where(graded, record["vanishing"], None),
        exploding=np.where(graded, record["exploding"], None),
        velocity=mask_invalid(record["velocity"], record["velocity_valid"]),
        interaction=mask_invalid(record["interaction_sum"], record["interaction_valid"]),
        age=memory.age,
        epochs_in_stage=memory.epochs_in_stage,
    )


def attribution_event(record: Record) -> AttributionMissing:
    """Seeds without a fresh contribution; `not_exact`: fresh, but its interactions were not measured."""
    seed, fresh = in_stages(record["stage"], OCCUPIED), record["contribution_valid"]
    player = in_stages(record["stage_ticked"], BLENDED) & (record["alpha"] > 0)
    reason = np.where(player & ~record["measured"][:, None], "skipped", "no_player").astype(object)
    reason = np.where(fresh & ~record["interaction_valid"], "not_exact", reason)
    return AttributionMissing(reason=_none_where_not(reason, seed & ~(fresh & record["interaction_valid"])))


def _none_where_not(values: Array, where: Array) -> Array:
    return np.where(where, values, None)
