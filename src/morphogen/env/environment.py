"""The functional environment: many hosts that grow, moved epoch by epoch by actions.

    env = make("digits", envs=32, seed=0)
    state, inputs = env.reset()
    state, step = env.step(state, actions.random(env, state, inputs))

`Environment.advance` is the only place that holds the order of an epoch.  Training, evaluation,
search and every baseline move their envs through it.  The steps inside a phase are in `env.phases`.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from morphogen.config.parts import FEEDS
from morphogen.config.spec import RunSpec
from morphogen.data.feed import Feed
from morphogen.data.instances import TRAINING_INSTANCES, InstanceSplit, draw_instances
from morphogen.device.profiler import NULL_TIMER, NullTimer
from morphogen.device.transfers import Transfers
from morphogen.env import phases
from morphogen.env.action_control import ActionControl
from morphogen.env.action_tensors import check_form, to_tensor
from morphogen.env.capture import Capture, open_capture
from morphogen.env.phases import ActPhase, PolicyInputs, ScorePhase, Step
from morphogen.env.pieces import split_envs
from morphogen.env.setup import Setup
from morphogen.env.units import Units
from morphogen.errors import ConfigError
from morphogen.hosts import plan as plans
from morphogen.hosts.net import Net
from morphogen.hosts.plan import EpochPlan
from morphogen.rules.rewards.protocol import Rule
from morphogen.state import rng, tree_ops
from morphogen.state.env import EnvState, Instance
from morphogen.state.tree_ops import refuse_transforms
from morphogen.steps.govern_step import first_snapshot
from morphogen.steps.observe_step import StateFacts, state_facts
from morphogen.steps.reset_step import reset
from morphogen.vocab.limits import Limits
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.text import short_repr

Action = Tensor | TensorDictBase  # int64 [E, 8], or a leaf int64 [E] per head


@short_repr
@dataclass(frozen=True, slots=True)
class Environment:
    """Envs with fixed keys, task and networks; it does not hold their state.  `make` and
    `open_environment` build it.

    Promises: no function writes to its arguments; the same state and action give the same result,
    bit for bit; an env does not depend on the number of other envs.  The envs are the batch:
    transforms of `torch.func` take reward rules and policies, but no step of an environment.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, inputs = env.reset()
        >>> after, step = env.step(state, mg.actions.wait(env))
        >>> state.clock.epoch.tolist(), after.clock.epoch.tolist()
        ([0, 0], [1, 1])
        >>> after, inputs = env.restart(after, torch.tensor([True, False]))
        >>> after.clock.episode.tolist(), after.clock.epoch.tolist()
        ([1, 0], [0, 1])
    """

    setup: Setup
    keys: Tensor
    """int64 [E, 3], of hosts, batches and noise."""
    tasks: Tensor
    """int64 [E, 3], that instances are drawn from; envs with equal tasks are siblings."""
    action_keys: Tensor
    """int64 [E, 3], of the noise of actions; envs with equal keys may differ here."""
    host_keys: tuple[Tensor, Tensor, Tensor]
    """All three, on the host."""
    split: InstanceSplit
    control: ActionControl | None
    """Narrows every choice; None: every legal action."""
    feed: Feed
    transfers: Transfers
    compiled: Units
    capture: Capture
    """Loops of training and validation."""
    timer: NullTimer

    @property
    def spec(self) -> RunSpec:
        """Every setting, resolved."""
        return self.setup.spec

    @property
    def net(self) -> Net:
        """Layout of hosts, slots and seeds."""
        return self.setup.net

    @property
    def rule(self) -> Rule:
        """Rule of the reward."""
        return self.setup.rule

    @property
    def limits(self) -> Limits:
        """Limits on actions."""
        return self.setup.limits

    @property
    def horizon(self) -> int:
        """Epochs of an episode."""
        return self.spec.episode_length

    @property
    def envs(self) -> int:
        """Number of envs."""
        return self.keys.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of all states."""
        return self.setup.device

    @property
    def ledger(self) -> dict[str, int]:
        """Transfers between host and device so far, by the names of `device.transfers.FENCES`."""
        return dict(self.transfers.ledger)

    def reset(self, episode: int | Tensor = 0) -> tuple[EnvState, PolicyInputs]:
        """Return fresh envs, validated once, and the inputs of a policy.

        Args:
            episode: number of the episode in the stream of instances, for all envs or int64 [E].

        Returns: EnvState [E] and PolicyInputs [E].  No transfer; with seeds of `host.weights` one
        `plan` transfer.
        Raises: ConfigError for a negative number.
        """
        if isinstance(episode, int) and episode < 0:
            raise ConfigError(f"episode: expected >= 0, got {episode}")
        first = self.split.first_episode
        # a copied number would wait
        number = torch.full((self.envs,), first, device=self.device) + episode
        if isinstance(episode, int):  # starts to prefetch streamed data
            self.feed.seek((episode + self.split.first_episode,) * self.envs + (0,) * self.envs)
        return self.start(self.init_state(number))

    def restart(self, state: EnvState, rows: Tensor) -> tuple[EnvState, PolicyInputs]:
        """Begin the next episode of some envs; the others stay as they are, bit for bit.

        Shapes: state [E]; rows bool [E], True = restart -> EnvState [E], PolicyInputs [E].
        Transfers as of `reset`.
        Raises: ConfigError for rows of another shape.
        """
        check_form("rows", rows, torch.bool, (self.envs,))
        fresh, _ = self.start(self.init_state(state.clock.episode + 1))
        after = tree_ops.select(rows, fresh, state)
        return after, self.observe(after)

    def step(self, state: EnvState, action: Action) -> tuple[EnvState, Step]:
        """Run one epoch: act, plan, train, validate, score, observe.

        An illegal action does nothing; `Step.outcome` holds the reason.

        Args:
            state: EnvState [E].
            action: int64 [E, 8] in the order of `vocab.action.Head`, or a TensorDict with a leaf
            int64 [E] per head.

        Returns: EnvState [E] for the next epoch, and a Step.  An env at its horizon stays there
            until `restart`: the state keeps its bits, whatever the action; outcome ENDED, reward 0,
            terminated True.
        Raises: ConfigError for a state or an action of another shape; RuntimeError for a derivative
            or `vmap`, whose result would be wrong.
        """
        return self.advance(state, action)

    def advance(
        self,
        state: EnvState,
        action: Action,
        *,
        facts: StateFacts | None = None,
        plan: EpochPlan | None = None,
    ) -> tuple[EnvState, Step]:
        """Run one epoch like `step`, with intermediate results that are known already.

        Args:
            state, action: as of `step`.
            facts: of `PolicyInputs.facts` for this very state; None computes them.
            plan: of `plan` for this very state and action; None reads it from the device: the one
                transfer of a step.

        Nothing checks that facts and plan belong to the state: that would wait for the device.
        """
        mark = self.timer.mark
        kind = self.setup.kind
        mark("head")
        facts = self._facts(state) if facts is None else facts
        act = self._act(state, action, facts)
        mark("plan_wait")
        plan = self.read_plan(act.counts, act.ticked) if plan is None else plan
        self.feed.seek(plan.position)
        mark("train")
        trained, metrics = kind.train(self, act, plan)
        mark("validate")
        validation = kind.validate(self, trained, (act.coalition, act.evaluated), plan)
        mark("tail")
        score_epoch = self.compiled.unit("score", partial(phases.score_phase, setup=self.setup))
        score = score_epoch(trained, act.outcome, validation, metrics, state, facts=facts)
        after, next_facts = self._enter_epoch(score)
        inputs = self._observe(after, next_facts)
        step = Step(
            acted=act.acted,
            outcome=act.outcome,
            ticked=act.ticked,
            ticks=act.ticks,
            metrics=metrics,
            validation=validation,
            measured=score.measured,
            governed=score.governed,
            report=score.report,
            score=score.score,
            host_params=facts.host_params,
            seed_params=score.seed_params,
            inputs=inputs,
        )
        if plan.ended:
            after, step = phases.hold_ended(state, after, step, horizon=self.horizon)
            step = step._replace(inputs=self.observe(after))
        return after, step

    def plan(self, state: EnvState, action: Action) -> EpochPlan:
        """Return the plan that the step with this action needs; one `plan` transfer, the host
        waits.
        """
        act = self._act(state, action, self._facts(state))
        return self.read_plan(act.counts, act.ticked)

    def observe(self, state: EnvState) -> PolicyInputs:
        """Return the inputs of a policy: features and legal choices, [E]."""
        return self._observe(state, self._facts(state))

    def _observe(self, state: EnvState, facts: StateFacts) -> PolicyInputs:
        observe = partial(phases.observe_phase, setup=self.setup, control=self.control)
        return self.compiled.unit("observe", observe)(state, self.keys, facts)

    def init_state(self, episode: Tensor) -> EnvState:
        """Return fresh envs, not yet measured.  episode int64 [E], counted from 0 over all
        streams.
        """
        refuse_transforms("Environment.reset", episode)
        instance = self._draw_instance(episode, torch.zeros_like(episode))
        window = self.spec.governor.window
        noise = rng.uniform(
            rng.stream(self.keys, Purpose.HOST_INIT, round=episode), self.net.host_size
        )
        ledger = self.rule.init(self.envs, len(self.net.slots), self.device)
        return reset(
            self.keys, instance, noise, episode=episode, ledger=ledger, net=self.net, window=window
        )

    def start(self, state: EnvState, born: Tensor | None = None) -> tuple[EnvState, PolicyInputs]:
        """Validate prepared envs; return the state that their first epoch starts from.

        born: bool [E, S], slots whose seeds get fresh parameters; None: of no slot.  Envs without
        seeds need no transfer, others a `plan` transfer.
        """
        _refuse_transforms("start", state)
        coalitions = phases.requested_coalitions(state, self.keys, setup=self.setup)
        if born is None and not self.net.start[1:]:
            pieces = split_envs(self.envs, self.setup.piece_envs)
            plan = EpochPlan(
                tuple(plans.empty_plan(rows.stop - rows.start, self.net) for rows in pieces)
            )
        else:
            born = torch.zeros_like(state.slots.vanishing) if born is None else born
            counts = phases.count_pieces(state.slots, *coalitions, born, setup=self.setup)
            plan = self.read_plan(counts, state)
            state = phases.init_new_seeds(state, born, self.keys, plan, setup=self.setup)
        validation = self.setup.kind.validate(self, state, coalitions, plan)
        measured, _ = phases.attribute_seeds(state, validation, setup=self.setup)
        ready = first_snapshot(measured)
        return ready, self.observe(ready)

    def read_plan(self, counts: Tensor, state: EnvState) -> EpochPlan:
        """Read the sizes of an epoch on the host; waits for the device.  counts of
        `phases.count_pieces`.
        """
        ended = (state.clock.epoch >= self.horizon).sum(0, keepdim=True, dtype=torch.int32)
        position = [leaf.to(torch.int32) for leaf in self.feed.position(state)]
        numbers = self.transfers.read_counts(torch.cat((counts, ended, *position)))
        return plans.read_epoch_plan(
            numbers, self.net, len(split_envs(self.envs, self.setup.piece_envs))
        )

    def with_seed(self, seed: int) -> "Environment":
        """Return the environment of another seed: other hosts, tasks, batches and noise, everything
        else alike.

        Raises: ConfigError for a seed out of range.
        """
        setup = replace(self.setup, spec=replace(self.spec, seed=seed))
        words = rng.env_keys(setup.spec.seed, 0, 1)[:, :2].expand(self.envs, -1)
        keys, tasks, actions = (torch.cat((words, key[:, 2:]), dim=-1) for key in self.host_keys)
        env = open_environment(
            setup,
            envs=keys,
            tasks=tasks,
            actions=actions,
            split=self.split,
            control=self.control,
            transfers=self.transfers,
        )
        return replace(env, compiled=self.compiled, capture=self.capture, timer=self.timer)

    def close(self) -> None:
        """Stop prefetching streamed data; no epochs follow."""
        self.feed.close()

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self, state: EnvState) -> StateFacts:
        return state_facts(state, self.limits, net=self.net)

    def _draw_instance(self, episode: Tensor, epoch: Tensor) -> Instance:
        dataset = self.setup.dataset
        return draw_instances(
            self.tasks,
            episode,
            epoch,
            spec=self.spec,
            labels=dataset.labels,
            purpose=self.split.purpose,
            criterion=dataset.criterion,
        )

    def _enter_epoch(self, score: ScorePhase) -> tuple[EnvState, StateFacts]:
        """Return the envs in the world of their next epoch, and their facts."""
        after = score.after
        clock = score.after.clock
        if not self.setup.process.changes:
            return after, score.facts
        after = tree_ops.replace(after, instance=self._draw_instance(clock.episode, clock.epoch))
        return after, self._facts(after)

    def _act(self, state: EnvState, action: Action, facts: StateFacts) -> ActPhase:
        if state.batch_size != self.keys.shape[:1]:
            raise ConfigError(f"state: expected {self.envs} envs, got {state.batch_size[0]}")
        action = to_tensor(action, self.envs)
        _refuse_transforms("step", state, action)
        unit = self.compiled.unit("apply", partial(phases.act_phase, setup=self.setup))
        return unit(state, action, self.keys, facts)


