"""Envs that diverged go back to their last healthy state."""

import torch
from torch import Tensor

from morphogen.rules.stages import occupied
from morphogen.rules.transition import remove
from morphogen.rules.vitals import limit, panic, sign, streak_after
from morphogen.state.env import EnvState, Governor, Signals
from morphogen.state.measure import GovernorReport, TrainMetrics, Validation
from morphogen.state.seeds import select_slots, vacate
from morphogen.state.tree import select
from morphogen.vocab.spec import GovernorSpec
from morphogen.vocab.stage import Panic, Stage


def govern(
    state: EnvState, validation: Validation, train: TrainMetrics, *, spec: GovernorSpec, minibatches: int
) -> tuple[EnvState, GovernorReport]:
    """Judges the epoch just measured; snapshots healthy envs, rolls back panicking ones.  [E] -> state, report [E].

    Promise: a snapshot only ever holds a state judged normal or the reset state; an env never sees another one.
    """
    loss, baseline, watch = validation.loss, state.instance.baseline_loss, state.governor
    bounds = limit(watch.window, watch.count, baseline, spec=spec)
    seen = sign(loss, train.skipped >= minibatches, baseline, bounds=bounds, spec=spec)
    streak = streak_after(watch.streak, seen)
    alarm = panic(seen, streak, spec=spec)
    rolled_back = (alarm != int(Panic.NONE)) & spec.enabled

    state = state.replace(
        governor=_observe(watch, loss, seen == int(Panic.NONE), streak),
        signals=state.signals.replace(rolled_back=torch.zeros_like(rolled_back)),
    )
    due = (seen == int(Panic.NONE)) & _wants_snapshot(state, spec.snapshot_every)
    state = _snapshot(state, due)
    pruned = rolled_back[:, None] & occupied(state.slots.stage) & ~_kept_fossil(state)
    state = _roll_back(state, rolled_back, pruned)
    report = GovernorReport(
        rolled_back=rolled_back,
        panic=alarm,
        limit=bounds[0],
        streak=streak,
        anomaly=seen,
        loss=loss,
        snapshot_taken=due,
        snapshot_epoch=state.governor.snapshot_epoch,
        seeds_pruned=pruned.sum(-1),
        batch_size=state.batch_size,
        device=state.device,
    )
    return state, report


def first_snapshot(state: EnvState) -> EnvState:
    """The state after a reset and its validation as the first healthy one, with an empty record of losses.  [E]."""
    watch = state.governor
    fresh = watch.replace(
        window=torch.zeros_like(watch.window),
        count=torch.zeros_like(watch.count),
        streak=torch.zeros_like(watch.streak),
        snapshot_epoch=torch.full_like(watch.snapshot_epoch, -1),
        host=state.host,
        seeds=state.seeds,
        slots=state.slots,
        signals=state.signals,
    )
    return state.replace(governor=fresh)


def _observe(watch: Governor, loss: Tensor, normal: Tensor, streak: Tensor) -> Governor:
    """A normal loss enters the ring buffer; others never do."""
    size = watch.window.shape[1]
    here = torch.arange(size, device=loss.device) == (watch.count % size)[:, None]
    return watch.replace(
        window=torch.where(here & normal[:, None], loss[:, None], watch.window),
        count=watch.count + normal,
        streak=streak,
    )


def _kept_fossil(state: EnvState) -> Tensor:
    """Slots that a rollback restores: FOSSILIZED in the snapshot.  bool [E, S]."""
    return state.governor.slots.stage == int(Stage.FOSSILIZED)


def _wants_snapshot(state: EnvState, every: int) -> Tensor:
    """It is time, or there is a fossil that the snapshot does not hold.  bool [E]."""
    fossil = (state.slots.stage == int(Stage.FOSSILIZED)) & ~_kept_fossil(state)
    return ((state.clock.epoch + 1) % every == 0) | fossil.any(-1)


def _snapshot(state: EnvState, due: Tensor) -> EnvState:
    watch = state.governor
    kept = watch.replace(
        snapshot_epoch=torch.where(due, state.clock.epoch, watch.snapshot_epoch),
        host=select(due, state.host, watch.host),
        seeds=select(due, state.seeds, watch.seeds),
        slots=select(due, state.slots, watch.slots),
        signals=select(due, state.signals, watch.signals),
    )
    return state.replace(governor=kept)


def _roll_back(state: EnvState, back: Tensor, pruned: Tensor) -> EnvState:
    """Host, fossils of the snapshot and signals restored, other seeds removed, the loss record emptied."""
    watch = state.governor
    restored = back[:, None] & _kept_fossil(state)
    slots = remove(state.slots, pruned)
    slots = slots.apply(lambda now, then: torch.where(restored, then, now), watch.slots)
    seeds = vacate(select_slots(restored, watch.seeds, state.seeds), ~pruned)
    emptied = watch.replace(
        window=torch.where(back[:, None], 0.0, watch.window),
        count=torch.where(back, 0, watch.count),
        streak=torch.where(back, 0, watch.streak),
    )
    return state.replace(
        host=select(back, watch.host, state.host),
        seeds=seeds,
        slots=slots,
        signals=select(back, _restored(watch.signals, state.signals), state.signals),
        governor=emptied,
    )


def _restored(then: Signals, now: Signals) -> Signals:
    """The snapshot's signals; the rollback itself is news, and the last action is forgotten."""
    return then.replace(
        last_op=torch.full_like(now.last_op, -1),
        last_outcome=torch.full_like(now.last_outcome, -1),
        rolled_back=torch.ones_like(now.rolled_back),
        rollbacks=now.rollbacks + 1,
    )
