"""The watcher: applies the rules on anomalies to a run as it goes on, and keeps what they remember.  No tensors."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.telemetry.anomaly import INFO, Finding, Report, Watch, anomalies, drop, measured, trend
from morphogen.telemetry.detectors import Sights, look
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.round import AnomalyDetected, BatchSummary, PerformanceDropped, TrendDetected
from morphogen.telemetry.names import Record
from morphogen.telemetry.record_memory import Facts


class Seen(NamedTuple):
    """What a watcher remembers."""

    watch: Watch = Watch()
    sights: Sights | None = None
    kinds: tuple[str, ...] = ()  # found in the epochs of the round


class Watcher:
    """Every epoch, then every round, in order."""

    def __init__(self, facts: Facts, spec: TelemetrySpec, *, rounds: int) -> None:
        """rounds: of the run."""
        self._facts, self._spec, self._rounds = facts, spec, rounds
        self.seen = Seen()

    def epoch(self, record: Record, position: tuple[int, int]) -> tuple[tuple[Envelope, ...], Report]:
        """What stands out in an epoch, and what of it raises the level."""
        round, epoch = position
        before = self.seen.sights if epoch and self.seen.sights else Sights.none(record)
        found, sights = look(record, before)
        kinds = (*self.seen.kinds, *(finding.kind for _, _, finding in found))
        self.seen = self.seen._replace(sights=sights, kinds=kinds)
        causes = ["RolledBack"] * bool(record["rolled_back"].any()) + _alarming(finding for _, _, finding in found)
        return tuple(self._told(*one, position) for one in found), self._report(round, epoch, causes)

    def _told(self, row: int, slot: int, finding: Finding, position: tuple[int, int]) -> Envelope:
        (round, epoch), env = position, self._facts.first + row
        return Envelope(
            _event(finding),
            round=round,
            epoch=epoch,
            env=env,
            episode=round * self._facts.envs + env,
            slot=self._facts.slots[slot],
            severity=finding.severity,
        )

    def round(
        self, round: int, metrics: Mapping[str, Any], rollbacks: int, devices: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[str, ...], tuple[Envelope, ...], Report]:
        """Kinds of all anomalies of a round, the events about the round itself, and what of them raises the level."""
        watch, sights, before = self.seen
        if sights is None:
            raise ValueError(f"round {round} has no epoch")
        found, watch = anomalies(sights.counts(round, rollbacks), measured(metrics), watch, self._spec, devices)
        kinds = tuple(dict.fromkeys([*before, *(one.kind for one in found)]))
        self.seen = Seen(watch, sights)
        told = tuple(Envelope(_event(one), round=round, severity=one.severity) for one in found)
        return kinds, told, self._report(round, self._facts.epochs - 1, _alarming(found))

    def direction(self, summary: BatchSummary, before: Sequence[float]) -> list[Event]:
        """Where accuracy is going; before: mean accuracies of the at most 10 rounds before."""
        if not before or summary.accuracy_mean is None or summary.rolling_accuracy is None:
            return []
        known, now = fmean(before), summary.rolling_accuracy
        kind, share = trend(now - known, self._spec), self._fallen(summary.accuracy_mean, known, summary.round)
        found: list[Event] = []
        if kind is not None:
            found.append(TrendDetected(kind=kind, rolling_accuracy=now, previous=known, delta=now - known))
        if share is not None:
            found.append(PerformanceDropped(accuracy=summary.accuracy_mean, rolling_accuracy=known, drop=share))
        return found

    def _fallen(self, accuracy: float, known: float, round: int) -> float | None:
        return drop(accuracy, known, (round + 1) / self._rounds, self._spec.limits_by_name)

    def _report(self, round: int, epoch: int, causes: list[str]) -> Report:
        return Report(round * self._facts.epochs + epoch, tuple(causes))


def _alarming(found: Iterable[Finding]) -> list[str]:
    return [one.kind for one in found if one.severity != INFO]


def _event(finding: Finding) -> AnomalyDetected:
    fields = finding._asdict()
    del fields["severity"]
    return AnomalyDetected(**fields)
