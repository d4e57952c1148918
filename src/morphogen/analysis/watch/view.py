"""State of a run for the screen: frozen, of bounded size, folded from events by `update_view`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from morphogen.telemetry.events import Envelope, Event, Json, mean_known
from morphogen.telemetry.kinds.epoch import EpisodeCompleted, EpochCompleted, RegimeBegan, SeedGerminated, StageChanged
from morphogen.telemetry.kinds.ppo import PpoUpdated
from morphogen.telemetry.kinds.round import ActionCounts, AnomalyDetected, BatchSummary
from morphogen.telemetry.kinds.run import Evaluated, RunCompleted, RunResumed, RunStarted
from morphogen.telemetry.messages import describe, format_position
from morphogen.vocab.stage import Stage
from morphogen.vocab.text import name_map

MAX_ENVS = 256  # envs with a row of their own
MAX_NOTES, MAX_ALARMS = 40, 20
MAX_ACTIONS = 24  # of each env
MAX_POINTS = 96  # of a curve
# curve -> the field of its event
ROUND_CURVES = name_map(
    "accuracy %=accuracy_mean, committed %=committed_mean, return=return_mean, value=network_value_mean, "
    "params ratio=params_ratio_mean"
)
UPDATE_CURVES = {"entropy": "entropy", "KL": "kl", "value loss": "value_loss", "gradient norm": "gradient_norm"}
FULL_ALPHA_STAGES = (Stage.HOLDING.name, Stage.FOSSILIZED.name)  # alpha is 1


@dataclass(frozen=True, slots=True)
class BoundedSeries:
    """Series of at most MAX_POINTS points, each the mean of `stride` values; neighbours of a full series are merged."""

    points: tuple[float | None, ...] = ()
    stride: int = 1
    partial_point: tuple[float, ...] = ()  # known values of the incomplete last point
    count: int = 0  # values so far, None included
    first: float | None = None
    last: float | None = None

    @property
    def all_points(self) -> tuple[float | None, ...]:
        """All points, with the incomplete last one."""
        return (*self.points, mean_known(self.partial_point)) if self.partial_point else self.points

    def add(self, value: float | None) -> "BoundedSeries":
        """Append a value; None = not measured."""
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


@dataclass(frozen=True, slots=True)
class EnvView:
    """One host in its episode."""

    slots: tuple[SlotView, ...] = ()
    accuracy: BoundedSeries = BoundedSeries()  # percent, over epochs
    actions: tuple[ActionView, ...] = ()  # the newest last
    reward: float | None = None  # so far
    params_ratio: float | None = None  # delivered over host
    regime: str = "0"  # number of the regime of its world, and from the second one on the view of the images


class Note(NamedTuple):
    """Message about one event."""

    where: str  # round, epoch, env, slot
    text: str
    severity: str = "info"


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run after its events so far.  None or empty = not known yet, or not recorded at this level."""

    config: Json = field(default_factory=dict)
    started: RunStarted | None = None
    ended: RunCompleted | None = None
    evaluated: Evaluated | None = None
    round: int | None = None
    epoch: int | None = None
    envs: tuple[EnvView, ...] = ()  # the first MAX_ENVS
    stages: Mapping[str, int] = field(default_factory=dict)  # slots of all envs in each stage
    curves: Mapping[str, BoundedSeries] = field(default_factory=dict)  # over rounds
    summary: BatchSummary | None = None  # of the last completed round
    actions: ActionCounts | None = None  # of the same round
    seconds: float = 0.0  # of all completed rounds
    notes: tuple[Note, ...] = ()  # life of the seeds, the newest last
    alarms: tuple[Note, ...] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)  # kind -> how often
    unreadable: int = 0  # lines

    @property
    def level(self) -> str:
        """Level of telemetry in the config."""
        return self.config.get("telemetry", {}).get("level", "normal")

    @property
    def rounds_done(self) -> int:
        """Number of completed rounds."""
        return 0 if self.summary is None else self.summary.round + 1

    @property
    def is_sparse(self) -> bool:
        """Return whether epochs lack fields at this level."""
        return self.level == "minimal"

    @property
    def has_regimes(self) -> bool:
        """Return whether the worlds of the envs change within an episode."""
        return bool(self.config.get("regime", {}).get("hazard"))

    @property
    def progress(self) -> float:
        """Completed share of the run, 0 .. 1."""
        if self.started is None or self.round is None:
            return 0.0
        epochs = 0 if self.epoch is None else self.epoch + 1
        now = (self.round * self.started.epochs + epochs) / (self.started.rounds * self.started.epochs)
        return max(now, self.rounds_done / self.started.rounds)

    @property
    def seconds_left(self) -> float | None:
        """Remaining time at the pace of the rounds so far; None before the end of the first round."""
        if self.started is None or not self.rounds_done:
            return None
        return self.seconds / self.rounds_done * self.started.rounds * (1.0 - self.progress)


def update_view(view: RunView, event: Envelope) -> RunView:
    """Fold one event into the view."""
    handle = HANDLERS.get(type(event.data), lambda view, event, data: view)
    return handle(_add_note(_advance_position(view, event), event), event, event.data)


def _add_note(view: RunView, event: Envelope) -> RunView:
    if (text := describe(event)) is None:
        return view
    note = Note(format_position(event), text, event.severity)
    if event.severity == "info":
        return replace(view, notes=(*view.notes, note)[-MAX_NOTES:])
    return replace(view, alarms=(*view.alarms, note)[-MAX_ALARMS:])


