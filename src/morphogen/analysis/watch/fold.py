"""The fold: `update(view, event) -> view`.  One function for each kind of event that changes more than the news."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from morphogen.analysis.watch.view import ACTIONS, ALARMS, NOTES, SHOWN, Action, Curve, Env, Note, Slot, View
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.env import EpisodeCompleted
from morphogen.telemetry.kinds.epoch import EpochCompleted
from morphogen.telemetry.kinds.ppo import PpoUpdated
from morphogen.telemetry.kinds.round import ActionCounts, AnomalyDetected, BatchSummary
from morphogen.telemetry.kinds.run import Evaluated, RunCompleted, RunResumed, RunStarted, TelemetryDropped
from morphogen.telemetry.kinds.slot import SeedFossilized, SeedGerminated, StageChanged
from morphogen.telemetry.messages import said, where
from morphogen.vocab.stage import Stage

# curve -> the field of its event
ROUND_CURVES = {
    "accuracy %": "accuracy_mean",
    "committed %": "committed_mean",
    "return": "return_mean",
    "network value": "network_value_mean",
    "params ratio": "params_ratio_mean",
}
UPDATE_CURVES = {"entropy": "entropy", "KL": "kl", "value loss": "value_loss", "gradient norm": "gradient_norm"}
WHOLE = (Stage.HOLDING.name, Stage.FOSSILIZED.name)  # alpha is 1


def update(view: View, event: Envelope) -> View:
    """The view after one event more."""
    if event.late:  # about an epoch that was shown already
        return view
    view = _told(_arrived(view, event), event)
    take = TAKES.get(type(event.data))
    return view if take is None else take(view, event, event.data)


def _told(view: View, event: Envelope) -> View:
    """The news, if the event is any."""
    text = said(event)
    if text is None:
        return view
    note = Note(where(event), text, event.severity)
    if event.severity == "info":
        return replace(view, notes=(*view.notes, note)[-NOTES:])
    return replace(view, alarms=(*view.alarms, note)[-ALARMS:])


def _arrived(view: View, event: Envelope) -> View:
    if event.round is None or (event.round, event.epoch) == (view.round, view.epoch):
        return view
    if view.round is None or event.round > view.round:
        view = _fresh(replace(view, round=event.round, epoch=None))
    return view if event.epoch is None else replace(view, epoch=event.epoch)


def _fresh(view: View) -> View:
    """Every env has an empty host."""
    if view.started is None:
        return view
    slots, envs = len(view.started.slots), view.started.envs // view.started.world
    blank = Env(slots=(Slot(),) * slots)
    return replace(view, envs=(blank,) * min(envs, SHOWN), stages={Stage.DORMANT.name: envs * slots})


def _started(view: View, event: Envelope, data: RunStarted) -> View:
    return _fresh(View(config=data.config, started=data))


def _resumed(view: View, event: Envelope, data: RunResumed) -> View:
    return replace(view, ended=None)


def _ended(view: View, event: Envelope, data: RunCompleted) -> View:
    return replace(view, ended=data)


def _evaluated(view: View, event: Envelope, data: Evaluated) -> View:
    return replace(view, evaluated=data)


def _summary(view: View, event: Envelope, data: BatchSummary) -> View:
    view = replace(view, summary=data, seconds=view.seconds + (data.seconds or 0.0))
    return _curves(view, data, ROUND_CURVES)


def _updated(view: View, event: Envelope, data: PpoUpdated) -> View:
    view = replace(view, seconds=view.seconds + (data.update_s or 0.0))
    return _curves(view, data, UPDATE_CURVES)


def _curves(view: View, data: Event, fields: dict[str, str]) -> View:
    longer = {name: view.curves.get(name, Curve()).add(getattr(data, field)) for name, field in fields.items()}
    curves = {**view.curves, **longer}
    return replace(view, curves={name: curves[name] for name in (*ROUND_CURVES, *UPDATE_CURVES) if name in curves})


def _actions(view: View, event: Envelope, data: ActionCounts) -> View:
    return replace(view, actions=data)


def _epoch(view: View, event: Envelope, data: EpochCompleted) -> View:
    envs = tuple(_stepped(env, data, row) for row, env in enumerate(view.envs[: len(data.val_acc)]))
    return replace(view, envs=envs + view.envs[len(envs) :])


def _stepped(env: Env, data: EpochCompleted, row: int) -> Env:
    slots = zip(env.slots, data.alpha[row], data.contribution[row], strict=True)
    reward = data.reward[row]
    return replace(
        env,
        slots=tuple(replace(slot, alpha=alpha, contribution=worth) for slot, alpha, worth in slots),
        accuracy=env.accuracy.add(data.val_acc[row]),
        actions=(*env.actions, Action(data.op_effective[row], data.success[row]))[-ACTIONS:],
        reward=env.reward if reward is None else (env.reward or 0.0) + reward,
        params_ratio=data.params_ratio[row],
    )


def _episode(view: View, event: Envelope, data: EpisodeCompleted) -> View:
    """The end of an episode also tells what the epochs did not, at a low level."""
    if event.env is None or event.env >= len(view.envs):
        return view
    env = view.envs[event.env]
    curve = env.accuracy if env.accuracy.count else Curve().add(data.accuracy)
    env = replace(env, accuracy=curve, reward=data.reward, params_ratio=data.params_ratio)
    return _with_env(view, event.env, env)


def _with_env(view: View, row: int, env: Env) -> View:
    return replace(view, envs=(*view.envs[:row], env, *view.envs[row + 1 :]))


def _slot(view: View, event: Envelope, **fields: Any) -> View:
    names = () if view.started is None else view.started.slots
    if event.env is None or event.env >= len(view.envs) or event.slot not in names:
        return view
    env, place = view.envs[event.env], names.index(event.slot)
    slots = (*env.slots[:place], replace(env.slots[place], **fields), *env.slots[place + 1 :])
    return _with_env(view, event.env, replace(env, slots=slots))


def _moved(view: View, event: Envelope, data: StageChanged) -> View:
    view = replace(view, stages=_more(view.stages, {data.from_: -1, data.to: 1}))
    known = {"alpha": 1.0} if data.to in WHOLE else {"alpha": None} if view.sparse else {}
    return _slot(view, event, stage=data.to, blueprint=data.blueprint, **known)


def _germinated(view: View, event: Envelope, data: SeedGerminated) -> View:
    return _slot(view, event, blueprint=data.blueprint, alpha=None, contribution=None)


def _fossilized(view: View, event: Envelope, data: SeedFossilized) -> View:
    return _slot(view, event, contribution=data.contribution)


def _anomaly(view: View, event: Envelope, data: AnomalyDetected) -> View:
    return replace(view, anomalies=_more(view.anomalies, {data.kind: 1}))


def _dropped(view: View, event: Envelope, data: TelemetryDropped) -> View:
    return replace(view, dropped=_more(view.dropped, data.dropped))


def _more(total: Mapping[str, int], found: Mapping[str, int]) -> dict[str, int]:
    return {**total, **{name: total.get(name, 0) + count for name, count in found.items()}}


TAKES: dict[type[Event], Callable[[View, Envelope, Any], View]] = {
    RunStarted: _started,
    RunResumed: _resumed,
    RunCompleted: _ended,
    Evaluated: _evaluated,
    TelemetryDropped: _dropped,
    BatchSummary: _summary,
    PpoUpdated: _updated,
    ActionCounts: _actions,
    AnomalyDetected: _anomaly,
    EpochCompleted: _epoch,
    EpisodeCompleted: _episode,
    StageChanged: _moved,
    SeedGerminated: _germinated,
    SeedFossilized: _fossilized,
}
