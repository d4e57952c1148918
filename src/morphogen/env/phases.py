"""Phases of an epoch as functions of tensors.  Each can be compiled; `env.environment` orders them.

Phases neither read the device nor draw from a generator: noise is keyed by the clock of the state.
"""

from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.env.action_control import ActionControl
from morphogen.env.pieces import cut, split_envs
from morphogen.env.setup import Setup
from morphogen.hosts import plan as plans
from morphogen.hosts.plan import EpochPlan
from morphogen.policy.distribution import noise_lanes
from morphogen.policy.policy import Policy
from morphogen.rules.attribution import MAX_EXACT_PLAYERS, coalitions, is_measured_epoch
from morphogen.rules.counts import seed_params
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks, conditions
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import Clock, EnvState, Slots
from morphogen.state.measure import (
    Attribution,
    GovernorReport,
    StepScore,
    TickReport,
    TrainMetrics,
    Validation,
)
from morphogen.state.tree_ops import choose, clear_rows, constant_table, replace, select
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import govern
from morphogen.steps.observe_step import StateFacts, observe
from morphogen.steps.reset_step import init_seeds, new_seed_rows
from morphogen.steps.score_step import ScoreInputs, attribute, score
from morphogen.steps.tick_step import tick
from morphogen.vocab.action import Op, Outcome, Reason
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Stage
from morphogen.vocab.text import short_repr

LANES_PER_SLOT = 2**24  # lanes of a stream that belong to one slot
_SEED_PURPOSES = (Purpose.SEED_INIT, Purpose.GATE_INIT)
# fields of a Step, without a value in an env that has ended
_STATES = ("acted", "ticked", "governed")
_MEASURED = ("ticks", "metrics", "validation", "measured", "report", "seed_params")
_IS_WAIT = tuple((op is Op.WAIT,) for op in Op)  # [6, 1]


@short_repr
class PolicyInputs(NamedTuple):
    """Inputs of a policy for its next action, of `Environment.reset` and `Environment.observe`."""

    observation: Observation
    """[E], raw features."""
    masks: ActionMasks
    """[E], legal choices, narrowed by the control."""
    missed: Tensor
    """bool [E], the control declares an action that is not legal."""
    facts: StateFacts | None = None
    """[E], of the state, which its step needs again; None: not known."""


class ActPhase(NamedTuple):
    """Results of an epoch up to its plan."""

    acted: EnvState
    outcome: ActionOutcome
    ticked: EnvState
    ticks: TickReport
    coalition: Tensor  # int64 [E, K]
    evaluated: Tensor  # bool [E, K]
    born: Tensor  # bool [E, S]
    counts: Tensor  # int32 [pieces * 54 S], sizes that the host reads


class ScorePhase(NamedTuple):
    """Results of an epoch after its validation."""

    measured: Attribution
    governed: EnvState
    report: GovernorReport
    after: EnvState
    score: StepScore
    seed_params: Tensor  # int64 [E, S], of the seeds that trained
    facts: StateFacts  # [E], of `after`


@short_repr
class Step(NamedTuple):
    """Results of one epoch of all envs.  All tensors reside on the device."""

    acted: EnvState
    """[E], after the action."""
    outcome: ActionOutcome
    """[E], of the action: executed or not, and why."""
    ticked: EnvState
    """[E], after the lifecycle moved on."""
    ticks: TickReport
    """[E], gates that seeds passed by themselves."""
    metrics: TrainMetrics
    """[E], losses and accuracies of the training."""
    validation: Validation
    """[E], accuracies with and without the seeds."""
    measured: Attribution
    """[E], accuracies after the training, and the value of every seed."""
    governed: EnvState
    """[E], trained, measured and judged."""
    report: GovernorReport
    """[E], decision of the governor."""
    score: StepScore
    """[E], reward, network value and cost."""
    host_params: Tensor
    """int64 [E], of the host without seeds."""
    seed_params: Tensor
    """int64 [E, S], of the seeds that trained."""
    inputs: PolicyInputs
    """[E], for the next action."""

    @property
    def observation(self) -> Observation:
        """Features of the envs after the epoch, [E]."""
        return self.inputs.observation

    @property
    def masks(self) -> ActionMasks:
        """Legal choices of the next action, [E]."""
        return self.inputs.masks

    @property
    def reward(self) -> Tensor:
        """Reward of the epoch, float32 [E], not normalised."""
        return self.score.reward

    @property
    def components(self) -> Tensor:
        """Parts of the reward in the order of `Environment.rule.components`, float32 [E, C]; they
        sum to it.
        """
        return self.score.components

    @property
    def terminated(self) -> Tensor:
        """End of a segment, bool [E]: the env is at its horizon, or the governor rolled it back."""
        return self.score.terminated


