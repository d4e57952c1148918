"""Memory of telemetry in an episode: numbers per env and slot, and sums over the steps of a round.  No tensors."""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.kinds.round import ActionCounts, MaskHitRates, RewardSpread, RewardSummary
from morphogen.vocab.action import HEADS, RELEVANT, VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.blueprint import CNN_KINDS, code_labels
from morphogen.vocab.stage import OCCUPIED, Stage

Record = dict[str, Array]  # leaves [E, ...] of one epoch

HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]


@dataclass(frozen=True, slots=True)
class RoundTally:
    """Sums over the steps of all envs so far in a round."""

    steps: int
    forced: int
    missed: int
    sampled: Array  # int [OPS]
    effective: Array
    succeeded: Array
    outcomes: Array  # int, per `Outcome`
    reasons: Array  # int, per `Reason`
    values: tuple[Array, ...]  # per head, int per value, where the op uses the head
    legal: Array  # int [OPS]
    used: Array  # int [8], steps whose op uses the head
    choices: Array  # int [8], legal values in those steps
    single: Array  # int [8], those steps with one legal value
    paid: Array  # float [5, C + 1]: number, sum, sum of squares, least, most; of each component, then of the reward


def empty_tally(slots: int, components: int) -> RoundTally:
    """A round before its first step."""
    ops, heads = np.zeros(len(Op), dtype=np.int64), np.zeros(len(Head), dtype=np.int64)
    sizes = [slots if head is Head.SLOT else len(VALUE_NAMES[head]) for head in Head]
    paid = np.zeros((5, components + 1))
    paid[3:] = [[np.inf], [-np.inf]]
    return RoundTally(
        **dict.fromkeys(("sampled", "effective", "succeeded", "legal"), ops),
        **dict.fromkeys(("used", "choices", "single"), heads),
        steps=0,
        forced=0,
        missed=0,
        outcomes=np.zeros(max(Outcome) + 1, dtype=np.int64),
        reasons=np.zeros(max(Reason) + 1, dtype=np.int64),
        values=tuple(np.zeros(size, dtype=np.int64) for size in sizes),
        paid=paid,
    )


def add_epoch(tally: RoundTally, record: Record) -> RoundTally:
    """The tally with one more epoch of all envs."""
    action, count = record["action"], record["legal_choices"]
    op = action[:, Head.OP]
    used = HEAD_USED[np.clip(op, 0, len(Op) - 1)]
    values = zip(tally.values, action.T, used.T, strict=True)
    amounts = np.column_stack((record["components"], record["reward"])).astype(np.float64)
    known = np.isfinite(amounts)
    real = np.where(known, amounts, 0.0)
    sums = np.add(tally.paid[:3], (known.sum(axis=0), real.sum(axis=0), (real**2).sum(axis=0)))
    least = np.minimum(tally.paid[3], np.where(known, amounts, np.inf).min(axis=0))
    most = np.maximum(tally.paid[4], np.where(known, amounts, -np.inf).max(axis=0))
    return replace(
        tally,
        steps=tally.steps + len(op),
        forced=tally.forced + int(record["forced"].sum()),
        missed=tally.missed + int(record["missed"].sum()),
        sampled=tally.sampled + _count_codes(op, tally.sampled),
        effective=tally.effective + _count_codes(record["op_effective"], tally.effective),
        succeeded=tally.succeeded + _count_codes(op[record["success"]], tally.succeeded),
        outcomes=tally.outcomes + _count_codes(record["outcome"], tally.outcomes),
        reasons=tally.reasons + _count_codes(record["reason"], tally.reasons),
        values=tuple(before + _count_codes(column[where], before) for before, column, where in values),
        legal=tally.legal + record["op_legal"].sum(axis=0),
        used=tally.used + used.sum(axis=0),
        choices=tally.choices + count.sum(axis=0),
        single=tally.single + (count == 1).sum(axis=0),
        paid=np.vstack((sums, least, most)),
    )


def _count_codes(codes: Array, like: Array) -> Array:
    """Count each code; codes outside of the table are ignored."""
    return np.bincount(codes[(codes >= 0) & (codes < len(like))], minlength=len(like))


