"""Anomalies: rules on the numbers of a round, pure and total, and what raises the level.  No tensors.

Every rule reads names out of a mapping of measured numbers, which may be NaN or infinite, and leaves out what is not
there.  Comparisons are strict.  Its limits are `TelemetrySpec.limits`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from morphogen.config.telemetry_spec import LEVEL_DEBUG, TelemetrySpec
from morphogen.telemetry.drift import gradient_drift
from morphogen.vocab.action import HEADS

Numbers = Mapping[str, float]
INFO, WARNING, ERROR = "info", "warning", "error"


class Finding(NamedTuple):
    """Finding of a rule."""

    kind: str
    severity: str
    value: float | None = None
    limit: float | None = None
    subject: str | None = None  # head, metric, device, ...
    streak: int = 0


@dataclass(frozen=True, slots=True)
class AnomalyState:
    """Memory of the rules between rounds."""

    low: Mapping[str, int] = field(default_factory=dict)  # head -> rounds below its limit since it was clear of it
    waits: int = 0  # rounds in a row with hardly anything but WAIT
    gradient: float | None = None  # moving average of its norm; None = never measured
    warned: Mapping[str, int] = field(default_factory=dict)  # device -> round of its last warning


class RoundCounts(NamedTuple):
    """Counts of the round that the rules judge."""

    round: int
    envs: int
    rollbacks: int = 0
    skipped: int = 0  # envs with a minibatch that was skipped
    free: int = 0  # steps with more than one choice
    waits: int = 0  # of these, those in which WAIT was chosen


def valid_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the `update` fence that are valid, by name, finite or not."""
    names = (name for name in metrics if not name.endswith("_valid") and getattr(metrics[name], "ndim", 0) == 0)
    return {name: float(metrics[name]) for name in names if bool(metrics.get(f"{name}_valid", True))}


def find_anomalies(
    counts: RoundCounts,
    update: Numbers,
    state: AnomalyState,
    config: TelemetrySpec,
    devices: Sequence[Mapping[str, Any]] = (),
) -> tuple[list[Finding], AnomalyState]:
    """Return the findings of a round, and the next memory."""
    limits = config.limits_by_name
    found = [one for rule in RULES for one in rule(update, limits)]
    found += _env_share_findings(counts, limits)
    entropies, low = entropy_findings(update, state.low, limits)
    idle, waits = _wait_findings(counts, state.waits, limits)
    changed, gradient = _drift_findings(update, state.gradient, limits)
    changed = changed if counts.round >= limits["young_rounds"] else []
    full, warned = _memory_findings(devices, state.warned, limits, counts.round)
    return [*found, *entropies, *idle, *changed, *full], AnomalyState(low, waits, gradient, warned)


def ratio_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """The policy moved too far in one update, or nowhere sensible."""
    ends = [(name, update[name]) for name in ("ratio_max", "ratio_min") if name in update]
    broken = [name for name, value in ends if not math.isfinite(value)]
    if broken:
        yield Finding("ratio_nonfinite", ERROR, subject=broken[0])
        return
    yield from _findings_above("ratio_explosion", update.get("ratio_max"), limits["ratio_explosion"])
    low = update.get("ratio_min")
    if low is not None and low < limits["ratio_collapse"]:
        yield Finding("ratio_collapse", WARNING, low, limits["ratio_collapse"])


def kl_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """One of two, by how far the policy is from the one that acted."""
    extreme = list(_findings_above("kl_extreme", update.get("kl"), limits["kl_extreme"], ERROR))
    yield from extreme or _findings_above("kl_spike", update.get("kl"), limits["kl_spike"])


def critic_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """The critic lost the returns."""
    if update.get("free_steps", 0) <= 0:
        return
    pairs = (("value_loss", "value_loss"), ("td_error_abs_mean", "td_error"))
    worst = [Finding("value_collapse", WARNING, update[n], limits[m], n) for n, m in pairs if n in update]
    yield from [one for one in worst if one.value > one.limit][:1]  # type: ignore[operator]


def _update_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    streak = update.get("skip_streak", 0)
    if streak > 0:
        yield Finding("update_skipped", WARNING, streak=int(streak))
    yield from _findings_above("behaviour_gap", update.get("behaviour_gap"), limits["behaviour_gap"], ERROR)
    broken = sorted(name for name, number in update.items() if not math.isfinite(number))
    if broken:
        yield Finding("numeric", ERROR, len(broken), 0, ", ".join(broken))


def _hidden_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    for part in ("h", "c"):
        yield from _findings_above("hidden_nonfinite", update.get(f"hidden.{part}_nonfinite"), 0, ERROR, part)
        yield from _findings_above(
            "hidden_explosion", update.get(f"hidden.{part}_env_rms_max"), limits["hidden_explosion"], subject=part
        )
        rms = update.get(f"hidden.{part}_rms")
        if rms is not None and rms < limits["hidden_vanishing"]:
            yield Finding("hidden_vanishing", WARNING, rms, limits["hidden_vanishing"], part)


