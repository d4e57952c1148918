"""Phases of an epoch as functions of tensors.  Each can be compiled; `engine.environment` orders them.

Phases neither read the device nor draw from a generator: noise is keyed by the clock of the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.task import ANALYTIC
from morphogen.data.feed import Feed
from morphogen.engine.action_control import ActionControl
from morphogen.engine.capture import Capture
from morphogen.engine.setup import Setup
from morphogen.nets import plan as plans
from morphogen.nets.distribution import noise_lanes
from morphogen.nets.plan import Plan
from morphogen.nets.policy import Policy
from morphogen.rules.attribution import coalitions, is_measured_epoch
from morphogen.rules.counts import seed_params
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks, conditions, restrict_masks
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import Clock, EnvState
from morphogen.state.measure import Attribution, GovernorReport, StepScore, TickReport, TrainMetrics, Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import govern
from morphogen.steps.observe_step import observe
from morphogen.steps.reset_step import init_seeds, new_seed_rows
from morphogen.steps.score_step import attribute, score
from morphogen.steps.tick_step import tick
from morphogen.steps.train import TrainState, finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.steps.whitebox_steps import skip_training, validate_by_formula
from morphogen.vocab.field_docs import document_fields
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Stage

LANES_PER_SLOT = 2**24  # lanes of a stream that belong to one slot


@document_fields
class PolicyInputs(NamedTuple):
    """Inputs of a policy for its next action, of `Environment.reset` and `Environment.observe`."""

    observation: Observation  # [E], raw features
    masks: ActionMasks  # [E], legal choices, narrowed by the control
    missed: Tensor  # bool [E], the control declares an action that is not legal


class ActPhase(NamedTuple):
    """Results of an epoch up to its plan."""

    acted: EnvState
    outcome: ActionOutcome
    ticked: EnvState
    ticks: TickReport
    coalition: Tensor  # int64 [E, K]
    evaluated: Tensor  # bool [E, K]
    born: Tensor  # bool [E, S]
    counts: Tensor  # int32 [54 S], sizes that the host reads


class ScorePhase(NamedTuple):
    """Results of an epoch after its validation."""

    measured: Attribution
    governed: EnvState
    report: GovernorReport
    after: EnvState
    score: StepScore
    host_params: Tensor  # int64 [E]
    seed_params: Tensor  # int64 [E, S], of the seeds that trained


def observe_phase(state: EnvState, key: Tensor, *, setup: Setup, control: ActionControl | None) -> PolicyInputs:
    """Observe the envs and mask their next actions.

    Shapes: state [E]; key int64 [E, 3].  `control` narrows the masks; None: every legal action.
    """
    limits = setup.limits
    conditions_met = conditions(state.slots, limits)
    observation = observe(
        state,
        limits,
        net=setup.net,
        episode_length=setup.spec.episode_length,
        param_budget=setup.budget,
        conditions_met=conditions_met,
    )
    masks = action_masks(state.slots, limits, conditions_met=conditions_met)
    missed = torch.zeros_like(masks.op[:, 0])
    if control is not None:
        masks, missed = restrict_masks(masks, *control.at(state.clock.epoch, key[:, 2]))
    return PolicyInputs(observation, masks, missed)


def choose_actions(
    params: TensorDict, seen: PolicyInputs, hidden: TensorDict, key: Tensor, clock: Clock, *, policy: Policy
) -> ActOutput:
    """Choose an action per env; the noise is keyed by the clock.  seen, hidden, clock [E]; key int64 [E, 3]."""
    stream = rng.stream(key, policy.purpose, round=clock.episode, epoch=clock.epoch)
    noise = rng.gumbel(stream, noise_lanes(seen.masks.slot.shape[-1]))
    return policy.act(params, seen.observation, seen.masks, hidden, noise)


def act_phase(state: EnvState, action: Tensor, key: Tensor, *, setup: Setup) -> ActPhase:
    """Decode, apply, tick; count what the plan needs.  state [E]; action int64 [E, 8]; key int64 [E, 3]."""
    lifecycle = setup.spec.lifecycle
    acted, outcome = apply_action(state, decode(action, state.slots, setup.limits), lifecycle=lifecycle)
    ticked, ticks = tick(acted, lifecycle=lifecycle)
    coalition, evaluated = requested_coalitions(ticked, key, setup=setup)
    born = (state.slots.stage == int(Stage.DORMANT)) & (acted.slots.stage == int(Stage.GERMINATED))
    counts = plans.plan_counts(ticked.slots, coalition, evaluated, born, net=setup.net)
    return ActPhase(acted, outcome, ticked, ticks, coalition, evaluated, born, counts)


def requested_coalitions(state: EnvState, key: Tensor, *, setup: Setup) -> tuple[Tensor, Tensor]:
    """Return the ablations that each env needs, sampled ones by random permutations.  -> int64, bool [E, K]."""
    spec, slots = setup.spec, len(setup.net.slots)
    pairs, clock = spec.attribution.permutation_pairs, state.clock
    stream = rng.stream(key, Purpose.ATTRIBUTION, round=clock.episode, epoch=clock.epoch)
    noise = torch.unflatten(rng.uniform(stream, pairs * slots), -1, (pairs, slots))
    full = is_measured_epoch(clock.epoch, every=spec.attribution.every, episode_length=spec.episode_length)
    return coalitions(state.slots, noise, pairs=pairs, full=full)


def train_phase(
    act: ActPhase,
    key: Tensor,
    plan: Plan,
    *,
    unit: Callable[..., Any],
    feed: Feed,
    setup: Setup,
    capture: Capture,
    mark: Callable[[str], None],
) -> tuple[EnvState, TrainMetrics]:
    """Initialise new seeds, then train hosts and seeds on the minibatches of the epoch.

    `unit` trains one minibatch (`PhaseFns.train`); `mark` names the next phase for the profiler.
    """

    def fetch() -> None:
        mark("data")
        feed.fetch()
        mark("train")

    def train_next(carry: tuple[TrainState, Tensor]) -> tuple[TrainState, Tensor]:
        progress, minibatch = carry
        return unit(progress, feed.batch(draws, minibatch))[0], minibatch + 1

    mark("train")
    if setup.task.kind == ANALYTIC:
        return skip_training(act.ticked)
    ready = init_new_seeds(act.ticked, act.born, key, plan, setup=setup)
    mark("data")
    draws = feed.epoch(ready)
    mark("train")
    start = start_epoch(ready, plan, net=setup.net), torch.zeros(1, dtype=torch.int64, device=key.device)
    progress, _ = capture.repeat(train_next, start, setup.spec.data.minibatches, fetch)
    return finish_epoch(ready, progress, plan, net=setup.net)


def init_new_seeds(state: EnvState, born: Tensor, key: Tensor, plan: Plan, *, setup: Setup) -> EnvState:
    """Return the envs with parameters for new seeds.  born bool [E, S]."""
    rows, net = new_seed_rows(born, plan), setup.net
    sizes = zip(rows, net.slots, net.seed_sizes, net.gate_counts, strict=True)
    noise: list[Tensor] = []  # per slot: for its largest blueprint, then for its gate network
    for row, slot, size, gate in sizes:
        when = {"round": state.clock.episode[row], "epoch": state.clock.epoch[row]}
        first = slot.execution * LANES_PER_SLOT
        seed = rng.uniform(rng.stream(key[row], Purpose.SEED_INIT, **when), size - gate, first=first)
        gates = rng.uniform(rng.stream(key[row], Purpose.GATE_INIT, **when), gate, first=first)
        noise.append(torch.cat((seed, gates), dim=-1))
    return init_seeds(state, rows, tuple(noise), net=net)


def score_phase(
    trained: EnvState,
    outcome: ActionOutcome,
    validation: Validation,
    metrics: TrainMetrics,
    before: EnvState,
    *,
    setup: Setup,
) -> ScorePhase:
    """Attribute, govern, pay the reward.  before: the state before the action; all [E]."""
    spec, net = setup.spec, setup.net
    attributed, attribution = attribute(trained, validation, **attribution_args(setup))
    governed, report = govern(attributed, validation, metrics, spec=spec.governor, minibatches=spec.data.minibatches)
    size = net.networks.params_in_use(before.instance)
    after, step = score(
        governed,
        outcome,
        attribution,
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
    trained_params = seed_params(trained.slots, net.counts, net.gate_counts)
    return ScorePhase(attribution, governed, report, after, step, size, trained_params)


def attribution_args(setup: Setup) -> dict[str, Any]:
    """Keyword arguments of `attribute`."""
    spec = setup.spec
    return {"every": spec.attribution.every, "episode_length": spec.episode_length, "signal_spec": spec.signal}


class PhaseFns(NamedTuple):
    """Functions that run an epoch under one plan, compiled or eager."""

    train: Callable[..., Any]  # (progress, batch) -> (progress, measurements), one minibatch
    validate: Callable[..., Validation]  # (state, split, coalition, evaluated)
    score: Callable[..., ScorePhase]


def phase_fns(plan: Plan, *, setup: Setup, capture: Capture) -> PhaseFns:
    """Return the eager units for a plan."""
    spec, net = setup.spec, setup.net
    measure = partial(validate, plan=plan, net=net, repeat=capture.repeat)
    return PhaseFns(
        train=partial(train_minibatch, plan=plan, net=net, spec=spec.host, lifecycle=spec.lifecycle),
        validate=validate_by_formula if setup.task.kind == ANALYTIC else measure,
        score=partial(score_phase, setup=setup),
    )
