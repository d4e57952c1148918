"""Monitors: readers of the rounds of a run that add events.  No tensors.

Extras register a class of monitors at the entry points `morphogen.monitors`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from morphogen.config.registry import extra_parts
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.events import Envelope, Event, Json
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.round_record import RoundRecord, RunFacts


class RunPlan(NamedTuple):
    """Settings and constants of a run that monitors need."""

    facts: RunFacts
    telemetry: TelemetrySpec
    rounds: int
    macs: Json  # of `RunStarted`
    kl_stop: float = 0.0  # nats at which an update stops: a KL below it is intended
    imitated: int = 0  # first rounds, in which the policy copies another one
    siblings: int = 1  # envs of one world


class FinishedRound(NamedTuple):
    """A round as monitors read it."""

    record: RoundRecord
    summary: BatchSummary  # without anomalies
    before: Sequence[float]  # mean accuracies of the at most 10 rounds before
    metrics: Mapping[str, Any]  # of the update
    devices: Sequence[Json] = ()  # memory of each CUDA device


class Monitor(Protocol):
    """Reader of rounds, made with the `RunPlan` of its run.

    `state` is plain values, which checkpoints hold: a resumed run sets them again.
    """

    KINDS: ClassVar[tuple[type[Event], ...]]  # of events, besides the kinds of the core
    state: Json

    def end_round(self, finished: FinishedRound) -> list[Envelope]:
        """Return events about a round; rounds come in order."""
        ...


def build_monitors(plan: RunPlan) -> dict[str, Monitor]:
    """Return the monitors of a run by name.

    Only extras of this distribution add monitors, because a broken one would stop every run.
    """
    return {name: part(plan) for name, part in extra_parts("morphogen.monitors").items()}
