"""Alarms: a table of limits on the numbers of a round, and signs of seeds that look better than
they are.  No tensors.

`measure` names the numbers of a round; `judge` compares them with the table.  A number that was not
measured judges nothing; comparisons are strict; limits are `TelemetrySpec.limits`.  A finding of
severity info is no alarm.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple, cast

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.events import Envelope, Event
from morphogen.log.kinds.round import (
    AnomalyDetected,
    BatchSummary,
    PerformanceDropped,
    Trend,
    TrendDetected,
)
from morphogen.log.return_gap import return_gap
from morphogen.log.round_record import Columns, RunFacts
from morphogen.vocab.action import HEADS, Head, Op
from morphogen.vocab.stage import Fault

Numbers = Mapping[str, float]
INFO = "info"
WARNING = "warning"
ERROR = "error"
DRIFT_MOMENTUM = 0.99
DRIFT_EPSILON = 1e-8
# standard errors within which a drop of the accuracy is chance: a run has many rounds
DROP_ERRORS = 4.0


class Alarm(NamedTuple):
    """Row of the table: the metric is beyond the limit for some consecutive rounds.

    Of the alarms with one `group`, by default kind and subject, at most the first that fires is
    reported.
    """

    kind: str
    metric: str
    op: str  # > or <; nan: the number is not finite
    limit: str | float = 0.0  # number, or name of a setting
    rounds: str = ""  # setting with the number of rounds; empty: one round
    subject: str | None = None
    severity: str = WARNING
    group: str = ""


def _is_not_finite(number: float, limit: float) -> bool:
    return not math.isfinite(number)


BEYOND: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "nan": _is_not_finite,
}
ALARMS = (
    Alarm(
        "ratio_nonfinite", "ratio_max", "nan", subject="ratio_max", severity=ERROR, group="ratio"
    ),
    Alarm(
        "ratio_nonfinite", "ratio_min", "nan", subject="ratio_min", severity=ERROR, group="ratio"
    ),
    Alarm("ratio_explosion", "moved_ratio_max", ">", "ratio_explosion"),
    Alarm("ratio_collapse", "moved_ratio_min", "<", "ratio_collapse"),
    Alarm("kl_extreme", "kl", ">", "kl_extreme", severity=ERROR, group="kl"),
    Alarm("kl_spike", "kl", ">", "kl_spike", group="kl"),
    Alarm(
        "value_collapse",
        "learned_value_loss",
        ">",
        "value_loss",
        subject="value_loss",
        group="critic",
    ),
    Alarm(
        "value_collapse",
        "learned_td_error",
        ">",
        "td_error",
        subject="td_error_abs_mean",
        group="critic",
    ),
    Alarm("update_skipped", "skip_streak", ">"),
    Alarm("behaviour_gap", "behaviour_gap", ">", "behaviour_gap", severity=ERROR),
    *(
        alarm
        for part in ("h", "c")
        for alarm in (
            Alarm(
                "hidden_nonfinite", f"hidden.{part}_nonfinite", ">", subject=part, severity=ERROR
            ),
            Alarm(
                "hidden_explosion",
                f"hidden.{part}_env_rms_max",
                ">",
                "hidden_explosion",
                subject=part,
            ),
            Alarm("hidden_vanishing", f"hidden.{part}_rms", "<", "hidden_vanishing", subject=part),
        )
    ),
    Alarm("envs_nonfinite", "envs_skipped", ">", "envs_nonfinite"),
    Alarm("rollbacks", "rollbacks", ">", "rollbacks"),
    *(
        Alarm("entropy_nonfinite", f"entropy_head.{head}", "nan", subject=head, severity=ERROR)
        for head in HEADS
    ),
    *(
        Alarm(
            "entropy_collapse",
            f"entropy_head.{head}",
            "<",
            f"entropy_{head}",
            "entropy_rounds",
            subject=head,
        )
        for head in HEADS
    ),
    Alarm("policy_frozen", "applied_kl", "<", "frozen_kl", "frozen_rounds"),
    Alarm("critic_blind", "explained_variance", "<", "critic_variance", "critic_rounds"),
    Alarm("return_mismatch", "return_gap", ">", "return_gap", "return_rounds"),
    Alarm("wait_only", "wait_share", ">", "wait_only", "wait_rounds", severity=INFO),
    Alarm("gradient_drift", "gradient_drift", ">", "gradient_drift"),
    Alarm("observation_clipped", "settled_clip_share", ">", "observation_clipped"),
)


@dataclass(frozen=True, slots=True)
class AlarmState:
    """Memory of the alarms between rounds."""

    streaks: Mapping[str, int] = field(
        default_factory=dict
    )  # metric of an alarm with rounds -> rounds beyond its limit
    # head -> its entropy when it was first measured
    first: Mapping[str, float] = field(default_factory=dict)
    gradient: float | None = None  # moving average of its norm; None = never measured
    warned: Mapping[str, int] = field(default_factory=dict)  # device -> round of its last warning


def valid_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the `update` fence that are valid, by name, finite or not."""
    names = (
        name
        for name in metrics
        if not name.endswith("_valid") and getattr(metrics[name], "ndim", 0) == 0
    )
    return {
        name: float(metrics[name]) for name in names if bool(metrics.get(f"{name}_valid", True))
    }


