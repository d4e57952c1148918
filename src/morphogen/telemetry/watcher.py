"""Anomalies while a run goes on: suspicious seeds in an epoch, rules on a round.  numpy, no tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.telemetry.anomaly import (
    DROP_ERRORS,
    ERROR,
    INFO,
    WARNING,
    AnomalyState,
    EpochReport,
    Finding,
    RoundCounts,
    accuracy_drop,
    accuracy_trend,
    find_anomalies,
    valid_metrics,
)
from morphogen.telemetry.event_tally import Array, Record
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.round import AnomalyDetected, BatchSummary, PerformanceDropped, TrendDetected
from morphogen.telemetry.record_memory import RunFacts, stage_entries
from morphogen.vocab.action import Head, Op
from morphogen.vocab.reward import CRITICAL_CONTRIBUTION, DETECTORS, RANSOM_HARM, RATIO_LIMIT
from morphogen.vocab.stage import Stage

Detection = tuple[int, int, Finding]  # row of the env, slot


@dataclass(frozen=True, slots=True)
class DetectionState:
    """Detections of a round so far."""

    reported: Array  # bool [E, S, 2], of the seed in the slot
    skipped: Array  # bool [E], a minibatch was skipped
    free: int = 0  # steps with more than one choice
    waits: int = 0  # of these, those in which WAIT was chosen

    @classmethod
    def empty(cls, record: Record) -> "DetectionState":
        """Before the first epoch of a round, whose record this is."""
        return cls(np.zeros_like(record["detectors"]), np.zeros(len(record["skipped"]), dtype=bool))

    def counts(self, round: int, rollbacks: int) -> RoundCounts:
        """The counts of the round."""
        return RoundCounts(round, len(self.skipped), rollbacks, int(self.skipped.sum()), self.free, self.waits)


def detect(record: Record, before: DetectionState) -> tuple[list[Detection], DetectionState]:
    """Return the first detections of seeds that look better than they are, and the next state."""
    reported = before.reported & ~stage_entries(record, Stage.GERMINATED)[..., None]
    fired, free = record["detectors"], ~record["forced"]
    after = DetectionState(
        reported=reported | fired,
        skipped=before.skipped | (record["skipped"] > 0),
        free=before.free + int(free.sum()),
        waits=before.waits + int((free & (record["action"][:, Head.OP] == Op.WAIT)).sum()),
    )
    fresh = np.argwhere(fired & ~reported).tolist()
    return [(e, s, _detector_finding(record, e, s, DETECTORS[k])) for e, s, k in fresh], after


def _detector_finding(record: Record, env: int, slot: int, kind: str) -> Finding:
    if kind == "attribution_ratio":
        return Finding(kind, INFO, float(record["detector_ratio"][env, slot]), RATIO_LIMIT)
    critical = record["contribution_valid"][env, slot] and record["contribution"][env, slot] >= CRITICAL_CONTRIBUTION
    harm = float(record["val_acc"][env]) - float(record["committed_acc"][env])
    return Finding(kind, ERROR if critical else WARNING, harm, RANSOM_HARM)


class MonitorState(NamedTuple):
    """State of a monitor."""

    watch: AnomalyState = AnomalyState()
    sights: DetectionState | None = None
    kinds: tuple[str, ...] = ()  # alarms of the epochs of the round


class AnomalyMonitor:
    """Every epoch, then every round, in order."""

    def __init__(self, facts: RunFacts, spec: TelemetrySpec, *, rounds: int) -> None:
        """rounds: of the run."""
        self._facts, self._spec, self._rounds = facts, spec, rounds
        self.state = MonitorState()

    def end_epoch(self, record: Record, position: tuple[int, int]) -> tuple[tuple[Envelope, ...], EpochReport]:
        """Return the findings of an epoch, and the causes that raise the level."""
        round, epoch = position
        before = self.state.sights if epoch and self.state.sights else DetectionState.empty(record)
        detections, sights = detect(record, before)
        alarms = _alarm_kinds(finding for _, _, finding in detections)
        self.state = self.state._replace(sights=sights, kinds=(*self.state.kinds, *alarms))
        events = []
        for row, slot, finding in detections:
            env = self._facts.first + row
            where = {"round": round, "epoch": epoch, "env": env, "episode": round * self._facts.envs + env}
            events.append(_anomaly_event(finding, **where, slot=self._facts.slots[slot]))
        return tuple(events), self._report(round, epoch, ["RolledBack"] * bool(record["rolled_back"].any()) + alarms)

    def end_round(
        self, round: int, metrics: Mapping[str, Any], rollbacks: int, devices: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[str, ...], tuple[Envelope, ...], EpochReport]:
        """Kinds of all alarms of a round, the events about the round itself, and the causes that raise the level."""
        watch, sights, before = self.state
        if sights is None:
            raise ValueError(f"round {round + 1} has no epoch")
        counts = sights.counts(round, rollbacks)
        findings, watch = find_anomalies(counts, valid_metrics(metrics), watch, self._spec, devices)
        alarms = _alarm_kinds(findings)
        self.state = MonitorState(watch, sights)
        events = tuple(_anomaly_event(finding, round=round) for finding in findings)
        return tuple(dict.fromkeys([*before, *alarms])), events, self._report(round, self._facts.epochs - 1, alarms)

    def trend_events(self, summary: BatchSummary, before: Sequence[float]) -> list[Event]:
        """Trend of the accuracy; before: mean accuracies of the at most 10 rounds before.

        A drop within the error of the mean of a round, whose instances differ from those before, is none.
        """
        if not before or summary.accuracy_mean is None or summary.rolling_accuracy is None:
            return []
        known, now = fmean(before), summary.rolling_accuracy
        kind = accuracy_trend(now - known, self._spec)
        events: list[Event] = []
        if kind is not None:
            events.append(TrendDetected(kind=kind, rolling_accuracy=now, previous=known, delta=now - known))
        progress = (summary.round + 1) / self._rounds
        share = accuracy_drop(summary.accuracy_mean, known, progress, self._spec.limits_by_name)
        chance = DROP_ERRORS * summary.accuracy_std / summary.episodes_completed**0.5
        if share is not None and known - summary.accuracy_mean > chance:
            events.append(PerformanceDropped(accuracy=summary.accuracy_mean, rolling_accuracy=known, drop=share))
        return events

    def _report(self, round: int, epoch: int, causes: list[str]) -> EpochReport:
        return EpochReport(round * self._facts.epochs + epoch, tuple(causes))


def _alarm_kinds(findings: Iterable[Finding]) -> list[str]:
    return [finding.kind for finding in findings if finding.severity != INFO]


def _anomaly_event(finding: Finding, **where: Any) -> Envelope:
    fields = finding._asdict()
    severity = fields.pop("severity")
    return Envelope(AnomalyDetected(**fields), **where, severity=severity)
