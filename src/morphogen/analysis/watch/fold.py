"""The fold: `update(view, event) -> view`.  One function for each kind of event that changes more than the news."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from morphogen.analysis.watch.view import (
    MAX_ACTIONS,
    MAX_ALARMS,
    MAX_ENVS,
    MAX_NOTES,
    ActionView,
    BoundedSeries,
    EnvView,
    Note,
    RunView,
    SlotView,
)
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.epoch import (
    EpisodeCompleted,
    EpochCompleted,
    SeedFossilized,
    SeedGerminated,
    StageChanged,
)
from morphogen.telemetry.kinds.ppo import PpoUpdated
from morphogen.telemetry.kinds.round import ActionCounts, AnomalyDetected, BatchSummary
from morphogen.telemetry.kinds.run import Evaluated, RunCompleted, RunResumed, RunStarted, TelemetryDropped
from morphogen.telemetry.messages import describe, format_position
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
FULL_ALPHA_STAGES = (Stage.HOLDING.name, Stage.FOSSILIZED.name)  # alpha is 1


def update_view(view: RunView, event: Envelope) -> RunView:
    """The view after one event more."""
    if event.late:  # about an epoch that was shown already
        return view
    view = _add_note(_advance_position(view, event), event)
    take = HANDLERS.get(type(event.data))
    return view if take is None else take(view, event, event.data)


def _add_note(view: RunView, event: Envelope) -> RunView:
    """The news, if the event is any."""
    text = describe(event)
    if text is None:
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
    """Every env has an empty host."""
    if view.started is None:
        return view
    slots, envs = len(view.started.slots), view.started.envs // view.started.world
    blank = EnvView(slots=(SlotView(),) * slots)
    return replace(view, envs=(blank,) * min(envs, MAX_ENVS), stages={Stage.DORMANT.name: envs * slots})


def _on_start(view: RunView, event: Envelope, data: RunStarted) -> RunView:
    return _reset_envs(RunView(config=data.config, started=data))


def _on_resume(view: RunView, event: Envelope, data: RunResumed) -> RunView:
    started = None if view.started is None else replace(view.started, rounds=data.rounds)
    return replace(view, started=started, ended=None)


def _on_end(view: RunView, event: Envelope, data: RunCompleted) -> RunView:
    return replace(view, ended=data)


def _on_evaluation(view: RunView, event: Envelope, data: Evaluated) -> RunView:
    return replace(view, evaluated=data)


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


def _on_actions(view: RunView, event: Envelope, data: ActionCounts) -> RunView:
    return replace(view, actions=data)


def _on_epoch(view: RunView, event: Envelope, data: EpochCompleted) -> RunView:
    envs = tuple(_step_env(env, data, row) for row, env in enumerate(view.envs[: len(data.val_acc)]))
    return replace(view, envs=envs + view.envs[len(envs) :])


def _step_env(env: EnvView, data: EpochCompleted, row: int) -> EnvView:
    slots = zip(env.slots, data.alpha[row], data.contribution[row], strict=True)
    reward = data.reward[row]
    return replace(
        env,
        slots=tuple(replace(slot, alpha=alpha, contribution=worth) for slot, alpha, worth in slots),
        accuracy=env.accuracy.add(data.val_acc[row]),
        actions=(*env.actions, ActionView(data.op_effective[row], data.success[row]))[-MAX_ACTIONS:],
        reward=env.reward if reward is None else (env.reward or 0.0) + reward,
        params_ratio=data.params_ratio[row],
    )


def _on_episode(view: RunView, event: Envelope, data: EpisodeCompleted) -> RunView:
    """The end of an episode also tells what the epochs did not, at a low level."""
    if event.env is None or event.env >= len(view.envs):
        return view
    env = view.envs[event.env]
    curve = env.accuracy if env.accuracy.count else BoundedSeries().add(data.accuracy)
    env = replace(env, accuracy=curve, reward=data.reward, params_ratio=data.params_ratio)
    return _replace_env(view, event.env, env)


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


def _on_germination(view: RunView, event: Envelope, data: SeedGerminated) -> RunView:
    return _update_slot(view, event, blueprint=data.blueprint, alpha=None, contribution=None)


def _on_fossilization(view: RunView, event: Envelope, data: SeedFossilized) -> RunView:
    return _update_slot(view, event, contribution=data.contribution)


def _on_anomaly(view: RunView, event: Envelope, data: AnomalyDetected) -> RunView:
    return replace(view, anomalies=_add_counts(view.anomalies, {data.kind: 1}))


def _on_drop(view: RunView, event: Envelope, data: TelemetryDropped) -> RunView:
    return replace(view, dropped=_add_counts(view.dropped, data.dropped))


def _add_counts(total: Mapping[str, int], found: Mapping[str, int]) -> dict[str, int]:
    return {**total, **{name: total.get(name, 0) + count for name, count in found.items()}}


HANDLERS: dict[type[Event], Callable[[RunView, Envelope, Any], RunView]] = {
    RunStarted: _on_start,
    RunResumed: _on_resume,
    RunCompleted: _on_end,
    Evaluated: _on_evaluation,
    TelemetryDropped: _on_drop,
    BatchSummary: _on_summary,
    PpoUpdated: _on_update,
    ActionCounts: _on_actions,
    AnomalyDetected: _on_anomaly,
    EpochCompleted: _on_epoch,
    EpisodeCompleted: _on_episode,
    StageChanged: _on_stage_change,
    SeedGerminated: _on_germination,
    SeedFossilized: _on_fossilization,
}
