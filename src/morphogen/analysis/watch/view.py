"""State of a run for the screen: frozen, of bounded size, built from events alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from morphogen.telemetry.events import Json
from morphogen.telemetry.kinds.round import ActionCounts, BatchSummary
from morphogen.telemetry.kinds.run import Evaluated, RunCompleted, RunStarted
from morphogen.vocab.stage import Stage

MAX_ENVS = 256  # envs that are kept one by one
MAX_NOTES, MAX_ALARMS = 40, 20  # that are remembered
MAX_ACTIONS = 24  # of each env
MAX_POINTS = 96  # of a curve


@dataclass(frozen=True, slots=True)
class BoundedSeries:
    """A series in at most POINTS points, each the mean of `every` values; where it is full, neighbours are merged."""

    points: tuple[float | None, ...] = ()
    stride: int = 1
    partial_point: tuple[float, ...] = ()  # values of the point that is not full yet, None left out
    count: int = 0  # values so far, None included
    first: float | None = None
    last: float | None = None

    @property
    def all_points(self) -> tuple[float | None, ...]:
        """All points, the one that is not full yet included."""
        return (*self.points, mean_known(self.partial_point)) if self.partial_point else self.points

    def add(self, value: float | None) -> "BoundedSeries":
        """One value more; None = not measured."""
        rest = self.partial_point if value is None else (*self.partial_point, value)
        first = self.first if self.count else value
        after = replace(self, partial_point=rest, count=self.count + 1, first=first, last=value)
        if after.count % self.stride:
            return after
        points = (*self.points, mean_known(rest))
        if len(points) < MAX_POINTS:
            return replace(after, points=points, partial_point=())
        halves = tuple(map(mean_known, zip(points[::2], points[1::2], strict=True)))
        return replace(after, points=halves, stride=2 * self.stride, partial_point=())


def mean_known(values: tuple[float | None, ...]) -> float | None:
    """Of those that were measured; None: none was."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class ActionView(NamedTuple):
    """Action of an env in an epoch."""

    op: str
    success: bool


@dataclass(frozen=True, slots=True)
class SlotView:
    """Occupant of a slot.  None = empty, or not recorded."""

    stage: str = Stage.DORMANT.name
    blueprint: str | None = None
    alpha: float | None = None
    contribution: float | None = None  # points of accuracy


@dataclass(frozen=True, slots=True)
class EnvView:
    """One host in its episode."""

    slots: tuple[SlotView, ...] = ()
    accuracy: BoundedSeries = BoundedSeries()  # percent, over epochs
    actions: tuple[ActionView, ...] = ()  # the newest last
    reward: float | None = None  # so far
    params_ratio: float | None = None  # delivered over host


class Note(NamedTuple):
    """One line of what happened."""

    where: str  # round, epoch, env, slot
    text: str
    severity: str = "info"


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its events have told it.  None or empty = not told yet, or not recorded at this level."""

    config: Json = field(default_factory=dict)
    started: RunStarted | None = None
    ended: RunCompleted | None = None
    evaluated: Evaluated | None = None
    round: int | None = None
    epoch: int | None = None
    envs: tuple[EnvView, ...] = ()  # the first SHOWN
    stages: Mapping[str, int] = field(default_factory=dict)  # slots of all envs in each stage
    curves: Mapping[str, BoundedSeries] = field(default_factory=dict)  # over rounds
    summary: BatchSummary | None = None  # of the last round that is over
    actions: ActionCounts | None = None  # of the same round
    seconds: float = 0.0  # of all rounds that are over
    notes: tuple[Note, ...] = ()  # life of the seeds, the newest last
    alarms: tuple[Note, ...] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)  # kind -> how often
    dropped: Mapping[str, int] = field(default_factory=dict)  # event -> how many were not written
    unreadable: int = 0  # lines

    @property
    def level(self) -> str:
        """The level of telemetry that was asked for."""
        return self.config.get("telemetry", {}).get("level", "normal")

    @property
    def rounds_done(self) -> int:
        """Rounds that are over."""
        return 0 if self.summary is None else self.summary.round + 1

    @property
    def lifecycle_only(self) -> bool:
        """Return whether only events that are never dropped are written."""
        return self.config.get("telemetry", {}).get("lifecycle_only", False)

    @property
    def is_sparse(self) -> bool:
        """Return whether epochs are written in part, so that some fields are unknown."""
        return self.lifecycle_only or self.level == "minimal"

    @property
    def progress(self) -> float:
        """Share of the run that is over, 0 .. 1."""
        if self.started is None or self.round is None:
            return 0.0
        epochs = 0 if self.epoch is None else self.epoch + 1
        now = (self.round * self.started.epochs + epochs) / (self.started.rounds * self.started.epochs)
        return max(now, self.rounds_done / self.started.rounds)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the rounds so far; None: no round is over."""
        if self.started is None or not self.rounds_done:
            return None
        return self.seconds / self.rounds_done * self.started.rounds * (1.0 - self.progress)