def count_numbers(columns: Columns, update: Numbers, gamma: float, envs: int) -> dict[str, float]:
    """Numbers of a round from the columns of its record: shares of envs and steps, and the gap of
    the returns.
    """
    rollbacks = columns["rolled_back"]
    free = ~columns["forced"]
    waits = free & (columns["action"][..., Head.OP] == Op.WAIT)
    skipped = (columns["fault"] & int(Fault.SKIPPED_STEP) != 0).any(axis=0)
    numbers = {
        "envs_skipped": float(skipped.sum()) / max(envs, 1),
        "rollbacks": float(rollbacks.sum()) / max(envs, 1),
        "wait_share": float(waits.sum()) / float(free.sum()) if free.any() else 0.0,
    }
    gap = return_gap(columns["reward"], rollbacks, update, gamma)
    return numbers if gap is None else numbers | {"return_gap": abs(gap)}


def update_numbers(update: Numbers, kl_spike: float) -> dict[str, float]:
    """Numbers of an update under conditions; a number whose condition does not hold is left out.

    The ratio of an action is the product of the ratios of its heads, and clipping bounds the
    gradient of each head, not
    the product: among thousands of steps some ratios are far from 1 in a healthy update.  They
    count together with a KL, their mean effect, above its limit, and where the KL is not measured.
    """
    numbers = dict(update)
    ratios = {name: update[name] for name in ("ratio_max", "ratio_min") if name in update}
    if update.get("kl", math.inf) > kl_spike and all(map(math.isfinite, ratios.values())):
        numbers |= {f"moved_{name}": ratio for name, ratio in ratios.items()}
    if update.get("free_steps", 0) > 0:
        named = {"learned_value_loss": "value_loss", "learned_td_error": "td_error_abs_mean"}
        numbers |= {name: update[metric] for name, metric in named.items() if metric in update}
    if update.get("steps_done", 0) > 0 and "kl" in update:
        numbers["applied_kl"] = update["kl"]
    return numbers


def gradient_drift(norm: float | None, average: float | None) -> tuple[float, float | None]:
    """Relative distance of a round's norm from the moving average before it, and the average after
    it.

    norm None: no step was applied, which leaves the average; average None: no norm yet.  The drift
    of both is 0.
    """
    if norm is None or average is None:
        return 0.0, average if norm is None else norm
    return abs(norm - average) / (average + DRIFT_EPSILON), DRIFT_MOMENTUM * average + (
        1.0 - DRIFT_MOMENTUM
    ) * norm


class Finding(NamedTuple):
    """Alarm that fired."""

    event: AnomalyDetected
    severity: str


def judge(
    numbers: Numbers, limits: Numbers, streaks: Mapping[str, int], *, calm: bool = False
) -> tuple[list[Finding], dict[str, int]]:
    """Return the findings of a round, and the streaks after it.

    The streak of a metric ends where it is clear of the limit, for entropies `entropy_clear` times
    the limit.
    calm: the policy as a whole still has a choice, or may be decided: a collapsed head is no alarm.
    """
    findings: list[Finding] = []
    after = dict(streaks)
    reported = set[tuple[str, str | None]]()
    for alarm in ALARMS:
        number = numbers.get(alarm.metric)
        if number is None:
            continue
        limit = limits[alarm.limit] if isinstance(alarm.limit, str) else alarm.limit
        beyond = BEYOND[alarm.op](number, limit)
        streak = 0
        if alarm.rounds:
            clear = limit * (limits["entropy_clear"] if alarm.kind == "entropy_collapse" else 1.0)
            is_clear = math.isfinite(number) and (
                number > clear if alarm.op == "<" else number < clear
            )
            streak = 0 if is_clear else after.get(alarm.metric, 0) + beyond
            after[alarm.metric] = streak
            beyond = beyond and streak >= max(limits[alarm.rounds], 1)
        group = (alarm.group, None) if alarm.group else (alarm.kind, alarm.subject)
        if not beyond or group in reported:
            continue
        reported.add(group)
        severity = INFO if calm and alarm.kind == "entropy_collapse" else alarm.severity
        shown = None if alarm.op == "nan" else limit
        findings.append(
            Finding(AnomalyDetected(alarm.kind, number, shown, alarm.subject, streak), severity)
        )
    return findings, after


def alarm_kinds(findings: Sequence[Envelope]) -> tuple[str, ...]:
    """Kinds of the alarms among the findings of a round, each once."""
    kinds = [
        cast(AnomalyDetected, finding.data).kind for finding in findings if finding.severity != INFO
    ]
    return tuple(dict.fromkeys(kinds))


