"""One epoch of all envs, read top to bottom: the order of the steps, the noise they are given, the plan fence.

Training, evaluation and every baseline run through this one path.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets import plan as plans
from morphogen.nets.distribution import noise_lanes
from morphogen.nets.plan import Plan
from morphogen.nets.policy import Policy
from morphogen.rules.attribution import coalitions, measuring
from morphogen.rules.counts import host_params, seed_params
from morphogen.rules.decode import decode
from morphogen.rules.legality import action_masks, control
from morphogen.run.data.instances import draw_instances
from morphogen.run.fences import Fences
from morphogen.run.schedules import Control
from morphogen.run.setup import Setup
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, GovernorReport, Score, TickReport, TrainMetrics, Validation
from morphogen.state.tree import lift
from morphogen.steps.apply import apply_action
from morphogen.steps.attribute import attribute
from morphogen.steps.govern import first_snapshot, govern
from morphogen.steps.observe import observe
from morphogen.steps.reset import reset
from morphogen.steps.score import score
from morphogen.steps.sow import born_rows, sow
from morphogen.steps.tick import tick
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate import validate
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.slot import SlotSpec
from morphogen.vocab.stage import Stage

SLOT_LANES = 2**24  # lanes of a stream that belong to one slot


@dataclass(frozen=True, slots=True)
class Epoch:
    """Everything one epoch produced: the states between its steps and their outputs.  Device-resident."""

    before: EnvState
    observation: Observation
    masks: ActionMasks  # what the policy could choose from, after the control
    missed: Tensor  # bool [E], the control declared an action that was not legal
    choice: ActOutput
    acted: EnvState
    outcome: ActionOutcome
    ticked: EnvState
    ticks: TickReport
    train: TrainMetrics
    validation: Validation
    attribution: Attribution
    governed: EnvState
    report: GovernorReport
    after: EnvState
    score: Score
    host_params: Tensor  # int64 [E]
    seed_params: Tensor  # int64 [E, S], of the seeds that trained


def forget(hidden: TensorDict, terminated: Tensor) -> TensorDict:
    """Memory for the next epoch: empty where a segment ended.  hidden [E], terminated bool [E]."""
    return hidden.apply(lambda leaf: torch.where(lift(terminated, leaf), torch.zeros_like(leaf), leaf))


class World:
    """The envs of one process on one stream of instances, moved epoch by epoch.  `control` narrows every choice."""

    def __init__(
        self,
        setup: Setup,
        fences: Fences,
        *,
        instances: Purpose,
        first: int = 0,
        envs: int,
        control: Control | None = None,
    ) -> None:
        self.setup, self.fences, self.purpose, self.control = setup, fences, instances, control
        self.key = rng.env_keys(setup.spec.seed, first, envs, setup.device)
        self._measuring = {
            "every": setup.spec.attribution.every,
            "episode_length": setup.spec.episode_length,
            "signal_spec": setup.spec.signal,
        }

    def reset(self, episode: int) -> EnvState:
        """Fresh envs, validated once, so that the first observation is measured."""
        setup, spec = self.setup, self.setup.spec
        when = torch.full_like(self.key[:, 0], episode)
        instance = draw_instances(
            self.key, when, task=setup.task, spec=spec, labels=setup.dataset.labels, purpose=self.purpose
        )
        noise = rng.uniform(rng.stream(self.key, Purpose.HOST_INIT, round=when), setup.net.host_size)
        ledger = setup.rule.init(self.key.shape[0], len(setup.net.slots), setup.device)
        state = reset(
            self.key, instance, noise, episode=episode, ledger=ledger, net=setup.net, window=spec.governor.window
        )
        coalition, evaluated = self._coalitions(state)
        plan = plans.bare_plan(self.key.shape[0], setup.net)
        validation = validate(state, setup.dataset.validation(), coalition, evaluated, plan, net=setup.net)
        measured, _ = attribute(state, validation, **self._measuring)
        return first_snapshot(measured)

    def epoch(self, state: EnvState, policy: Policy, params: TensorDict, hidden: TensorDict) -> Epoch:
        """One epoch: act, train, measure, judge, pay."""
        setup, spec = self.setup, self.setup.spec
        observation = observe(state, setup.limits, net=setup.net, episode_length=spec.episode_length)
        masks, missed = self._masks(state)
        choice = policy.act(params, observation, masks, hidden, self._action_noise(state, policy.purpose))
        action = decode(choice.action, state.slots, setup.limits)
        acted, outcome = apply_action(state, action, lifecycle=spec.lifecycle)
        ticked, ticks = tick(acted, lifecycle=spec.lifecycle)
        coalition, evaluated = self._coalitions(ticked)
        born = (state.slots.stage == int(Stage.DORMANT)) & (acted.slots.stage == int(Stage.GERMINATED))
        counts = plans.plan_counts(ticked.slots, coalition, evaluated, born, net=setup.net)
        plan = plans.read_plan(self.fences.plan(counts), setup.net)
        trained, train = self._train(self._sown(ticked, born, plan), plan)
        validation = validate(trained, setup.dataset.validation(), coalition, evaluated, plan, net=setup.net)
        attributed, worth = attribute(trained, validation, **self._measuring)
        governed, report = govern(attributed, validation, train, spec=spec.governor, minibatches=spec.data.minibatches)
        size = host_params(state.instance, setup.net.host)
        after, paid = self._score(governed, outcome, worth, report, validation, before=state, size=size)
        return Epoch(
            before=state,
            observation=observation,
            masks=masks,
            missed=missed,
            choice=choice,
            acted=acted,
            outcome=outcome,
            ticked=ticked,
            ticks=ticks,
            train=train,
            validation=validation,
            attribution=worth,
            governed=governed,
            report=report,
            after=after,
            score=paid,
            host_params=size,
            seed_params=seed_params(ticked.slots, setup.net.counts, setup.net.gate_counts),
        )

    def _masks(self, state: EnvState) -> tuple[ActionMasks, Tensor]:
        """What the policy may choose from, and where the control asks for more than is legal."""
        masks = action_masks(state.slots, self.setup.limits)
        if self.control is None:
            return masks, torch.zeros_like(masks.op[:, 0])
        return control(masks, *self.control.at(state.clock.epoch, self.key[:, 2]))

    def _coalitions(self, state: EnvState) -> tuple[Tensor, Tensor]:
        """Which ablations each env needs, and what permutations its sampled ones follow."""
        spec, slots = self.setup.spec, len(self.setup.net.slots)
        pairs, clock = spec.attribution.permutation_pairs, state.clock
        stream = rng.stream(self.key, Purpose.ATTRIBUTION, round=clock.episode, epoch=clock.epoch)
        noise = rng.uniform(stream, pairs * slots).unflatten(-1, (pairs, slots))
        full = measuring(clock.epoch, every=spec.attribution.every, episode_length=spec.episode_length)
        return coalitions(state.slots, noise, pairs=pairs, full=full)

    def _action_noise(self, state: EnvState, purpose: Purpose) -> Tensor:
        stream = rng.stream(self.key, purpose, round=state.clock.episode, epoch=state.clock.epoch)
        return rng.gumbel(stream, noise_lanes(len(self.setup.net.slots)))

    def _sown(self, state: EnvState, born: Tensor, plan: Plan) -> EnvState:
        """The envs with the parameters of the seeds that were born.  born bool [E, S]."""
        rows = born_rows(born, plan)
        return sow(state, rows, self._birth_noise(state, rows), net=self.setup.net)

    def _birth_noise(self, state: EnvState, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Per slot, the noise of exactly the seeds that were born: float32 [n_s, P_s]."""
        net = self.setup.net
        sizes = zip(rows, net.slots, net.seed_sizes, net.gate_counts, strict=True)
        return tuple(self._seed_noise(state, row, slot, (size - gate, gate)) for row, slot, size, gate in sizes)

    def _seed_noise(self, state: EnvState, rows: Tensor, slot: SlotSpec, sizes: tuple[int, int]) -> Tensor:
        """Noise for the largest blueprint of a slot, then for its gate network."""
        rows = rows.clamp(max=self.key.shape[0] - 1)  # a padded row is no env; what is drawn for it is dropped
        when = {"round": state.clock.episode[rows], "epoch": state.clock.epoch[rows]}
        first = slot.execution * SLOT_LANES
        parts = zip((Purpose.SEED_INIT, Purpose.GATE_INIT), sizes, strict=True)
        noise = [rng.uniform(rng.stream(self.key[rows], what, **when), count, first=first) for what, count in parts]
        return torch.cat(noise, dim=-1)

    def _train(self, state: EnvState, plan: Plan) -> tuple[EnvState, TrainMetrics]:
        """All minibatches of the epoch."""
        setup, spec = self.setup, self.setup.spec
        draws = setup.feed.epoch(state)
        progress = start_epoch(state, plan, net=setup.net)
        for minibatch in range(spec.data.minibatches):
            batch = setup.feed.batch(draws, minibatch)
            progress, _ = train_minibatch(
                progress, batch, plan, net=setup.net, spec=spec.host, lifecycle=spec.lifecycle
            )
        return finish_epoch(state, progress, plan, net=setup.net)

    def _score(
        self,
        state: EnvState,
        outcome: ActionOutcome,
        worth: Attribution,
        report: GovernorReport,
        validation: Validation,
        *,
        before: EnvState,
        size: Tensor,
    ) -> tuple[EnvState, Score]:
        setup = self.setup
        return score(
            state,
            outcome,
            worth,
            report,
            validation,
            before=before,
            host_params=size,
            rule=setup.rule,
            net_counts=setup.net.counts,
            gate_counts=setup.net.gate_counts,
            param_budget=setup.budget,
            target_loss=setup.task.target_loss,
            episode_length=setup.spec.episode_length,
        )
