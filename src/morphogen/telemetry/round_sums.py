"""Sums over a round: ends of its episodes, and its actions, masks and rewards.  No tensors.

Sums run over the epochs in order, as sums kept epoch by epoch would.
"""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.kinds.round import ActionCounts, MaskHitRates, RewardSpread, RewardSummary
from morphogen.telemetry.round_record import HEAD_USED, Columns, Record, RunFacts, SlotHistory, in_stages, stage_entries
from morphogen.vocab.action import HEADS, VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

STABILITY_EPOCHS = 20  # differences of accuracy that stability looks at
CONTRIBUTING_POINTS = 1.0  # points of contribution from which a fossil counts as contributing


def _total(values: Array) -> Array:
    """Sum over the epochs in their order, float64."""
    return np.cumsum(values, axis=0, dtype=np.float64)[-1]


def delivered_params(record: Record) -> Array:
    """Parameters of the host with the seeds that are blended in, int64 [..., E]."""
    blended = in_stages(record["stage"], BLENDED)
    return record["host_params"] + np.where(blended, record["params"], 0).sum(axis=-1)


def stability(accuracies: Array) -> float:
    """`1 / (1 + variance)` of the differences between accuracies in order; NaN = no epoch; 1 below two of them."""
    steps = np.diff(accuracies[~np.isnan(accuracies)])
    return float(1.0 / (1.0 + steps.var())) if steps.size > 1 else 1.0


def episode_ends(columns: Columns, history: SlotHistory, facts: RunFacts) -> dict[str, Array]:
    """Results of the episodes, arrays [E, ...]; sums are float64.

    After a rollback in the last epoch, accuracies and rewards are those of the restored state.
    """
    last = {name: column[-1] for name, column in columns.items()}
    fossil, reward = last["stage"] == Stage.FOSSILIZED, columns["reward"].astype(np.float64)
    worth = history.contribution_valid[-1] & (history.contribution[-1] >= CONTRIBUTING_POINTS)
    recent = columns["val_acc"][-STABILITY_EPOCHS - 1 :].astype(np.float64)
    action = columns["action"]
    addressed = used_heads(action[..., Head.OP])[..., Head.SLOT, None]
    addressed = addressed & (action[..., Head.SLOT, None] == np.arange(len(facts.slots)))
    discounts = np.array([facts.gamma**epoch for epoch in range(len(reward))])
    sums = {
        "germinated": stage_entries(columns, Stage.GERMINATED),
        "fossilized": stage_entries(columns, Stage.FOSSILIZED),
        "pruned": stage_entries(columns, Stage.PRUNED),
        "rollbacks": columns["rolled_back"][..., None],
        "unmeasured_steps": columns["unmeasured"][..., None],
    }
    return {
        "accuracy": last["final_acc"],
        "committed_accuracy": last["final_committed"],
        "initial_accuracy": columns["acc_before"][0],
        "best_accuracy": last["best_acc"],
        "loss": last["final_loss"],
        "success": last["final_committed"] >= facts.success_accuracy,
        "stability": np.array([stability(row) for row in recent.T]),
        "reward": _total(reward),
        "discounted_return": _total(discounts[:, None] * reward),
        "network_value": last["network_value"],
        "components": _total(columns["components"]),
        "slot_rewards": _total(np.where(addressed, reward[..., None], 0)),
        "detectors": columns["detectors"].sum(axis=(0, 2), dtype=np.int32),
        "params": delivered_params(last).astype(np.int32),
        "params_ratio": delivered_params(last) / last["host_params"],
        "contributing": (fossil & worth).sum(axis=1, dtype=np.int32),
        "live": (in_stages(last["stage"], OCCUPIED) & ~fossil).sum(axis=1, dtype=np.int32),
        **{name: hits.sum(axis=(0, 2), dtype=np.int32) for name, hits in sums.items()},
        "ops": (columns["op_effective"][..., None] == np.arange(len(Op))).sum(axis=0, dtype=np.int32),
        "instance": last["instance"],
    }


