"""Anomalies: rules on the numbers of a round, pure and total, suspicious seeds, and what raises the level.  No tensors.

Every rule reads names out of a mapping of measured numbers, which may be NaN or infinite, and leaves out missing
names.  Comparisons are strict.  The limits are `TelemetrySpec.limits`.  A finding of severity info is no alarm: it
raises no level and is no anomaly of the round.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from morphogen.config.telemetry_spec import LEVEL_DEBUG, TelemetrySpec
from morphogen.storage.codec import Array
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.round import AnomalyDetected, BatchSummary, PerformanceDropped, Trend, TrendDetected
from morphogen.telemetry.return_gap import return_gap
from morphogen.telemetry.round_record import Columns, Record, RunFacts, stage_entries
from morphogen.vocab.action import HEADS, Head, Op
from morphogen.vocab.reward import DETECTORS, RANSOM_HARM, RATIO_LIMIT
from morphogen.vocab.stage import Fault, Stage

Numbers = Mapping[str, float]
INFO, WARNING, ERROR = "info", "warning", "error"
DRIFT_MOMENTUM = 0.99
DRIFT_EPSILON = 1e-8
DROP_ERRORS = 4.0  # standard errors within which a drop of the accuracy is chance: a run has many rounds


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
    first: Mapping[str, float] = field(default_factory=dict)  # head -> its entropy when it was first measured
    waits: int = 0  # rounds in a row with hardly anything but WAIT
    gradient: float | None = None  # moving average of its norm; None = never measured
    streaks: Mapping[str, int] = field(default_factory=dict)  # sign that counts if it lasts -> rounds in a row
    warned: Mapping[str, int] = field(default_factory=dict)  # device -> round of its last warning


class RoundCounts(NamedTuple):
    """Counts of the round that the rules judge."""

    round: int
    envs: int
    rollbacks: int = 0
    skipped: int = 0  # envs with a minibatch that was skipped
    free: int = 0  # steps with more than one choice
    waits: int = 0  # of these, those in which WAIT was chosen
    kl_stop: float = 0.0  # nats at which an update stops; a KL below it is intended
    progress: float = 0.0  # share of the run that is over
    return_gap: float | None = None  # mean return of all steps less that of the learner, in its deviations
    imitates: bool = False  # the policy learned from demonstrations: what it copies may be decided


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
    limits = config.limits._asdict()
    limits["kl_spike"] = max(limits["kl_spike"], counts.kl_stop)
    findings = [finding for rule in RULES for finding in rule(update, limits)]
    envs = max(counts.envs, 1)
    findings += _findings_above("envs_nonfinite", counts.skipped / envs, limits["envs_nonfinite"])
    findings += _findings_above("rollbacks", counts.rollbacks / envs, limits["rollbacks"])
    own = {name: x for name, x in update.items() if not (counts.imitates and math.isfinite(x))}
    first = {head: x for head in HEADS if math.isfinite(x := own.get(f"entropy_head.{head}", math.nan))}
    first |= state.first
    collapses, low = entropy_findings(own, state.low, limits, first, decided=counts.progress > limits["entropy_until"])
    findings += collapses
    lasting, streaks = lasting_findings(update, counts.return_gap, state.streaks, limits)
    findings += lasting
    share = counts.waits / counts.free if counts.free else 0.0
    waits = state.waits + 1 if share > limits["wait_only"] else 0
    if waits >= max(limits["wait_rounds"], 1):
        findings.append(Finding("wait_only", INFO, share, limits["wait_only"], streak=waits))
    norm = update.get("gradient_norm", math.nan)
    drift, gradient = gradient_drift(norm if math.isfinite(norm) else None, state.gradient)
    if counts.round >= limits["young_rounds"]:
        findings += _findings_above("gradient_drift", drift, limits["gradient_drift"])
        clipped = update.get("observation.clip_share")
        findings += _findings_above("observation_clipped", clipped, limits["observation_clipped"])
    warned = dict(state.warned)
    for device in devices:
        name, share = device["device"], device["reserved_bytes"] / max(device["total_bytes"], 1)
        due = name not in warned or counts.round - warned[name] >= limits["memory_rounds"]
        if due and share > limits["memory"]:
            findings.append(Finding("memory", WARNING, share, limits["memory"], name))
            warned[name] = counts.round
    return findings, AnomalyState(low, first, waits, gradient, streaks, warned)


def ratio_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """Ratios of an update in which the policy as a whole moved too far, or that are not finite.

    The ratio of an action is the product of the ratios of its heads, and clipping bounds the gradient of each head, not
    the product: among thousands of steps some ratios are far from 1 in a healthy update.  They are alarms together with
    a KL, their mean effect, above its limit, and where the KL is not measured.
    """
    ends = [(name, update[name]) for name in ("ratio_max", "ratio_min") if name in update]
    broken = [name for name, value in ends if not math.isfinite(value)]
    if broken:
        yield Finding("ratio_nonfinite", ERROR, subject=broken[0])
        return
    if update.get("kl", math.inf) <= limits["kl_spike"]:
        return
    yield from _findings_above("ratio_explosion", update.get("ratio_max"), limits["ratio_explosion"])
    low = update.get("ratio_min")
    if low is not None and low < limits["ratio_collapse"]:
        yield Finding("ratio_collapse", WARNING, low, limits["ratio_collapse"])


def kl_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """One of two, by the distance of the policy from the one that acted."""
    extreme = list(_findings_above("kl_extreme", update.get("kl"), limits["kl_extreme"], ERROR))
    yield from extreme or _findings_above("kl_spike", update.get("kl"), limits["kl_spike"])


def critic_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    """Errors of the critic, at most one."""
    if update.get("free_steps", 0) <= 0:
        return
    for name, limit in (("value_loss", limits["value_loss"]), ("td_error_abs_mean", limits["td_error"])):
        if update.get(name, -math.inf) > limit:
            yield Finding("value_collapse", WARNING, update[name], limit, name)
            return


def _update_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    streak = update.get("skip_streak", 0)
    if streak > 0:
        yield Finding("update_skipped", WARNING, streak=int(streak))
    yield from _findings_above("behaviour_gap", update.get("behaviour_gap"), limits["behaviour_gap"], ERROR)
    broken = sorted(name for name, number in update.items() if not math.isfinite(number))
    if broken:
        yield Finding("numeric", ERROR, len(broken), 0, ", ".join(broken))


def lasting_findings(
    update: Numbers, return_gap: float | None, before: Mapping[str, int], limits: Numbers
) -> tuple[list[Finding], dict[str, int]]:
    """Signs that are alarms once they last, and the rounds that each has lasted.

    A policy that does not move although steps are applied; a critic that explains nothing; a learner whose returns are
    not those of the rewards at the discount of the run.  What was not measured leaves its count.
    """
    moved = update.get("kl") if update.get("steps_done", 0) > 0 else None
    gap = None if return_gap is None else abs(return_gap)
    signs = {  # kind -> number, its limit, rounds, whether it is on the wrong side
        "policy_frozen": (moved, "frozen_kl", "frozen_rounds", operator.lt),
        "critic_blind": (update.get("explained_variance"), "critic_variance", "critic_rounds", operator.lt),
        "return_mismatch": (gap, "return_gap", "return_rounds", operator.gt),
    }
    findings, after = [], dict(before)
    for kind, (value, limit, rounds, is_beyond) in signs.items():
        if value is not None:
            after[kind] = after.get(kind, 0) + 1 if is_beyond(value, limits[limit]) else 0
            if after[kind] >= max(limits[rounds], 1):
                findings.append(Finding(kind, WARNING, value, limits[limit], streak=after[kind]))
    return findings, after


def _hidden_findings(update: Numbers, limits: Numbers) -> Iterator[Finding]:
    for part in ("h", "c"):
        yield from _findings_above("hidden_nonfinite", update.get(f"hidden.{part}_nonfinite"), 0, ERROR, part)
        largest = update.get(f"hidden.{part}_env_rms_max")
        yield from _findings_above("hidden_explosion", largest, limits["hidden_explosion"], subject=part)
        rms = update.get(f"hidden.{part}_rms")
        if rms is not None and rms < limits["hidden_vanishing"]:
            yield Finding("hidden_vanishing", WARNING, rms, limits["hidden_vanishing"], part)


RULES = (ratio_findings, kl_findings, critic_findings, _update_findings, _hidden_findings)


def _findings_above(
    kind: str, number: float | None, limit: float, severity: str = WARNING, subject: str | None = None
) -> Iterator[Finding]:
    if number is not None and number > limit:
        yield Finding(kind, severity, number, limit, subject)


def entropy_findings(
    update: Numbers, low: Mapping[str, int], limits: Numbers, first: Numbers | None = None, *, decided: bool = False
) -> tuple[list[Finding], dict[str, int]]:
    """Heads that lost their entropy, and the rounds that each has been below its limit.

    A limit is a share of the `first` entropy of the head (1 where it is not known), so that a head that starts almost
    decided has not collapsed, and a head with one choice never does.  A value head that settles while the op head has
    not is a preference, and late in a run a policy may be `decided`: severity info.  Entropies that are not finite, or
    between the limit and the clear one, leave the count.
    """
    findings, after = [], dict(low)
    share = {head: limits[f"entropy_{head}"] * min((first or {}).get(head, 1.0), 1.0) for head in HEADS}
    calm = decided or update.get("entropy_head.op", 0.0) >= share["op"]
    for head in HEADS:
        entropy = update.get(f"entropy_head.{head}")
        if entropy is None:
            continue
        after[head] = after.get(head, 0)
        if not math.isfinite(entropy):
            findings.append(Finding("entropy_nonfinite", ERROR, subject=head))
        elif entropy > limits["entropy_clear"] * share[head]:
            after[head] = 0
        elif entropy < share[head]:
            after[head] += 1
            if after[head] >= limits["entropy_rounds"]:
                severity = INFO if calm else WARNING
                findings.append(Finding("entropy_collapse", severity, entropy, share[head], head, after[head]))
    return findings, after


def gradient_drift(norm: float | None, average: float | None) -> tuple[float, float | None]:
    """Relative distance of a round's norm from the moving average before it, and the average after it.

    norm None: no step was applied, which leaves the average; average None: no norm yet.  The drift of both is 0.
    """
    if norm is None or average is None:
        return 0.0, average if norm is None else norm
    return abs(norm - average) / (average + DRIFT_EPSILON), DRIFT_MOMENTUM * average + (1.0 - DRIFT_MOMENTUM) * norm


def accuracy_drop(accuracy: float, rolling: float | None, progress: float, limits: Numbers) -> float | None:
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


class SeedFinding(NamedTuple):
    """Finding about a seed."""

    epoch: int
    env: int  # row of the record
    slot: int
    finding: Finding


def detect(columns: Columns) -> list[SeedFinding]:
    """First detections of seeds that look better than they are, in the order of the epochs of a round."""
    fired, germinated = columns["detectors"], stage_entries(columns, Stage.GERMINATED)
    reported, detections = np.zeros_like(fired[0]), list[SeedFinding]()
    for epoch in np.flatnonzero(fired.any(axis=(1, 2, 3)) | germinated.any(axis=(1, 2))).tolist():
        reported &= ~germinated[epoch][..., None]
        record = {name: columns[name][epoch] for name in _DETECTED} if fired[epoch].any() else {}
        for env, slot, kind in np.argwhere(fired[epoch] & ~reported).tolist():
            finding = _detector_finding(record, env, slot, DETECTORS[kind])
            detections.append(SeedFinding(epoch, env, slot, finding))
        reported |= fired[epoch]
    return detections


def find_causes(columns: Columns) -> dict[int, list[str]]:
    """Return what raises the level within a round, by epoch: rollbacks."""
    return {epoch: ["RolledBack"] for epoch in np.flatnonzero(columns["rolled_back"].any(axis=1)).tolist()}


_DETECTED = ("detector_ratio", "val_acc", "committed_acc")


def detailed_epochs(causes: Array, until: int, spec: TelemetrySpec) -> tuple[Array, int]:
    """Return which epochs of a round are at level debug, and how many epochs of the next one are.

    causes: bool [T], epochs with a rollback or an alarm.  until: epochs of this round, from its start, that a cause in
    an earlier round raised.  A cause raises the epochs around it: `escalation_epochs` with its own, and as many more.
    """
    epochs = np.arange(len(causes))
    if not spec.escalates:
        return np.full(len(causes), spec.level == LEVEL_DEBUG), 0
    near = epochs[:, None] - np.flatnonzero(causes)  # [T, causes]
    raised = ((near > -spec.escalation_epochs) & (near <= spec.escalation_epochs)).any(axis=1)
    last = max([until - 1, *(np.flatnonzero(causes) + spec.escalation_epochs).tolist()])
    return raised | (epochs < until), max(last + 1 - len(causes), 0)


def _detector_finding(record: Record, env: int, slot: int, kind: str) -> Finding:
    """Finding about one seed, which is no alarm: its limits are below the noise of a validation of few samples."""
    if kind == "attribution_ratio":
        return Finding(kind, INFO, float(record["detector_ratio"][env, slot]), RATIO_LIMIT)
    harm = float(record["val_acc"][env]) - float(record["committed_acc"][env])
    return Finding(kind, INFO, harm, RANSOM_HARM)


class RoundFindings(NamedTuple):
    """Alarms of a round, and what they raise the level for."""

    kinds: tuple[str, ...]  # of all alarms, each once
    events: tuple[Envelope, ...]  # about the round itself
    causes: Mapping[int, Sequence[str]]  # epoch -> what raises the level there


class AnomalyMonitor:
    """Rounds, in order."""

    def __init__(
        self,
        facts: RunFacts,
        spec: TelemetrySpec,
        *,
        rounds: int,
        gamma: float = 1.0,
        kl_stop: float = 0.0,
        imitated: int = 0,
        world_envs: int = 1,
    ) -> None:
        """rounds, imitated: of the run, of imitation; kl_stop: nats that end an update; world_envs: envs of a world."""
        self._facts, self._spec, self._rounds, self._world_envs = facts, spec, rounds, world_envs
        self._gamma, self._kl_stop, self._imitated = gamma, kl_stop, imitated
        self.state = AnomalyState()

    def end_round(
        self, round: int, columns: Columns, metrics: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]
    ) -> RoundFindings:
        """Find what stands out in a round."""
        causes, rollbacks = find_causes(columns), columns["rolled_back"]
        free, waits = ~columns["forced"], columns["action"][..., Head.OP] == Op.WAIT
        update = valid_metrics(metrics)
        counts = RoundCounts(
            round,
            self._facts.envs,
            int(rollbacks.sum()),
            int((columns["fault"] & int(Fault.SKIPPED_STEP) != 0).any(axis=0).sum()),
            int(free.sum()),
            int((free & waits).sum()),
            self._kl_stop,
            (round + 1) / self._rounds,
            return_gap(columns["reward"], rollbacks, update, self._gamma),
            round < self._imitated,
        )
        findings, self.state = find_anomalies(counts, update, self.state, self._spec, devices)
        alarms = [finding.kind for finding in findings if finding.severity != INFO]
        if alarms:
            causes.setdefault(len(rollbacks) - 1, []).extend(alarms)
        events = [Envelope(data, round=round, severity=severity) for severity, data in map(anomaly_event, findings)]
        return RoundFindings(tuple(dict.fromkeys(alarms)), tuple(events), causes)

    def trend_events(self, summary: BatchSummary, before: Sequence[float]) -> list[Event]:
        """Trend of the accuracy; before: mean accuracies of the at most 10 rounds before.

        Rounds differ in their instances: a drop within the error of the difference of their means is no event.
        """
        if not before or summary.accuracy_mean is None or summary.rolling_accuracy is None:
            return []
        known, now = fmean(before), summary.rolling_accuracy
        kind = accuracy_trend(now - known, self._spec)
        events: list[Event] = []
        if kind is not None:
            events.append(TrendDetected(kind=kind, rolling_accuracy=now, previous=known, delta=now - known))
        progress = (summary.round + 1) / self._rounds
        share = accuracy_drop(summary.accuracy_mean, known, progress, self._spec.limits._asdict())
        siblings = 1 if summary.round < self._imitated else self._world_envs
        worlds = summary.episodes_completed / siblings  # of a round
        chance = DROP_ERRORS * summary.accuracy_std * ((1 + 1 / len(before)) / worlds) ** 0.5
        if share is not None and known - summary.accuracy_mean > chance:
            events.append(PerformanceDropped(accuracy=summary.accuracy_mean, rolling_accuracy=known, drop=share))
        return events


def anomaly_event(finding: Finding) -> tuple[str, AnomalyDetected]:
    """Severity and event of a finding."""
    fields = finding._asdict()
    return fields.pop("severity"), AnomalyDetected(**fields)
