"""Detections in an epoch: signs that a seed looks better than it is, once per seed.  numpy, no tensors."""

from dataclasses import dataclass

import numpy as np

from morphogen.telemetry.anomaly import ERROR, INFO, WARNING, Finding, RoundCounts
from morphogen.telemetry.names import Array, Record
from morphogen.telemetry.record_memory import stage_entries
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
    """Return the first detections of seeds, and the next state."""
    told = before.reported & ~stage_entries(record, Stage.GERMINATED)[..., None]
    fired, free = record["detectors"], ~record["forced"]
    after = DetectionState(
        reported=told | fired,
        skipped=before.skipped | (record["skipped"] > 0),
        free=before.free + int(free.sum()),
        waits=before.waits + int((free & (record["action"][:, Head.OP] == Op.WAIT)).sum()),
    )
    return [
        (e, s, _detector_finding(record, e, s, DETECTORS[k])) for e, s, k in np.argwhere(fired & ~told).tolist()
    ], after


def _detector_finding(record: Record, env: int, slot: int, kind: str) -> Finding:
    if kind == "attribution_ratio":
        return Finding(kind, INFO, float(record["detector_ratio"][env, slot]), RATIO_LIMIT)
    critical = record["contribution_valid"][env, slot] and record["contribution"][env, slot] >= CRITICAL_CONTRIBUTION
    harm = float(record["val_acc"][env]) - float(record["committed_acc"][env])
    return Finding(kind, ERROR if critical else WARNING, harm, RANSOM_HARM)
