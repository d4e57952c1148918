"""The watcher: applies the rules on anomalies to a run as it goes on, and keeps what they remember.  No tensors."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.telemetry.anomaly import (
    INFO,
    AnomalyState,
    EpochReport,
    Finding,
    accuracy_drop,
    accuracy_trend,
    find_anomalies,
    valid_metrics,
)
from morphogen.telemetry.detectors import DetectionState, detect
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.round import AnomalyDetected, BatchSummary, PerformanceDropped, TrendDetected
from morphogen.telemetry.names import Record
from morphogen.telemetry.record_memory import RunFacts


class MonitorState(NamedTuple):
    """State of a monitor."""

    watch: AnomalyState = AnomalyState()
    sights: DetectionState | None = None
    kinds: tuple[str, ...] = ()  # found in the epochs of the round


class AnomalyMonitor:
    """Every epoch, then every round, in order."""

    def __init__(self, facts: RunFacts, spec: TelemetrySpec, *, rounds: int) -> None:
        """rounds: of the run."""
        self._facts, self._spec, self._rounds = facts, spec, rounds
        self.state = MonitorState()

    def end_epoch(self, record: Record, position: tuple[int, int]) -> tuple[tuple[Envelope, ...], EpochReport]:
        """Return the findings of an epoch, and those that raise the level."""
        round, epoch = position
        before = self.state.sights if epoch and self.state.sights else DetectionState.empty(record)
        found, sights = detect(record, before)
        kinds = (*self.state.kinds, *(finding.kind for _, _, finding in found))
        self.state = self.state._replace(sights=sights, kinds=kinds)
        causes = ["RolledBack"] * bool(record["rolled_back"].any()) + _alarm_kinds(finding for _, _, finding in found)
        return tuple(self._envelope(*one, position) for one in found), self._report(round, epoch, causes)

    def _envelope(self, row: int, slot: int, finding: Finding, position: tuple[int, int]) -> Envelope:
        (round, epoch), env = position, self._facts.first + row
        return Envelope(
            _anomaly_event(finding),
            round=round,
            epoch=epoch,
            env=env,
            episode=round * self._facts.envs + env,
            slot=self._facts.slots[slot],
            severity=finding.severity,
        )

    def end_round(
        self, round: int, metrics: Mapping[str, Any], rollbacks: int, devices: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[str, ...], tuple[Envelope, ...], EpochReport]:
        """Kinds of all anomalies of a round, the events about the round itself, and what of them raises the level."""
        watch, sights, before = self.state
        if sights is None:
            raise ValueError(f"round {round} has no epoch")
        found, watch = find_anomalies(
            sights.counts(round, rollbacks), valid_metrics(metrics), watch, self._spec, devices
        )
        kinds = tuple(dict.fromkeys([*before, *(one.kind for one in found)]))
        self.state = MonitorState(watch, sights)
        told = tuple(Envelope(_anomaly_event(one), round=round, severity=one.severity) for one in found)
        return kinds, told, self._report(round, self._facts.epochs - 1, _alarm_kinds(found))

    def trend_events(self, summary: BatchSummary, before: Sequence[float]) -> list[Event]:
        """Trend of the accuracy; before: mean accuracies of the at most 10 rounds before."""
        if not before or summary.accuracy_mean is None or summary.rolling_accuracy is None:
            return []
        known, now = fmean(before), summary.rolling_accuracy
        kind, share = (
            accuracy_trend(now - known, self._spec),
            self._accuracy_drop(summary.accuracy_mean, known, summary.round),
        )
        found: list[Event] = []
        if kind is not None:
            found.append(TrendDetected(kind=kind, rolling_accuracy=now, previous=known, delta=now - known))
        if share is not None:
            found.append(PerformanceDropped(accuracy=summary.accuracy_mean, rolling_accuracy=known, drop=share))
        return found

    def _accuracy_drop(self, accuracy: float, known: float, round: int) -> float | None:
        return accuracy_drop(accuracy, known, (round + 1) / self._rounds, self._spec.limits_by_name)

    def _report(self, round: int, epoch: int, causes: list[str]) -> EpochReport:
        return EpochReport(round * self._facts.epochs + epoch, tuple(causes))


def _alarm_kinds(found: Iterable[Finding]) -> list[str]:
    return [one.kind for one in found if one.severity != INFO]


def _anomaly_event(finding: Finding) -> AnomalyDetected:
    fields = finding._asdict()
    del fields["severity"]
    return AnomalyDetected(**fields)