def _count_codes(codes: Array, size: int) -> Array:
    """Count each code below `size`; other codes are ignored."""
    return np.bincount(codes[(codes >= 0) & (codes < size)], minlength=size)


def _count_names(codes: Array, kind: type[IntEnum]) -> dict[str, int]:
    counts = _count_codes(codes, max(kind) + 1)
    return {code.name: counts[code] for code in kind}


def action_counts(columns: Columns, facts: RunFacts) -> ActionCounts:
    """Actions of the round."""
    action, op = columns["action"], columns["action"][..., Head.OP]
    used = used_heads(op)
    own = {Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    names = [own[head] if head in own else VALUE_NAMES[head] for head in Head]
    values = [_count_codes(action[..., head][used[..., head]], len(names[head])) for head in Head]
    reasons = _count_names(columns["reason"], Reason)
    return ActionCounts(
        sampled=_count_names(op, Op),
        effective=_count_names(columns["op_effective"], Op),
        succeeded=_count_names(op[columns["success"]], Op),
        heads={HEADS[head]: dict(zip(names[head], values[head], strict=True)) for head in Head},
        outcomes=_count_names(columns["outcome"], Outcome),
        reasons={name: count for name, count in reasons.items() if name != Reason.NONE.name},
        forced=columns["forced"].sum(),
        missed=columns["missed"].sum(),
    )


def used_heads(op: Array) -> Array:
    """Return which heads an op uses: int [...] -> bool [..., 8]."""
    return HEAD_USED[np.clip(op, 0, len(Op) - 1)]


def legal_choices(columns: Columns) -> Array:
    """Number of legal values of each head once the op is chosen; 0 for heads that the op does not use: int [..., 8]."""
    op = columns["action"][..., Head.OP]
    own = np.clip(op, 0, len(Op) - 1)[..., None, None]
    masks = {head: columns[f"{head.label}_legal"] for head in Head}
    masks[Head.SLOT] = np.take_along_axis(masks[Head.SLOT], own, axis=-2)[..., 0, :]
    return np.where(used_heads(op), np.stack([masks[head].sum(axis=-1) for head in Head], axis=-1), 0)


def mask_hit_rates(columns: Columns) -> MaskHitRates:
    """Legal choices; None for a head that no op of the round uses."""
    counts, legal = legal_choices(columns), columns["op_legal"]
    used = used_heads(columns["action"][..., Head.OP]).sum(axis=(0, 1))
    choices, single = counts.sum(axis=(0, 1)), (counts == 1).sum(axis=(0, 1))
    shares = legal.mean(axis=(0, 1))
    return MaskHitRates(
        legal_share={op.name: shares[op] for op in Op},
        choices_mean={head: _share(choices[i], used[i]) for i, head in enumerate(HEADS)},
        single_share={head: _share(single[i], used[i]) for i, head in enumerate(HEADS)},
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def reward_summary(columns: Columns, facts: RunFacts) -> RewardSummary:
    """Rewards of the round."""
    *parts, total = _reward_spreads(columns, facts.envs)
    return RewardSummary(components=dict(zip(facts.components, parts, strict=True)), total=total)


def _reward_spreads(columns: Columns, episodes: int) -> Iterator[RewardSpread]:
    """Spread of each component, then of the reward; values that are not finite do not count."""
    amounts = np.concatenate((columns["components"], columns["reward"][..., None]), axis=-1).astype(np.float64)
    known = np.isfinite(amounts)
    real = np.where(known, amounts, 0.0)
    numbers, totals, squares = (_total(part.sum(axis=1)) for part in (known, real, real**2))
    least = np.where(known, amounts, np.inf).min(axis=(0, 1))
    most = np.where(known, amounts, -np.inf).max(axis=(0, 1))
    for number, total, square, low, high in np.stack((numbers, totals, squares, least, most), axis=1).tolist():
        if not number:
            yield RewardSpread(mean=None, std=None, min=None, max=None, sum=None)
            continue
        mean = total / number
        std = max(0.0, square / number - mean**2) ** 0.5
        yield RewardSpread(mean=mean, std=std, min=low, max=high, sum=total / episodes)
