"""The monitor that sums up the steps of every round."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from morphogen.extras.statistics import statistic_kinds as kinds
from morphogen.log.codec import Array
from morphogen.log.events import Envelope, Json, RoundEvent, tidy
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.log.round_record import Columns, RunFacts
from morphogen.log.round_summary import legal_choices, used_heads
from morphogen.vocab.action import HEADS, VALUE_NAMES, Head, Op, Outcome, Reason

Metrics = Mapping[str, Any]  # flat names, and flags `<name>_valid` where a metric may be missing


class RoundStatistics:
    """Actions, masks, rewards, observations and memory of the rounds of a run."""

    KINDS = (
        kinds.ActionCounts,
        kinds.MaskHitRates,
        kinds.RewardSummary,
        kinds.ObservationStats,
        kinds.HiddenHealth,
    )

    def __init__(self, plan: RunPlan) -> None:
        self._facts = plan.facts
        # mean and std of the features that the policy normalises, after the first round
        self.state: Json = {}

    def end_round(self, finished: FinishedRound) -> list[Envelope]:
        """Return the statistics."""
        columns = finished.record.columns
        metrics = finished.metrics
        events: list[RoundEvent] = [
            action_counts(columns, self._facts),
            mask_hit_rates(columns),
            reward_summary(columns, self._facts),
            kinds.ObservationStats(
                **_event_fields("observation", metrics, kinds.ObservationStats),
                drift=self._drift(metrics),
            ),
        ]
        if "hidden.h_rms" in metrics:
            fields = _event_fields("hidden", metrics, kinds.HiddenHealth)
            events.append(kinds.HiddenHealth(**fields))
        return [Envelope(event, round=finished.record.round) for event in events]

    def _drift(self, metrics: Metrics) -> float | None:
        """Distance of the means of the normaliser from the means after the first round, plus of the
        deviations; None for a policy without one.
        """
        if "normaliser.mean" not in metrics:
            return None
        now = {name: metrics[f"normaliser.{name}"] for name in ("mean", "std")}
        if not self.state:
            self.state = {name: array.tolist() for name, array in now.items()}
        first = {name: np.asarray(self.state[name], now[name].dtype) for name in now}
        return float(sum(np.abs(now[name] - first[name]).mean() for name in now))


def _event_fields(group: str, metrics: Metrics, kind: type[RoundEvent]) -> dict[str, Any]:
    """The metrics of a group under the names of an event; None where one is missing or not
    valid.
    """
    keys = {name: f"{group}.{name}" for name in kind.__annotations__ if name != "drift"}
    valid = {key for key in keys.values() if key in metrics and metrics.get(f"{key}_valid", True)}
    return {name: tidy(metrics[key]) if key in valid else None for name, key in keys.items()}


def _count_codes(codes: Array, size: int) -> Array:
    """Count each code below `size`; other codes are ignored."""
    return np.bincount(codes[(codes >= 0) & (codes < size)], minlength=size)


def _count_names(codes: Array, kind: type[IntEnum]) -> dict[str, int]:
    counts = _count_codes(codes, max(kind) + 1)
    return {code.name: counts[code] for code in kind}


def action_counts(columns: Columns, facts: RunFacts) -> kinds.ActionCounts:
    """Actions of the round."""
    action = columns["action"]
    op = action[..., Head.OP]
    used = used_heads(op)
    names = {**VALUE_NAMES, Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    values = [_count_codes(action[..., head][used[..., head]], len(names[head])) for head in Head]
    reasons = _count_names(columns["reason"], Reason)
    return kinds.ActionCounts(
        sampled=_count_names(op, Op),
        effective=_count_names(columns["op_effective"], Op),
        succeeded=_count_names(op[columns["success"]], Op),
        heads={HEADS[head]: dict(zip(names[head], values[head], strict=True)) for head in Head},
        outcomes=_count_names(columns["outcome"], Outcome),
        reasons={name: count for name, count in reasons.items() if name != Reason.NONE.name},
        forced=columns["forced"].sum(),
        missed=columns["missed"].sum(),
    )


def mask_hit_rates(columns: Columns) -> kinds.MaskHitRates:
    """Legal choices; None for a head that no op of the round uses."""
    counts = legal_choices(columns)
    legal = columns["op_legal"]
    used = used_heads(columns["action"][..., Head.OP]).sum(axis=(0, 1))
    steps = np.where(used > 0, used, np.nan)
    shares = legal.mean(axis=(0, 1))
    return kinds.MaskHitRates(
        legal_share={op.name: shares[op] for op in Op},
        choices_mean=dict(zip(HEADS, counts.sum(axis=(0, 1)) / steps, strict=True)),
        single_share=dict(zip(HEADS, (counts == 1).sum(axis=(0, 1)) / steps, strict=True)),
    )


def reward_summary(columns: Columns, facts: RunFacts) -> kinds.RewardSummary:
    """Rewards of the round by component; values that are not finite do not count."""
    amounts = np.concatenate((columns["components"], columns["reward"][..., None]), axis=-1)
    known = np.ma.masked_invalid(amounts.astype(np.float64))
    *parts, total = (
        kinds.RewardSpread(
            mean=part.mean(),
            std=part.std(),
            min=part.min(),
            max=part.max(),
            sum=part.sum() / facts.envs,
        )
        for part in np.moveaxis(known, -1, 0)
    )
    return kinds.RewardSummary(
        components=dict(zip(facts.components, parts, strict=True)), total=total
    )
