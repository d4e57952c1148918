"""govern: roll diverged envs back to their last healthy state."""

import math

import torch
from torch import Tensor

from morphogen.config.groups import GovernorSpec
from morphogen.rules.health import judge_loss, rollback_cause
from morphogen.rules.stages import occupied, remove
from morphogen.state.env import EnvState
from morphogen.state.measure import GovernorReport, TrainMetrics, Validation
from morphogen.state.tree_ops import (
    clear_rows,
    copy_tree,
    is_finite,
    l2_norm,
    nested_leaves,
    positions,
    replace,
    select,
    select_slots,
    unsafe_new,
    zero_empty_slots,
)
from morphogen.vocab.stage import Panic, Stage


def govern(
    state: EnvState,
    validation: Validation,
    train: TrainMetrics,
    *,
    spec: GovernorSpec,
    minibatches: int,
) -> tuple[EnvState, GovernorReport]:
    """Judge the measured epoch; take snapshots of healthy envs, roll panicking envs back.

    Shapes: state, validation, train [E] -> EnvState [E], GovernorReport [E].  minibatches: of the
    epoch.
    Promise: a snapshot only ever holds a state judged normal whose numbers are sane, or the reset
    state; envs are independent.  An env that was rolled back `max_rollbacks` times in its episode
    is judged and left unchanged. An epoch whose steps overflowed is no anomaly, and no rollback
    restores a loss scale.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> _, step = env.step(env.reset()[0], mg.actions.wait(env))
        >>> broken = step.validation.replace(loss=torch.tensor([float("nan"), 2.0]))
        >>> after, report = mg.steps.govern(
        ...     step.governed, broken, step.metrics, spec=env.spec.governor, minibatches=1
        ... )
        >>> (
        ...     report.rolled_back.tolist(),
        ...     [mg.vocab.stage.Panic(code).name for code in report.panic.tolist()],
        ... )
        ([True, False], ['NONFINITE', 'NONE'])
    """
    starved = train.skipped - train.overflowed >= minibatches
    verdict = _assess_epoch(state, validation.loss, starved, spec)
    back = verdict["rolled_back"]
    due = verdict["snapshot_taken"]
    calm = replace(state.signals, rolled_back=torch.zeros_like(back))
    old = state.governor
    normal = verdict["anomaly"] == int(Panic.NONE)
    size = old.window.shape[1]
    newest = positions(size, old.window.device) == (old.count % size)[:, None]
    window = torch.where(newest & normal[:, None], validation.loss[:, None], old.window)
    # Zero after a rollback: a host without its seeds has another level of losses.
    watch = replace(
        old,
        window=clear_rows(back, window),
        count=clear_rows(back, old.count + normal),
        streak=clear_rows(back, verdict["streak"]),
        snapshot_epoch=torch.where(due, state.clock.epoch, old.snapshot_epoch),
        host=select(due, state.host, old.host),
        seeds=select(due, state.seeds, old.seeds),
        slots=select(due, state.slots, old.slots),
        signals=select(due, calm, old.signals),
    )

    fossils = back[:, None] & (watch.slots.stage == int(Stage.FOSSILIZED))
    pruned = back[:, None] & ~fossils & occupied(state.slots.stage)
    now = state.signals
    restored = replace(
        watch.signals,
        last_op=torch.full_like(now.last_op, -1),
        last_outcome=torch.full_like(now.last_outcome, -1),
        rolled_back=torch.ones_like(now.rolled_back),
        rollbacks=now.rollbacks + 1,
    )
    after = replace(
        state,
        host=select(back, watch.host, state.host),
        seeds=zero_empty_slots(select_slots(fossils, watch.seeds, state.seeds), ~pruned),
        slots=select(fossils, watch.slots, remove(state.slots, pruned)),
        signals=select(back, restored, calm),
        governor=watch,
    )
    report = unsafe_new(
        GovernorReport,
        state,
        snapshot_epoch=watch.snapshot_epoch,
        seeds_pruned=pruned.sum(-1),
        **verdict,
    )
    return after, report


def first_snapshot(state: EnvState) -> EnvState:
    """Take the first snapshot, after a reset and its validation.

    Shapes: state [E] -> EnvState [E].  Tensors are copied: shared ones would give the first epoch
    another graph.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state = mg.steps.first_snapshot(env.reset()[0])
        >>> (
        ...     state.governor.host.params.equal(state.host.params),
        ...     state.governor.snapshot_epoch.tolist(),
        ... )
        (True, [-1, -1])
    """
    watch = state.governor
    fresh = replace(
        watch,
        host=copy_tree(state.host),
        seeds=copy_tree(state.seeds),
        slots=copy_tree(state.slots),
        signals=copy_tree(state.signals),
    )
    return replace(state, governor=fresh)


def _assess_epoch(
    state: EnvState, loss: Tensor, starved: Tensor, spec: GovernorSpec
) -> dict[str, Tensor]:
    """Verdict on the epoch and its consequence, as fields of the report."""
    watch = state.governor
    baseline = state.instance.baseline_loss
    limit, sign = judge_loss(loss, starved, watch.window, watch.count, baseline, spec=spec)
    streak, cause = rollback_cause(sign, watch.streak, spec=spec)
    back = cause != int(Panic.NONE)
    most = math.inf if spec.max_rollbacks is None else spec.max_rollbacks
    allowed = (state.signals.rollbacks < most) & spec.enabled
    return {
        "rolled_back": back & allowed,
        "panic": cause,
        "limit": limit,
        "streak": streak,
        "anomaly": sign,
        "loss": loss,
        "snapshot_taken": (sign == int(Panic.NONE))
        & _snapshot_due(state, spec.snapshot_every)
        & _is_restorable(state),
    }


def _is_restorable(state: EnvState) -> Tensor:
    """Mask of envs whose hosts and fossils, with the state of their optimiser, have finite squared
    norms.  bool [E].

    A normal loss does not imply this: new momentum has moved nothing yet, a norm layer hides the
    size of a weight.
    """
    host = [l2_norm(leaf) for leaf in nested_leaves(state.host)]
    seeds = [l2_norm(leaf) for leaf in nested_leaves(state.seeds)]
    free = state.slots.stage != int(Stage.FOSSILIZED)
    # [E, S]
    finite = torch.unflatten(is_finite(torch.stack(seeds, dim=-1)), -1, (free.shape[1], -1)).all(-1)
    return is_finite(torch.stack(host)).all(0) & (finite | free).all(-1)


def _snapshot_due(state: EnvState, every: int) -> Tensor:
    """Mask of envs at the snapshot interval, or with a fossil missing from the snapshot.  bool
    [E].
    """
    now = state.slots.stage
    then = state.governor.slots.stage
    missing = (now == int(Stage.FOSSILIZED)) & (then != int(Stage.FOSSILIZED))
    return ((state.clock.epoch + 1) % every == 0) | missing.any(-1)
