"""Names of the codes in a record, and sums over the steps of a round: actions, legal choices, rewards.  numpy only."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.kinds.round import ActionCounts, MaskHitRates, RewardSpread, RewardSummary
from morphogen.vocab.action import HEADS, RELEVANT, VALUES, Head, Op, Outcome, Reason
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

Record = dict[str, Array]  # leaves [E, ...] of one epoch

# Per head but the slot, which is named by the run.
HEAD_VALUES: dict[Head, tuple[str, ...]] = {
    head: tuple(value.label if isinstance(value, Blueprint) else value.name for value in values)
    for head, values in VALUES.items()
}
HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]


def enum_names(codes: Array, of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code; codes are those of an enum.  int [...] -> str [...]."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table[codes]


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E], bool [E]."""
    known = used & (values >= 0) & (values < len(names))
    return [names[value] if good else None for value, good in zip(values.tolist(), known.tolist(), strict=True)]


def mask_invalid(values: Array, valid: Array) -> Array:
    """The valid values, NaN (None in an event) elsewhere.  Shapes broadcast."""
    return np.where(valid, values, np.nan)


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
    values = [np.zeros(size, dtype=np.int64) for size in _head_sizes(slots)]
    paid = np.zeros((5, components + 1))
    paid[3:] = [[np.inf], [-np.inf]]
    return RoundTally(
        steps=0,
        forced=0,
        missed=0,
        sampled=ops,
        effective=ops,
        succeeded=ops,
        outcomes=np.zeros(max(Outcome) + 1, dtype=np.int64),
        reasons=np.zeros(max(Reason) + 1, dtype=np.int64),
        values=tuple(values),
        legal=ops,
        used=heads,
        choices=heads,
        single=heads,
        paid=paid,
    )


def add_epoch(tally: RoundTally, record: Record) -> RoundTally:
    """The tally with one more epoch of all envs."""
    action, count = record["action"], record["legal_choices"]
    op = action[:, Head.OP]
    used = HEAD_USED[np.clip(op, 0, len(Op) - 1)]
    values = zip(tally.values, action.T, used.T, strict=True)
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
        paid=_add_rewards(tally.paid, record),
    )


def _head_sizes(slots: int) -> list[int]:
    return [slots if head is Head.SLOT else len(HEAD_VALUES[head]) for head in Head]


def _count_codes(codes: Array, like: Array) -> Array:
    """Count each code; codes outside of the table are ignored."""
    return np.bincount(codes[(codes >= 0) & (codes < len(like))], minlength=len(like))


def _add_rewards(before: Array, record: Record) -> Array:
    amounts = np.column_stack((record["components"], record["reward"])).astype(np.float64)
    known = np.isfinite(amounts)
    real = np.where(known, amounts, 0.0)
    sums = np.add(before[:3], (known.sum(axis=0), real.sum(axis=0), (real**2).sum(axis=0)))
    least = np.minimum(before[3], np.where(known, amounts, np.inf).min(axis=0))
    most = np.maximum(before[4], np.where(known, amounts, -np.inf).max(axis=0))
    return np.vstack((sums, least, most))


def action_counts(tally: RoundTally, slots: tuple[str, ...]) -> ActionCounts:
    """Actions of the round."""
    names = [slots if head is Head.SLOT else HEAD_VALUES[head] for head in Head]
    heads = zip(HEADS, names, tally.values, strict=True)
    return ActionCounts(
        sampled=_counts_by_name(tally.sampled, Op),
        effective=_counts_by_name(tally.effective, Op),
        succeeded=_counts_by_name(tally.succeeded, Op),
        heads={head: dict(zip(known, counts, strict=True)) for head, known, counts in heads},
        outcomes=_counts_by_name(tally.outcomes, Outcome),
        reasons={
            name: count for name, count in _counts_by_name(tally.reasons, Reason).items() if name != Reason.NONE.name
        },
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