def action_counts(tally: RoundTally, facts: "RunFacts") -> ActionCounts:
    """Actions of the round."""
    own = {Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    names = [own[head] if head in own else VALUE_NAMES[head] for head in Head]
    heads = zip(HEADS, names, tally.values, strict=True)
    return ActionCounts(
        sampled=_counts_by_name(tally.sampled, Op),
        effective=_counts_by_name(tally.effective, Op),
        succeeded=_counts_by_name(tally.succeeded, Op),
        heads={head: dict(zip(known, counts, strict=True)) for head, known, counts in heads},
        outcomes=_counts_by_name(tally.outcomes, Outcome),
        reasons={reason.name: tally.reasons[reason] for reason in Reason if reason is not Reason.NONE},
        forced=tally.forced,
        missed=tally.missed,
    )


def mask_hit_rates(tally: RoundTally) -> MaskHitRates:
    """Legal choices; None for a head that no op of the round uses."""
    heads = list(zip(HEADS, tally.used, tally.choices, tally.single, strict=True))
    return MaskHitRates(
        legal_share={op.name: _share(tally.legal[op], tally.steps) for op in Op},
        choices_mean={head: _share(choices, used) for head, used, choices, _ in heads},
        single_share={head: _share(single, used) for head, used, _, single in heads},
    )


def reward_summary(tally: RoundTally, components: tuple[str, ...], episodes: int) -> RewardSummary:
    """Rewards; `episodes` of the round."""
    *parts, total = (_reward_spread(column, episodes) for column in tally.paid.T)
    return RewardSummary(components=dict(zip(components, parts, strict=True)), total=total)


def _reward_spread(column: Array, episodes: int) -> RewardSpread:
    number, total, squares, least, most = column.tolist()
    if not number:
        return RewardSpread(mean=None, std=None, min=None, max=None, sum=None)
    mean = total / number
    std = max(0.0, squares / number - mean**2) ** 0.5
    return RewardSpread(mean=mean, std=std, min=least, max=most, sum=total / episodes)


def _counts_by_name(counts: Array, codes: type[IntEnum]) -> dict[str, int]:
    return {code.name: counts[code] for code in codes}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


STABILITY_EPOCHS = 20  # differences of accuracy that stability looks at


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Constants of a run that events need."""

    task: str
    slots: tuple[str, ...]
    components: tuple[str, ...]  # of the reward, in recorded order
    epochs: int  # per episode
    success_accuracy: float  # percent
    gamma: float
    envs: int  # of the whole run
    samples: int  # that a host is trained on, per epoch
    blueprints: tuple[str, ...] = code_labels(CNN_KINDS)  # name of every code
    first: int = 0  # global index of the first env in a record
    host: dict[str, Any] = field(default_factory=dict)  # numbers of the host, for the manifest of a topology
    macs: dict[str, Any] = field(default_factory=dict)  # of `RunStarted`


@dataclass(frozen=True, slots=True)
class EpisodeMemory:
    """Arrays [E], [E, S] or [E, n]; accuracies in percent."""

    # of each slot, as of the end of the last epoch
    alpha: Array
    age: Array
    epochs_in_stage: Array
    params: Array
    contribution: Array  # last measured
    shapley: Array
    contribution_valid: Array
    germination_accuracy: Array  # before the seed was there
    # of each env, over the episode
    initial_accuracy: Array
    recent: Array  # [E, 21] accuracies, newest last, NaN where there was no epoch yet
    reward: Array
    discounted: Array
    components: Array  # [E, C]
    detectors: Array  # [E, 2] hits
    unmeasured: Array  # epochs
    germinated: Array
    fossilized: Array
    pruned: Array
    rollbacks: Array
    ops: Array  # [E, 6] effective ops
    stabilized: Array  # bool
    tally: RoundTally  # of all envs


def initial_memory(record: Record, facts: RunFacts) -> EpisodeMemory:
    """The memory before the first epoch of an episode, whose record this is."""
    envs, slots = record["stage"].shape
    counts = ("unmeasured", "germinated", "fossilized", "pruned", "rollbacks")
    return EpisodeMemory(
        **dict.fromkeys(("alpha", "contribution", "shapley", "germination_accuracy"), np.zeros((envs, slots))),
        **dict.fromkeys(("age", "epochs_in_stage", "params"), np.zeros((envs, slots), dtype=np.int64)),
        **dict.fromkeys(("reward", "discounted"), np.zeros(envs)),
        **dict.fromkeys(counts, np.zeros(envs, dtype=np.int64)),
        contribution_valid=np.zeros((envs, slots), dtype=bool),
        initial_accuracy=record["acc_before"],
        recent=np.full((envs, STABILITY_EPOCHS + 1), np.nan),
        components=np.zeros((envs, len(facts.components))),
        detectors=np.zeros((envs, 2), dtype=np.int64),
        ops=np.zeros((envs, len(Op)), dtype=np.int64),
        stabilized=np.zeros(envs, dtype=bool),
        tally=empty_tally(slots, len(facts.components)),
    )


def update_memory(
    record: Record, memory: EpisodeMemory | None, position: tuple[int, int], facts: RunFacts
) -> tuple[EpisodeMemory, EpisodeMemory]:
    """The memory with which the epoch at (round, epoch) is reported, its germinations noted, and the memory after it.

    At epoch 0 of a round the memory is new; before, it may be None.
    """
    round, epoch = position
    if epoch == 0:
        memory = initial_memory(record, facts)
    if memory is None:
        raise ValueError(f"epoch {epoch + 1} of round {round + 1} has no memory: expected the result of epoch {epoch}")
    germinated = stage_entries(record, Stage.GERMINATED)
    accuracy = np.where(germinated, record["acc_before"][:, None], memory.germination_accuracy)
    memory = replace(memory, germination_accuracy=accuracy)
    reward = record["reward"].astype(np.float64)
    return memory, replace(
        _slot_memory(memory, record),
        recent=np.concatenate((memory.recent[:, 1:], record["val_acc"][:, None]), axis=1),
        reward=memory.reward + reward,
        discounted=memory.discounted + facts.gamma**epoch * reward,
        components=memory.components + record["components"],
        detectors=memory.detectors + record["detectors"].sum(axis=1),
        unmeasured=memory.unmeasured + record["unmeasured"],
        germinated=memory.germinated + germinated.sum(axis=1),
        fossilized=memory.fossilized + stage_entries(record, Stage.FOSSILIZED).sum(axis=1),
        pruned=memory.pruned + stage_entries(record, Stage.PRUNED).sum(axis=1),
        rollbacks=memory.rollbacks + record["rolled_back"],
        ops=memory.ops + (record["op_effective"][:, None] == np.arange(len(Op))),
        stabilized=memory.stabilized | record["stabilized"],
        tally=add_epoch(memory.tally, record),
    )


def _slot_memory(memory: EpisodeMemory, record: Record) -> EpisodeMemory:
    """Counters as they stand after the epoch was closed; a seed that is gone has no contribution."""
    stage, occupied = record["stage"], in_stages(record["stage"], OCCUPIED)
    filled = stage != Stage.DORMANT
    stayed = np.where(stage == record["stage_ticked"], record["epochs_in_stage"], 0)
    fresh = record["contribution_valid"] & occupied
    return replace(
        memory,
        alpha=record["alpha"],
        age=np.where(occupied, record["age"] + 1, np.where(filled, record["age"], 0)),
        epochs_in_stage=np.where(filled, stayed + 1, 0),
        params=np.where(occupied, record["params"], 0),
        contribution=np.where(fresh, record["contribution"], np.where(occupied, memory.contribution, 0.0)),
        shapley=np.where(fresh, record["shapley"], np.where(occupied, memory.shapley, 0.0)),
        contribution_valid=(fresh | memory.contribution_valid) & occupied,
    )


STAGE_POINTS = ("stage_before", "stage_acted", "stage_ticked", "stage")  # the four points of an epoch


def stage_entries(record: Record, stage: Stage) -> Array:
    """Return whether a slot entered a stage in the epoch: bool [E, S]."""
    code = int(stage)  # which numpy compares faster than a member of an enum
    came = [(record[b] != code) & (record[a] == code) for b, a in pairwise(STAGE_POINTS)]
    return came[0] | came[1] | came[2]


def in_stages(stage: Array, stages: tuple[Stage, ...]) -> Array:
    """Return whether the stage is one of `stages`, a range of codes: bool [E, S]."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))