def accuracy_drop(
    accuracy: float, rolling: float | None, progress: float, limits: Numbers
) -> float | None:
    """Share of the rolling accuracy by which a round is worse; None where the drop is no event."""
    if rolling is None or not rolling > 0 or progress < limits["drop_progress"]:
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


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Settings of a run that its alarms depend on."""

    rounds: int
    gamma: float = 1.0
    kl_stop: float = 0.0  # nats at which an update stops: a KL below it is intended
    imitated: int = 0  # first rounds, in which the policy copies another one
    siblings: int = 1  # envs of one world


class RoundMonitor:
    """Alarms of the rounds of a run, in order."""

    def __init__(self, facts: RunFacts, spec: TelemetrySpec, plan: RunPlan) -> None:
        self._facts = facts
        self._spec = spec
        self._plan = plan
        limits = spec.limits._asdict()
        self._limits = limits | {"kl_spike": max(limits["kl_spike"], plan.kl_stop)}
        self.state = AlarmState()

    def end_round(
        self,
        round: int,
        columns: Columns,
        metrics: Mapping[str, Any],
        devices: Sequence[Mapping[str, Any]],
    ) -> list[Envelope]:
        """Events about the round: findings by the table, then devices that are almost full."""
        update = valid_metrics(metrics)
        limits = self._limits
        numbers = update_numbers(update, limits["kl_spike"])
        numbers |= count_numbers(columns, update, self._plan.gamma, self._facts.envs)
        if round < self._plan.imitated:  # the policy that is copied may be decided
            heads = {f"entropy_head.{head}" for head in HEADS}
            numbers = {
                name: x for name, x in numbers.items() if name not in heads or not math.isfinite(x)
            }
        limits = limits | self._entropy_limits(numbers)
        norm = numbers.get("gradient_norm", math.nan)
        drift, average = gradient_drift(norm if math.isfinite(norm) else None, self.state.gradient)
        if round >= limits["young_rounds"]:
            numbers["gradient_drift"] = drift
            if "observation.clip_share" in numbers:
                numbers["settled_clip_share"] = numbers["observation.clip_share"]
        decided = (round + 1) / self._plan.rounds > limits["entropy_until"]
        calm = decided or numbers.get("entropy_head.op", 0.0) >= limits["entropy_op"]
        findings, streaks = judge(numbers, limits, self.state.streaks, calm=calm)
        self.state = replace(self.state, streaks=streaks, gradient=average)
        if broken := sorted(name for name, number in update.items() if not math.isfinite(number)):
            findings.append(
                Finding(AnomalyDetected("numeric", len(broken), 0, ", ".join(broken), 0), ERROR)
            )
        findings += self._memory_findings(round, devices)
        return [
            Envelope(finding.event, round=round, severity=finding.severity) for finding in findings
        ]

    def _entropy_limits(self, numbers: Numbers) -> dict[str, float]:
        """Limits as shares of the first entropy of each head: a head that starts almost decided has
        not collapsed.
        """
        measured = {head: numbers.get(f"entropy_head.{head}", math.nan) for head in HEADS}
        known = {head: entropy for head, entropy in measured.items() if math.isfinite(entropy)}
        self.state = replace(self.state, first={**known, **self.state.first})
        first = self.state.first
        return {
            f"entropy_{head}": self._limits[f"entropy_{head}"] * min(first.get(head, 1.0), 1.0)
            for head in HEADS
        }

    def _memory_findings(self, round: int, devices: Sequence[Mapping[str, Any]]) -> list[Finding]:
        """Devices that are almost full, each again after some rounds."""
        limit = self._limits["memory"]
        warned = dict(self.state.warned)
        findings = list[Finding]()
        for device in devices:
            name = device["device"]
            share = device["reserved_bytes"] / max(device["total_bytes"], 1)
            due = name not in warned or round - warned[name] >= self._limits["memory_rounds"]
            if due and share > limit:
                findings.append(Finding(AnomalyDetected("memory", share, limit, name, 0), WARNING))
                warned[name] = round
        self.state = replace(self.state, warned=warned)
        return findings

    def trend_events(self, summary: BatchSummary, before: Sequence[float]) -> list[Event]:
        """Trend of the accuracy; before: mean accuracies of the at most 10 rounds before.

        Rounds differ in their instances: a drop within the error of the difference of their means
        is no event.
        """
        if not before or summary.accuracy_mean is None or summary.rolling_accuracy is None:
            return []
        known = fmean(before)
        now = summary.rolling_accuracy
        kind = accuracy_trend(now - known, self._spec)
        events: list[Event] = []
        if kind is not None:
            events.append(
                TrendDetected(kind=kind, rolling_accuracy=now, previous=known, delta=now - known)
            )
        progress = (summary.round + 1) / self._plan.rounds
        share = accuracy_drop(summary.accuracy_mean, known, progress, self._limits)
        siblings = 1 if summary.round < self._plan.imitated else self._plan.siblings
        worlds = summary.episodes_completed / siblings  # of a round
        chance = DROP_ERRORS * summary.accuracy_std * ((1 + 1 / len(before)) / worlds) ** 0.5
        if share is not None and known - summary.accuracy_mean > chance:
            events.append(
                PerformanceDropped(
                    accuracy=summary.accuracy_mean, rolling_accuracy=known, drop=share
                )
            )
        return events
