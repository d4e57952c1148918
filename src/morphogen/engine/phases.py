"""Phases of an epoch, as functions of tensors: each can be compiled by itself, and all of them as one.

Nothing here reads the device or draws from a generator: noise is keyed by the clock of the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.task import ANALYTIC
from morphogen.data.feed import Feed
from morphogen.device.profiler import NULL_TIMER, NullTimer
from morphogen.engine.action_control import ActionControl
from morphogen.engine.setup import Setup
from morphogen.nets import plan as plans
from morphogen.nets.distribution import noise_lanes
from morphogen.nets.plan import Plan
from morphogen.nets.policy import Policy
from morphogen.rules.attribution import coalitions, is_measured_epoch
from morphogen.rules.counts import host_params, seed_params
from morphogen.rules.decode import decode
from morphogen.rules.legality import action_masks, conditions, restrict_masks
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, GovernorReport, StepScore, TickReport, TrainMetrics, Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.attribute import attribute
from morphogen.steps.govern import govern
from morphogen.steps.init_seeds import init_seeds, new_seed_rows
from morphogen.steps.observe import observe
from morphogen.steps.score import score
from morphogen.steps.tick import tick
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate import validate
from morphogen.steps.whitebox_steps import skip_training, validate_by_formula
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.slot import SlotSpec
from morphogen.vocab.stage import Stage

LANES_PER_SLOT = 2**24  # lanes of a stream that belong to one slot


class ActPhase(NamedTuple):
    """An epoch up to the plan: what was seen, chosen and done, and what will run."""

    observation: Observation
    masks: ActionMasks  # what the policy could choose from, after the control
    missed: Tensor  # bool [E], the control declared an action that was not legal
    choice: ActOutput
    acted: EnvState
    outcome: ActionOutcome
    ticked: EnvState
    ticks: TickReport
    coalition: Tensor  # int64 [E, K]
    evaluated: Tensor  # bool [E, K]
    born: Tensor  # bool [E, S]
    counts: Tensor  # int32 [54 S], what the host has to know


class ScorePhase(NamedTuple):
    """An epoch after its validation: what came of it."""

    attribution: Attribution
    governed: EnvState
    report: GovernorReport
    after: EnvState
    score: StepScore
    host_params: Tensor  # int64 [E]
    seed_params: Tensor  # int64 [E, S], of the seeds that trained


def act_phase(
    state: EnvState,
    params: TensorDict,
    hidden: TensorDict,
    key: Tensor,
    *,
    setup: Setup,
    policy: Policy,
    action_control: ActionControl | None,
) -> ActPhase:
    """observe .. tick.  state, hidden [E], key int64 [E, 3]; `narrowed`: what the policy has to follow."""
    spec, limits = setup.spec, setup.limits
    met = conditions(state.slots, limits)
    seen = {"net": setup.net, "episode_length": spec.episode_length, "param_budget": setup.budget}
    observation, masks = (
        observe(state, limits, conditions_met=met, **seen),
        action_masks(state.slots, limits, conditions_met=met),
    )
    missed = torch.zeros_like(masks.op[:, 0])
    if action_control is not None:
        masks, missed = restrict_masks(masks, *action_control.at(state.clock.epoch, key[:, 2]))
    choice = policy.act(params, observation, masks, hidden, _action_noise(state, key, policy.purpose))
    action = decode(choice.action, state.slots, limits, conditions_met=met)
    acted, outcome = apply_action(state, action, lifecycle=spec.lifecycle)
    ticked, ticks = tick(acted, lifecycle=spec.lifecycle)
    coalition, evaluated = requested_coalitions(ticked, key, setup=setup)
    born = (state.slots.stage == int(Stage.DORMANT)) & (acted.slots.stage == int(Stage.GERMINATED))
    counts = plans.plan_counts(ticked.slots, coalition, evaluated, born, net=setup.net)
    return ActPhase(
        observation, masks, missed, choice, acted, outcome, ticked, ticks, coalition, evaluated, born, counts
    )  # fmt: skip


def _action_noise(state: EnvState, key: Tensor, purpose: Purpose) -> Tensor:
    stream = rng.stream(key, purpose, round=state.clock.episode, epoch=state.clock.epoch)
    return rng.gumbel(stream, noise_lanes(state.slots.stage.shape[1]))


def requested_coalitions(state: EnvState, key: Tensor, *, setup: Setup) -> tuple[Tensor, Tensor]:
    """Ablations that each env needs, and the permutations of its sampled ones.  -> int64, bool [E, K]."""
    spec, slots = setup.spec, len(setup.net.slots)
    pairs, clock = spec.attribution.permutation_pairs, state.clock
    stream = rng.stream(key, Purpose.ATTRIBUTION, round=clock.episode, epoch=clock.epoch)
    noise = rng.uniform(stream, pairs * slots).unflatten(-1, (pairs, slots))
    full = is_measured_epoch(clock.epoch, every=spec.attribution.every, episode_length=spec.episode_length)
    return coalitions(state.slots, noise, pairs=pairs, full=full)


def init_new_seeds(state: EnvState, born: Tensor, key: Tensor, plan: Plan, *, setup: Setup) -> EnvState:
    """The envs with the parameters of the seeds that were born.  born bool [E, S]."""
    rows, net = new_seed_rows(born, plan), setup.net
    sizes = zip(rows, net.slots, net.seed_sizes, net.gate_counts, strict=True)
    noise = [_seed_noise(state, key, row, slot, (size - gate, gate)) for row, slot, size, gate in sizes]
    return init_seeds(state, rows, tuple(noise), net=net)


def _seed_noise(state: EnvState, key: Tensor, rows: Tensor, slot: SlotSpec, sizes: tuple[int, int]) -> Tensor:
    """Noise for the largest blueprint of a slot, then for its gate network, of exactly the seeds that were born."""
    rows = rows.clamp(max=key.shape[0] - 1)  # a padded row is no env; what is drawn for it is dropped
    when = {"round": state.clock.episode[rows], "epoch": state.clock.epoch[rows]}
    first = slot.execution * LANES_PER_SLOT
    parts = zip((Purpose.SEED_INIT, Purpose.GATE_INIT), sizes, strict=True)
    noise = [rng.uniform(rng.stream(key[rows], what, **when), count, first=first) for what, count in parts]
    return torch.cat(noise, dim=-1)


def score_phase(
    trained: EnvState,
    outcome: ActionOutcome,
    validation: Validation,
    train: TrainMetrics,
    before: EnvState,
    *,
    setup: Setup,
) -> ScorePhase:
    """attribute .. reward.  `before`: the state that was acted on; all [E]."""
    spec, net = setup.spec, setup.net
    attributed, worth = attribute(trained, validation, **attribution_args(setup))
    governed, report = govern(attributed, validation, train, spec=spec.governor, minibatches=spec.data.minibatches)
    size = host_params(before.instance, net.host)
    after, paid = score(
        governed,
        outcome,
        worth,
        report,
        validation,
        before=before,
        host_params=size,
        rule=setup.rule,
        net_counts=net.counts,
        gate_counts=net.gate_counts,
        param_budget=setup.budget,
        target_loss=setup.task.target_loss,
        episode_length=spec.episode_length,
    )
    return ScorePhase(
        worth, governed, report, after, paid, size, seed_params(trained.slots, net.counts, net.gate_counts)
    )


def attribution_args(setup: Setup) -> dict:
    """Keyword arguments of `attribute`."""
    spec = setup.spec
    return {"every": spec.attribution.every, "episode_length": spec.episode_length, "signal_spec": spec.signal}


class TrainPhase(NamedTuple):
    """Phases after the plan: training, validation, scoring."""

    train: TrainMetrics
    validation: Validation
    tail: ScorePhase


class PhaseFns(NamedTuple):
    """The units of the body for one plan, compiled or as they are."""

    train: Callable[..., Any]  # (progress, batch) -> (progress, what it measured)
    validate: Callable[..., Validation]  # (state, split, coalition, evaluated)
    tail: Callable[..., ScorePhase]


def phase_fns(plan: Plan, *, setup: Setup) -> PhaseFns:
    """The units of the body as they are."""
    spec, net = setup.spec, setup.net
    return PhaseFns(
        train=partial(train_minibatch, plan=plan, net=net, spec=spec.host, lifecycle=spec.lifecycle),
        validate=validate_by_formula if setup.task.kind == ANALYTIC else partial(validate, plan=plan, net=net),
        tail=partial(score_phase, setup=setup),
    )


def train_epoch(
    ready: EnvState, plan: Plan, *, fns: PhaseFns, feed: Feed, setup: Setup, timer: NullTimer
) -> tuple[EnvState, TrainMetrics]:
    """The minibatches of an epoch.  ready [E], births included."""
    timer.mark("data")
    draws = feed.epoch(ready)
    timer.mark("train")
    progress = start_epoch(ready, plan, net=setup.net)
    for minibatch in range(setup.spec.data.minibatches):
        timer.mark("data")
        batch = feed.batch(draws, minibatch)
        timer.mark("train")
        progress, _ = fns.train(progress, batch)
    return finish_epoch(ready, progress, plan, net=setup.net)


def train_phase(
    state: EnvState,
    top: ActPhase,
    key: Tensor,
    plan: Plan,
    *,
    fns: PhaseFns,
    feed: Feed,
    setup: Setup,
    timer: NullTimer = NULL_TIMER,
) -> TrainPhase:
    """Births .. reward, after the head of the epoch.  state: the one that was acted on."""
    timer.mark("train")
    analytic = setup.task.kind == ANALYTIC
    ready = top.ticked if analytic else init_new_seeds(top.ticked, top.born, key, plan, setup=setup)
    trained, metrics = (
        skip_training(ready) if analytic else train_epoch(ready, plan, fns=fns, feed=feed, setup=setup, timer=timer)
    )
    timer.mark("validate")
    validation = fns.validate(trained, setup.dataset.validation(), top.coalition, top.evaluated)
    timer.mark("tail")
    return TrainPhase(metrics, validation, fns.tail(trained, top.outcome, validation, metrics, state))


def epoch_graph(
    state: EnvState,
    params: TensorDict,
    hidden: TensorDict,
    key: Tensor,
    *,
    setup: Setup,
    policy: Policy,
    action_control: ActionControl | None = None,
    plan: Plan,
) -> tuple[ActPhase, TrainPhase]:
    """An epoch as one function of tensors, for a plan with room for all that the head decides.

    All shapes are fixed and nothing is read on the way, so that it is one graph, and a CUDA graph can capture it.  The
    caller sees to the room: `Head.counts` says what was needed.  The data has to be resident.
    """
    top = act_phase(state, params, hidden, key, setup=setup, policy=policy, action_control=action_control)
    return top, train_phase(state, top, key, plan, fns=phase_fns(plan, setup=setup), feed=setup.feed, setup=setup)
