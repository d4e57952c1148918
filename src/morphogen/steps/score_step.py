"""score: the reward of a step, after all consequences of its action are measured; then close the
epoch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import SignalSpec
from morphogen.rules.attribution import attribution, detect_false_credit, is_measured_epoch
from morphogen.rules.rewards.own import epoch_value, network_value, parameter_cost
from morphogen.rules.rewards.table import Rule
from morphogen.rules.signals import recent_min_accuracy, update_signals
from morphogen.rules.stages import occupied
from morphogen.state.decision import ActionOutcome
from morphogen.state.env import EnvState
from morphogen.state.measure import (
    Attribution,
    GovernorReport,
    RewardInputs,
    SlotInputs,
    StepScore,
    Validation,
)
from morphogen.state.tree_ops import choose, expand_mask, is_finite, replace, unsafe_new
from morphogen.vocab.action import Op
from morphogen.vocab.objective import ANYTIME, DELIVERED
from morphogen.vocab.stage import Stage

_WORTH = {DELIVERED: network_value, ANYTIME: epoch_value}  # by the objective of the task
STABLE_EPOCHS = 3  # accuracies of which the least counts as the stable one


class ScoreInputs(NamedTuple):
    """Results of an epoch that its reward depends on."""

    before: EnvState
    """[E], before the action."""
    outcome: ActionOutcome
    """[E], of the action."""
    attribution: Attribution
    """[E], of the accuracies to the seeds."""
    report: GovernorReport
    """[E], of the governor."""
    validation: Validation
    """[E], after training."""
    host_params: Tensor
    """int64 [E], parameters of the host in use."""
    params: Tensor
    """int64 [E, S], parameters of the seeds before the action."""
    next_params: Tensor
    """int64 [E, S], parameters of the seeds after the governor."""
    target_loss: float
    """Nats."""
    episode_length: int
    """Epochs."""


def score(
    state: EnvState,
    epoch: ScoreInputs,
    *,
    rule: Rule,
    param_budget: int,
    objective: str = DELIVERED,
) -> tuple[EnvState, StepScore]:
    """Compute the reward and close the epoch.

    Shapes: all [E]; state from the governor -> EnvState [E], StepScore [E].
    objective: of the task.
    Promise: of the state only the ledger, the counters of slots and the clock change.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> before, _ = env.reset()
        >>> after, step = env.step(before, mg.actions.wait(env))
        >>> measured = step.outcome, step.measured, step.report, step.validation
        >>> known = mg.steps.state_facts(before, env.limits, net=env.net)
        >>> sizes = known.host_params, known.seed_params, step.inputs.facts.seed_params
        >>> epoch = mg.steps.ScoreInputs(before, *measured, *sizes, 0.0, env.horizon)
        >>> closed, scored = mg.steps.score(step.governed, epoch, rule=env.rule, param_budget=300)
        >>> (
        ...     scored.reward.equal(step.reward),
        ...     scored.network_value.tolist(),
        ...     closed.clock.epoch.tolist(),
        ... )
        (True, [0.2..., 0.1...], [1, 1])
    """
    inputs = reward_inputs(state, epoch)
    potential, measured = rule.potential(inputs, state.ledger)
    reward, parts, ledger = rule(inputs, state.ledger)
    detection = detect_false_credit(state.slots, epoch.attribution.uncommitted_improvement)
    scored = unsafe_new(
        StepScore,
        state,
        reward=reward,
        components=torch.stack([parts[name] for name in rule.components], dim=-1),
        terminated=inputs.horizon | inputs.rolled_back,
        potential=potential,
        unmeasured=~measured,
        potential_by_slot=choose(
            measured.unsqueeze(-1), rule.slot_scale * epoch.attribution.shapley, 0.0
        ),
        network_value=_WORTH[objective](inputs, param_budget=param_budget),
        param_cost=parameter_cost(inputs, param_budget=param_budget),
        detectors=detection.fired,
        detector_ratio=detection.ratio,
        fossil_params=inputs.fossil_params,
        live_params=inputs.live_params,
    )
    return _close_epoch(replace(state, ledger=ledger)), scored


def reward_inputs(state: EnvState, epoch: ScoreInputs) -> RewardInputs:
    """Build the inputs of a reward rule.  `state`: from the governor; all [E].

    Promise: a rolled-back env has the accuracies of its snapshot; improvement, interactions and
    loss of the failed epoch count as not measured.
    """
    before = epoch.before
    attribution = epoch.attribution
    rolled_back = epoch.report.rolled_back
    valid = ~rolled_back
    loss = epoch.validation.loss
    clean = valid & attribution.measured
    sane = valid & is_finite(loss)
    past = before.signals
    now = state.signals
    reached = torch.where(valid, attribution.val_acc, now.val_acc)
    committed = torch.where(valid, attribution.committed_acc, now.committed_acc)
    known = is_finite(committed)
    fossils = state.slots.stage == int(Stage.FOSSILIZED)
    return unsafe_new(
        RewardInputs,
        state,
        horizon=state.clock.epoch + 1 >= epoch.episode_length,
        rolled_back=rolled_back,
        op=epoch.outcome.effective_op,
        op_executed=epoch.outcome.executed,
        clean_improvement=choose(clean, attribution.clean_improvement, 0.0),
        clean_valid=clean,
        val_loss=choose(sane, loss, 0.0),
        loss_valid=sane,
        host_params=epoch.host_params,
        fossil_params=choose(fossils, epoch.next_params, 0).sum(-1),
        live_params=epoch.next_params.sum(-1),
        param_price=state.instance.param_price,
        baseline_loss=state.instance.baseline_loss,
        target_loss=torch.full_like(loss, epoch.target_loss),
        epoch=before.clock.epoch + 1,
        val_acc=past.val_acc,
        stable_val_acc=recent_min_accuracy(past, STABLE_EPOCHS),
        uncommitted_improvement=choose(past.measured, past.val_acc - past.committed_acc, 0.0),
        uncommitted_valid=past.measured,
        next_val_acc=choose(is_finite(reached), reached, 0.0),
        committed_acc=choose(known, committed, 0.0),
        committed_valid=known,
        interaction=choose(
            expand_mask(clean, attribution.interaction), attribution.interaction, 0.0
        ),
        slots=_slot_inputs(before, state, epoch.outcome, params=epoch.params),
    )


def _slot_inputs(
    before: EnvState, after: EnvState, outcome: ActionOutcome, *, params: Tensor
) -> SlotInputs:
    """Build the slot inputs of a rule.  All [E]; params int64 [E, S] of the seeds before the step
    -> SlotInputs [E].

    Promise: a contribution counts only together with the accuracies before the step.
    """
    past = before.slots
    now = after.slots
    kept = (
        "stage",
        "previous_stage",
        "previous_epochs_in_stage",
        "epochs_in_stage",
        "age",
        "contribution",
        "accuracy_at_germination",
        "accuracy_at_stage_start",
        "interaction_sum",
        "alpha",
    )
    acted = outcome.target & outcome.executed.unsqueeze(-1)
    return unsafe_new(
        SlotInputs,
        before,
        op=choose(acted, outcome.effective_op.unsqueeze(-1), int(Op.WAIT)),
        **{name: getattr(past, name) for name in kept},
        contribution_valid=past.contribution_valid & before.signals.measured.unsqueeze(-1),
        params=params,
        next_stage=now.stage,
        next_contribution=now.contribution,
        next_contribution_valid=now.contribution_valid,
    )


def _close_epoch(state: EnvState) -> EnvState:
    """Advance the clock, the epochs in stage of every slot that is not empty, and the age of every
    seed.
    """
    slots = state.slots
    stage = state.slots.stage
    epochs = slots.epochs_in_stage + (stage != int(Stage.DORMANT)).to(torch.int64)
    slots = replace(slots, epochs_in_stage=epochs, age=slots.age + occupied(stage).to(torch.int64))
    return replace(state, slots=slots, clock=replace(state.clock, epoch=state.clock.epoch + 1))


NEWEST_WEIGHT = 0.3  # weight of the newest change in the velocity of a contribution


def attribute(
    state: EnvState,
    validation: Validation,
    *,
    every: int,
    episode_length: int,
    signal_spec: SignalSpec,
) -> tuple[EnvState, Attribution]:
    """Compute the attribution of a validation to the seeds and store it in the state.

    Args:
        state: EnvState [E], trained.
        validation: Validation [E].
        every, episode_length: all coalitions are measured in every n-th epoch and in the last.
        signal_spec: thresholds of plateau and stability.

    Returns: EnvState [E], Attribution [E].
    Promise: only the measurement leaves of slots and the signals change; non-finite values enter
    neither.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> _, step = env.step(env.reset()[0], mg.actions.wait(env))
        >>> when = {"every": 1, "episode_length": env.horizon}
        >>> state, measured = mg.steps.attribute(
        ...     step.ticked, step.validation, **when, signal_spec=env.spec.signal
        ... )
        >>> (
        ...     measured.val_acc.tolist(),
        ...     measured.forwards.tolist(),
        ...     measured.contribution_valid.any().item(),
        ... )
        ([20.0, 10.0], [1, 1], False)
    """
    full = is_measured_epoch(state.clock.epoch, every=every, episode_length=episode_length)
    measured = attribution(
        validation.accuracy, validation.coalition, validation.evaluated, state.slots, full=full
    )
    signals = update_signals(state.signals, validation.loss, measured, spec=signal_spec)
    slots = state.slots
    fresh = measured.contribution_valid
    known = slots.contribution_valid
    # A velocity is the smoothed change per epoch, 0 before the second measurement.
    change = (measured.contribution - slots.contribution) / (slots.since_measured + 1)
    velocity = choose(known, (1 - NEWEST_WEIGHT) * slots.velocity + NEWEST_WEIGHT * change, 0.0)
    slots = replace(
        slots,
        contribution=torch.where(fresh, measured.contribution, slots.contribution),
        contribution_valid=fresh | known,
        velocity=torch.where(fresh, velocity, slots.velocity),
        velocity_valid=torch.where(fresh, known, slots.velocity_valid),
        since_measured=choose(known & ~fresh, slots.since_measured + 1, 0),
        interaction_sum=measured.interaction_sum,
        boost_received=measured.boost_received,
        interaction_valid=measured.interaction_valid,
    )
    return replace(state, slots=slots, signals=signals), measured