def _advance_position(view: RunView, event: Envelope) -> RunView:
    if event.round is None or (event.round, event.epoch) == (view.round, view.epoch):
        return view
    if view.round is None or event.round > view.round:
        view = _reset_envs(replace(view, round=event.round, epoch=None))
    return view if event.epoch is None else replace(view, epoch=event.epoch)


def _reset_envs(view: RunView) -> RunView:
    if view.started is None:
        return view
    slots, envs = len(view.started.slots), view.started.envs
    blank = EnvView(slots=(SlotView(),) * slots)
    return replace(view, envs=(blank,) * min(envs, MAX_ENVS), stages={Stage.DORMANT.name: envs * slots})


def _on_resume(view: RunView, event: Envelope, data: RunResumed) -> RunView:
    started = None if view.started is None else replace(view.started, rounds=data.rounds)
    return replace(view, started=started, ended=None)


def _on_summary(view: RunView, event: Envelope, data: BatchSummary) -> RunView:
    view = replace(view, summary=data, seconds=view.seconds + (data.seconds or 0.0))
    return _extend_curves(view, data, ROUND_CURVES)


def _on_update(view: RunView, event: Envelope, data: PpoUpdated) -> RunView:
    view = replace(view, seconds=view.seconds + (data.update_s or 0.0))
    return _extend_curves(view, data, UPDATE_CURVES)


def _extend_curves(view: RunView, data: Event, fields: dict[str, str]) -> RunView:
    longer = {name: view.curves.get(name, BoundedSeries()).add(getattr(data, field)) for name, field in fields.items()}
    curves = {**view.curves, **longer}
    return replace(view, curves={name: curves[name] for name in (*ROUND_CURVES, *UPDATE_CURVES) if name in curves})


def _on_epoch(view: RunView, event: Envelope, data: EpochCompleted) -> RunView:
    envs = tuple(_step_env(env, data, row) for row, env in enumerate(view.envs[: len(data.val_acc)]))
    return replace(view, envs=envs + view.envs[len(envs) :])


def _step_env(env: EnvView, data: EpochCompleted, row: int) -> EnvView:
    reward = data.reward[row]
    return replace(
        env,
        slots=tuple(replace(slot, alpha=alpha) for slot, alpha in zip(env.slots, data.alpha[row], strict=True)),
        accuracy=env.accuracy.add(data.val_acc[row]),
        actions=(*env.actions, ActionView(data.op_effective[row], data.success[row]))[-MAX_ACTIONS:],
        reward=env.reward if reward is None else (env.reward or 0.0) + reward,
        params_ratio=data.params_ratio[row],
    )


def _on_episode(view: RunView, event: Envelope, data: EpisodeCompleted) -> RunView:
    """Set numbers that epochs lack at a low level of telemetry."""
    if event.env is None or event.env >= len(view.envs):
        return view
    env = view.envs[event.env]
    curve = env.accuracy if env.accuracy.count else BoundedSeries().add(data.accuracy)
    env = replace(env, accuracy=curve, reward=data.reward, params_ratio=data.params_ratio)
    return _replace_env(view, event.env, env)


def _on_regime(view: RunView, event: Envelope, data: RegimeBegan) -> RunView:
    if event.env is None or event.env >= len(view.envs):
        return view
    return _replace_env(view, event.env, replace(view.envs[event.env], regime=f"{data.regime} {data.view}"))


def _replace_env(view: RunView, row: int, env: EnvView) -> RunView:
    return replace(view, envs=(*view.envs[:row], env, *view.envs[row + 1 :]))


def _update_slot(view: RunView, event: Envelope, **fields: Any) -> RunView:
    names = () if view.started is None else view.started.slots
    if event.env is None or event.env >= len(view.envs) or event.slot not in names:
        return view
    env, place = view.envs[event.env], names.index(event.slot)
    slots = (*env.slots[:place], replace(env.slots[place], **fields), *env.slots[place + 1 :])
    return _replace_env(view, event.env, replace(env, slots=slots))


def _on_stage_change(view: RunView, event: Envelope, data: StageChanged) -> RunView:
    view = replace(view, stages=_add_counts(view.stages, {data.from_: -1, data.to: 1}))
    known = {"alpha": 1.0} if data.to in FULL_ALPHA_STAGES else {"alpha": None} if view.is_sparse else {}
    return _update_slot(view, event, stage=data.to, blueprint=data.blueprint, **known)


def _add_counts(total: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    return {**total, **{name: total.get(name, 0) + count for name, count in counts.items()}}


HANDLERS: dict[type[Event], Callable[[RunView, Envelope, Any], RunView]] = {
    RunStarted: lambda view, event, data: _reset_envs(RunView(config=data.config, started=data)),
    RunResumed: _on_resume,
    RunCompleted: lambda view, event, data: replace(view, ended=data),
    Evaluated: lambda view, event, data: replace(view, evaluated=data),
    BatchSummary: _on_summary,
    PpoUpdated: _on_update,
    ActionCounts: lambda view, event, data: replace(view, actions=data),
    AnomalyDetected: lambda view, event, data: replace(view, anomalies=_add_counts(view.anomalies, {data.kind: 1})),
    EpochCompleted: _on_epoch,
    EpisodeCompleted: _on_episode,
    RegimeBegan: _on_regime,
    StageChanged: _on_stage_change,
    SeedGerminated: lambda view, event, data: _update_slot(view, event, blueprint=data.blueprint, alpha=None),
}