def observe_phase(
    state: EnvState, key: Tensor, facts: StateFacts, *, setup: Setup, control: ActionControl | None
) -> PolicyInputs:
    """Observe the envs and mask their next actions.

    Shapes: state, facts [E]; key int64 [E, 3].
    `control` narrows the masks; None: every legal action.  An env at its horizon may only wait.
    """
    limits = setup.limits
    spec = setup.spec
    observation = observe(
        state,
        limits,
        net=setup.net,
        episode_length=spec.episode_length,
        param_budget=setup.budget,
        facts=facts,
        observed=spec.observe.instance,
    )
    acts = (state.clock.epoch < spec.episode_length)[:, None, None]
    possible = acts | constant_table(_IS_WAIT, torch.bool, acts.device)  # [E, 6, 1]
    masks = action_masks(state.slots, limits, conditions_met=facts.conditions & possible)
    missed = torch.zeros_like(masks.op[:, 0])
    if control is not None:
        masks, missed = control.narrow(masks, state, key[:, 2])
    return PolicyInputs(observation, masks, missed, facts)


def choose_actions(
    params: TensorDict,
    inputs: PolicyInputs,
    hidden: TensorDict,
    key: Tensor,
    clock: Clock,
    *,
    policy: Policy,
    draw: int = 0,
) -> ActOutput:
    """Choose an action per env; the noise is keyed by the clock, and by the number of the draw.

    Shapes: inputs, hidden, clock [E]; key int64 [E, 3].
    """
    stream = rng.stream(key, policy.purpose, round=clock.episode, epoch=clock.epoch)
    lanes = noise_lanes(inputs.masks.slot.shape[-1])
    noise = rng.gumbel(stream, lanes, first=draw * lanes)
    return policy.act(params, inputs.observation, inputs.masks, hidden, noise)


def act_phase(
    state: EnvState, action: Tensor, key: Tensor, facts: StateFacts, *, setup: Setup
) -> ActPhase:
    """Decode, apply, tick; count the sizes of the plan.  state, facts [E]; action int64 [E, 8]; key
    int64 [E, 3].
    """
    lifecycle = setup.spec.lifecycle
    decoded = decode(action, state.slots, setup.limits, conditions_met=facts.conditions)
    acted, outcome = apply_action(state, decoded, lifecycle=lifecycle)
    ticked, ticks = tick(acted, lifecycle=lifecycle)
    coalition, evaluated = requested_coalitions(ticked, key, setup=setup)
    born = (state.slots.stage == int(Stage.DORMANT)) & (acted.slots.stage == int(Stage.GERMINATED))
    counts = count_pieces(ticked.slots, coalition, evaluated, born, setup=setup)
    return ActPhase(acted, outcome, ticked, ticks, coalition, evaluated, born, counts)


def count_pieces(
    slots: Slots, coalition: Tensor, evaluated: Tensor, born: Tensor, *, setup: Setup
) -> Tensor:
    """Count the sizes of the plan by pieces (`plan.plan_counts`).  -> int32 [pieces * 54 S]."""
    requests = (coalition, evaluated, born)
    pieces = split_envs(len(born), setup.piece_envs)
    counts = [
        plans.plan_counts(
            cut(slots, rows), *(cut(request, rows) for request in requests), net=setup.net
        )
        for rows in pieces
    ]
    return torch.cat(counts)


def requested_coalitions(state: EnvState, key: Tensor, *, setup: Setup) -> tuple[Tensor, Tensor]:
    """Return the ablations that each env needs, sampled ones by random permutations.  -> int64,
    bool [E, K].
    """
    spec = setup.spec
    slots = len(setup.net.slots)
    pairs = spec.attribution.permutation_pairs
    clock = state.clock
    noise = None
    if slots > MAX_EXACT_PLAYERS:
        stream = rng.stream(key, Purpose.ATTRIBUTION, round=clock.episode, epoch=clock.epoch)
        noise = torch.unflatten(rng.uniform(stream, pairs * slots), -1, (pairs, slots))
    full = is_measured_epoch(
        clock.epoch, every=spec.attribution.every, episode_length=spec.episode_length
    )
    return coalitions(state.slots, noise, pairs=pairs, full=full)