RULES = (ratio_findings, kl_findings, critic_findings, _update_findings, _hidden_findings)


def _findings_above(
    kind: str, number: float | None, limit: float, severity: str = WARNING, subject: str | None = None
) -> Iterator[Finding]:
    if number is not None and number > limit:
        yield Finding(kind, severity, number, limit, subject)


def _env_share_findings(counts: RoundCounts, limits: Numbers) -> Iterator[Finding]:
    envs = max(counts.envs, 1)
    yield from _findings_above("envs_nonfinite", counts.skipped / envs, limits["envs_nonfinite"])
    yield from _findings_above("rollbacks", counts.rollbacks / envs, limits["rollbacks"])


def entropy_findings(update: Numbers, low: Mapping[str, int], limits: Numbers) -> tuple[list[Finding], dict[str, int]]:
    """Heads that have stopped choosing, and for how many rounds each has been below its limit."""
    known = {head: update[f"entropy_head.{head}"] for head in HEADS if f"entropy_head.{head}" in update}
    found = [Finding("entropy_nonfinite", ERROR, subject=head) for head, x in known.items() if not math.isfinite(x)]
    after = {head: _rounds_below(x, low.get(head, 0), limits[f"entropy_{head}"], limits) for head, x in known.items()}
    for head, number in known.items():
        limit = limits[f"entropy_{head}"]
        if number < limit and math.isfinite(number) and after[head] >= limits["entropy_rounds"]:
            found.append(Finding("entropy_collapse", WARNING, number, limit, head, after[head]))
    return found, {**low, **after}


def _rounds_below(number: float, before: int, limit: float, limits: Numbers) -> int:
    """A number that is not finite leaves the count, as one does that is neither below the limit nor clear of it."""
    if not math.isfinite(number):
        return before
    return 0 if number > limits["entropy_clear"] * limit else before + (number < limit)


def _wait_findings(counts: RoundCounts, before: int, limits: Numbers) -> tuple[list[Finding], int]:
    share = counts.waits / counts.free if counts.free else 0.0
    streak = before + 1 if share > limits["wait_only"] else 0
    idle = Finding("wait_only", INFO, share, limits["wait_only"], streak=streak)
    return [idle] if streak >= max(limits["wait_rounds"], 1) else [], streak


def _drift_findings(update: Numbers, before: float | None, limits: Numbers) -> tuple[list[Finding], float | None]:
    """Return drifts from earlier rounds, and the average of the gradient norm."""
    norm = update.get("gradient_norm", math.nan)
    drift, after = gradient_drift(norm if math.isfinite(norm) else None, before)
    found = [
        *_findings_above("gradient_drift", drift, limits["gradient_drift"]),
        *_findings_above("observation_clipped", update.get("observation.clip_share"), limits["observation_clipped"]),
    ]
    return found, after


def _memory_findings(
    devices: Sequence[Mapping[str, Any]], before: Mapping[str, int], limits: Numbers, round: int
) -> tuple[list[Finding], dict[str, int]]:
    found, after = [], dict(before)
    for one in devices:
        name, share = one["device"], one["reserved_bytes"] / max(one["total_bytes"], 1)
        due = name not in after or round - after[name] >= limits["memory_rounds"]
        full = list(_findings_above("memory", share, limits["memory"], subject=name)) if due else []
        after |= {name: round} if full else {}
        found += full
    return found, after


def accuracy_drop(accuracy: float, rolling: float | None, progress: float, limits: Numbers) -> float | None:
    """By which share of the rolling accuracy of the rounds before a round is worse; None where that is no event."""
    if rolling is None or not rolling > 0 or progress < limits["drop_progress"]:
        return None
    share = (rolling - accuracy) / rolling
    return share if share >= limits["drop"] else None


def accuracy_trend(delta: float, config: TelemetrySpec) -> str | None:
    """Direction of the rolling accuracy, from its change in points."""
    if abs(delta) < config.plateau_threshold:
        return "plateau"
    if abs(delta) > config.improvement_threshold:
        return "improvement" if delta > 0 else "degradation"
    return None


class EpochReport(NamedTuple):
    """Events of an epoch that may raise the level.  Epochs are counted through the run."""

    epoch: int
    reasons: tuple[str, ...] = ()


def escalate_level(until: int, report: EpochReport, config: TelemetrySpec) -> tuple[str, int]:
    """The level of the epoch after the reported one, and the last epoch that is written at debug (-1: none yet)."""
    if report.reasons and config.escalates:
        until = max(until, report.epoch + config.escalation_epochs)
    return (LEVEL_DEBUG if report.epoch < until else config.level), until
