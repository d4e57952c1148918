"""The alarms of a run: judges the numbers of its rounds, its memory, and its accuracy."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from morphogen.config.fields import to_settings
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.extras.alarms.alarm_table import Numbers, judge, update_numbers
from morphogen.extras.alarms.return_gap import return_gap
from morphogen.log.events import Envelope, Json, RoundEvent
from morphogen.log.kinds.round import AnomalyDetected, PerformanceDropped, Trend, TrendDetected
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.log.round_record import Columns
from morphogen.vocab.action import HEADS, Head, Op
from morphogen.vocab.stage import Fault

DRIFT_MOMENTUM = 0.99
DRIFT_EPSILON = 1e-8
# standard errors within which a drop of the accuracy is chance: a run has many rounds
DROP_ERRORS = 4.0


def valid_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the `update` fence that are valid, by name, finite or not."""
    return {
        name: float(metric)
        for name, metric in metrics.items()
        if not name.endswith("_valid")
        and getattr(metric, "ndim", 0) == 0
        and bool(metrics.get(f"{name}_valid", True))
    }


def count_numbers(columns: Columns, update: Numbers, gamma: float) -> dict[str, float]:
    """Numbers of a round from the columns of its record: shares of envs and steps, and the gap of
    the returns.
    """
    rollbacks = columns["rolled_back"]
    free = ~columns["forced"]
    waits = free & (columns["action"][..., Head.OP] == Op.WAIT)
    skipped = (columns["fault"] & int(Fault.SKIPPED_STEP) != 0).any(axis=0)
    numbers = {
        "envs_skipped": float(skipped.mean()),
        "rollbacks": float(rollbacks.sum(axis=0).mean()),
        "wait_share": float(waits.sum()) / max(float(free.sum()), 1.0),
    }
    gap = return_gap(columns["reward"], rollbacks, update, gamma)
    return numbers if gap is None else numbers | {"return_gap": abs(gap)}


def gradient_drift(norm: float, average: float | None) -> tuple[float, float | None]:
    """Relative distance of a round's norm from the moving average before it, and the average after
    it.

    A norm that is not finite leaves the average: no step was applied.  average None: no norm yet.
    The drift of both is 0.
    """
    if not math.isfinite(norm):
        return 0.0, average
    if average is None:
        return 0.0, norm
    drift = abs(norm - average) / (average + DRIFT_EPSILON)
    return drift, DRIFT_MOMENTUM * average + (1.0 - DRIFT_MOMENTUM) * norm


def accuracy_drop(
    accuracy: float, rolling: float, progress: float, limits: Numbers
) -> float | None:
    """Share of the rolling accuracy by which a round is worse; None where the drop is no event."""
    if not rolling > 0 or progress < limits["drop_progress"]:
        return None
    share = (rolling - accuracy) / rolling
    return share if share >= limits["drop"] else None


def accuracy_trend(delta: float, config: TelemetrySpec) -> Trend | None:
    """Direction of the rolling accuracy, from its change in points."""
    if abs(delta) < config.plateau_threshold:
        return "plateau"
    if abs(delta) > config.improvement_threshold:
        return "improvement" if delta > 0 else "degradation"
    return None


class RoundAlarms:
    """Alarms of the rounds of a run, in order."""

    KINDS = ()

    def __init__(self, plan: RunPlan) -> None:
        limits = to_settings(vars(plan.telemetry)["limits"])
        self._plan = plan
        self._limits: Numbers = limits | {"kl_spike": max(limits["kl_spike"], plan.kl_stop)}
        # consecutive rounds beyond the limit by metric; head -> its entropy when first measured;
        # moving average of the gradient norm, None = never measured; device -> round of its last
        # warning
        self.state: Json = {"streaks": {}, "first": {}, "gradient": None, "warned": {}}

    def end_round(self, finished: FinishedRound) -> list[Envelope]:
        """Return events about the trend, findings by the table, and devices that are almost
        full.
        """
        round = finished.record.round
        update = valid_metrics(finished.metrics)
        findings = self._judge(round, update, finished.record.columns)
        numeric = sorted(name for name, number in update.items() if not math.isfinite(number))
        if numeric:
            broken = AnomalyDetected("numeric", len(numeric), 0, ", ".join(numeric), 0)
            findings.append(Envelope(broken, round=round, severity="error"))
        trend = [Envelope(event, round=round) for event in self._trend_events(finished)]
        full = self._memory_events(round, finished.devices)
        return [*trend, *findings, *(Envelope(event, round=round) for event in full)]

    def _judge(self, round: int, update: Numbers, columns: Columns) -> list[Envelope]:
        """Findings by the table."""
        limits = self._limits
        numbers = update_numbers(update, limits["kl_spike"])
        numbers |= count_numbers(columns, update, self._plan.facts.gamma)
        known = {head: numbers.get(f"entropy_head.{head}", math.nan) for head in HEADS}
        known = {head: entropy for head, entropy in known.items() if math.isfinite(entropy)}
        if round < self._plan.imitated:  # the policy that is copied may be decided
            for head in known:
                del numbers[f"entropy_head.{head}"]
            known = {}
        # a share of the first entropy: a head that starts almost decided has not collapsed
        first = self.state["first"] = {**known, **self.state["first"]}
        shares = {
            f"entropy_{head}": limits[f"entropy_{head}"] * min(first.get(head, 1.0), 1.0)
            for head in HEADS
        }
        norm = numbers.get("gradient_norm", math.nan)
        drift, self.state["gradient"] = gradient_drift(norm, self.state["gradient"])
        if round >= limits["young_rounds"]:
            numbers["gradient_drift"] = drift
            if "observation.clip_share" in numbers:
                numbers["settled_clip_share"] = numbers["observation.clip_share"]
        decided = (round + 1) / self._plan.rounds > limits["entropy_until"]
        calm = decided or numbers.get("entropy_head.op", 0.0) >= shares["entropy_op"]
        return judge(numbers, {**limits, **shares}, self.state["streaks"], round=round, calm=calm)

    def _memory_events(self, round: int, devices: Sequence[Json]) -> Iterator[RoundEvent]:
        """Yield devices that are almost full, each again after some rounds."""
        limit = self._limits["memory"]
        warned = self.state["warned"]
        for device in devices:
            name = device["device"]
            share = device["reserved_bytes"] / max(device["total_bytes"], 1)
            due = name not in warned or round - warned[name] >= self._limits["memory_rounds"]
            if due and share > limit:
                warned[name] = round
                yield AnomalyDetected("memory", share, limit, name, 0)

    def _trend_events(self, finished: FinishedRound) -> Iterator[RoundEvent]:
        """Yield the trend of the accuracy, and a drop of it.

        Rounds differ in their instances: a drop within the error of the difference of their means
        is no event.
        """
        before = finished.before
        if not before:
            return
        summary = finished.summary
        known = fmean(before)
        now = summary.rolling_accuracy
        kind = accuracy_trend(now - known, self._plan.telemetry)
        if kind is not None:
            yield TrendDetected(kind, now, known, now - known)
        accuracy = summary.accuracy_mean
        progress = (summary.round + 1) / self._plan.rounds
        share = accuracy_drop(accuracy, known, progress, self._limits)
        siblings = 1 if summary.round < self._plan.imitated else self._plan.siblings
        worlds = summary.episodes_completed / siblings  # of a round
        chance = DROP_ERRORS * summary.accuracy_std * ((1 + 1 / len(before)) / worlds) ** 0.5
        if share is not None and known - accuracy > chance:
            yield PerformanceDropped(accuracy, known, share)