def init_new_seeds(
    state: EnvState, born: Tensor, key: Tensor, plan: EpochPlan, *, setup: Setup
) -> EnvState:
    """Return the envs with parameters for new seeds; the state itself if there are none.  born bool
    [E, S].
    """
    if not any(plan.births):
        return state
    rows = new_seed_rows(born, plan)
    net = setup.net
    env = torch.cat(rows)
    episode = state.clock.episode[env]
    epoch = state.clock.epoch[env]
    streams = (
        torch.split(rng.stream(key[env], purpose, round=episode, epoch=epoch), [*plan.births])
        for purpose in _SEED_PURPOSES
    )
    slots = zip(net.slots, net.seed_sizes, net.gate_counts, *streams, strict=True)
    # per slot: for its largest blueprint, then for its gate network
    ranges: list[rng.LaneRange] = []
    for slot, size, gate, seeds, gates in slots:
        first = slot.execution * LANES_PER_SLOT
        ranges += [rng.LaneRange(seeds, size - gate, first), rng.LaneRange(gates, gate, first)]
    parts = iter(rng.unit_floats(words) for words in rng.random_bits_of(ranges))
    noise = tuple(torch.cat(pair, dim=-1) for pair in zip(parts, parts, strict=True))
    return init_seeds(state, rows, noise, net=net)


def score_phase(
    trained: EnvState,
    outcome: ActionOutcome,
    validation: Validation,
    metrics: TrainMetrics,
    before: EnvState,
    *,
    facts: StateFacts,
    setup: Setup,
) -> ScorePhase:
    """Attribute, govern, pay the reward.  before: the state before the action, and its facts; all
    [E].
    """
    spec = setup.spec
    net = setup.net
    attributed, attribution = attribute_seeds(trained, validation, setup=setup)
    governed, report = govern(
        attributed, validation, metrics, spec=spec.governor, minibatches=spec.data.minibatches
    )
    trained_params, next_params = (
        seed_params(env.slots, net.counts, net.gate_counts) for env in (trained, governed)
    )
    epoch = ScoreInputs(
        before,
        outcome,
        attribution,
        report,
        validation,
        host_params=facts.host_params,
        params=facts.seed_params,
        next_params=next_params,
        target_loss=setup.task.target_loss,
        episode_length=spec.episode_length,
    )
    after, step = score(
        governed,
        epoch,
        rule=setup.rule,
        param_budget=setup.budget,
        objective=setup.task.objective,
    )
    known = StateFacts(conditions(after.slots, setup.limits), facts.host_params, next_params)
    return ScorePhase(attribution, governed, report, after, step, trained_params, known)


def hold_ended(
    before: EnvState, after: EnvState, step: Step, *, horizon: int
) -> tuple[EnvState, Step]:
    """Take back the epoch of every env that had reached its horizon before it.

    Such an env keeps its state, bit for bit.  Its outcome is ENDED, it is terminated, and all
    measurements, rewards and reports of the epoch are 0 or False.  Shapes: before, after, step [E]
    -> EnvState [E], Step [E].
    """
    ended = before.clock.epoch >= horizon
    outcome = clear_rows(ended, step.outcome)
    score = clear_rows(ended, step.score)
    held = {name: select(ended, before, getattr(step, name)) for name in _STATES}
    held |= {name: clear_rows(ended, getattr(step, name)) for name in _MEASURED}
    step = step._replace(
        outcome=replace(
            outcome,
            outcome=choose(ended, int(Outcome.ENDED), outcome.outcome),
            reason=choose(ended, int(Reason.ENDED), outcome.reason),
        ),
        score=replace(score, terminated=score.terminated | ended),
        **held,
    )
    return select(ended, before, after), step


def attribute_seeds(
    state: EnvState, validation: Validation, *, setup: Setup
) -> tuple[EnvState, Attribution]:
    """Attribute a validation to the seeds under the settings of a run, all [E]."""
    spec = setup.spec
    return attribute(
        state,
        validation,
        every=spec.attribution.every,
        episode_length=spec.episode_length,
        signal_spec=spec.signal,
    )