def _refuse_transforms(method: str, state: EnvState, *inputs: Tensor) -> None:
    """Raise RuntimeError under a derivative or `vmap`; the ledger may belong to a rule with
    parameters.
    """
    nodes: Any = state
    leaves = [leaf for path, leaf in nodes.items(True, True) if path[0] != "ledger"]
    refuse_transforms(f"Environment.{method}", *inputs, *leaves)


def open_environment(
    setup: Setup,
    *,
    envs: Tensor | None = None,
    tasks: Tensor | None = None,
    actions: Tensor | None = None,
    split: InstanceSplit = TRAINING_INSTANCES,
    control: ActionControl | None = None,
    transfers: Transfers | None = None,
) -> Environment:
    """Lay out the envs of a setup, eager; `dataclasses.replace` exchanges units, capture and timer.

    Args:
        envs: keys of the envs on the host, int64 [E, 3]; None: of the first envs, as many as the
            spec says.
        tasks: keys that instances are drawn from, int64 [E, 3]; None: the keys of the envs.  Envs
            with equal tasks are siblings: they share classes, samples and prices, and differ in
            hosts, batches and noise.
        actions: keys of the noise of actions, int64 [E, 3]; None: the keys of the envs.
    """
    key = rng.env_keys(setup.spec.seed, 0, setup.spec.envs) if envs is None else envs
    task_key = key if tasks is None else tasks
    action_key = key if actions is None else actions
    transfers = transfers or Transfers(setup.device, time.perf_counter)
    feed = setup.feed or FEEDS[setup.dataset.placement](
        setup.dataset,
        setup.spec,
        transfers=transfers,
        key=key,
        tasks=task_key,
        purpose=split.purpose,
        pieces=split_envs(len(key), setup.piece_envs),
    )
    return Environment(
        setup=setup,
        keys=key.to(setup.device),
        tasks=task_key.to(setup.device),
        action_keys=action_key.to(setup.device),
        host_keys=(key, task_key, action_key),
        split=split,
        control=control,
        feed=feed,
        transfers=transfers,
        compiled=Units(),
        capture=open_capture(setup),
        timer=NULL_TIMER,
    )
