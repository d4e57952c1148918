"""One epoch of all envs, read top to bottom: the order of the steps, the noise they are given, the plan fence.

Training, evaluation and every baseline run through this one path.
"""

from dataclasses import dataclass
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.data.feed import Feed
from morphogen.data.instances import draw_instances
from morphogen.data.stream import Streamed
from morphogen.device.profiler import NO_TIMER, NoTimer
from morphogen.device.transfers import Fences
from morphogen.engine import phases
from morphogen.engine.action_control import Narrowing
from morphogen.engine.compile import Compiled
from morphogen.engine.setup import Setup
from morphogen.nets import plan as plans
from morphogen.nets.plan import Plan
from morphogen.nets.policy import Policy
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, GovernorReport, Score, TickReport, TrainMetrics, Validation
from morphogen.state.tree_ops import lift
from morphogen.steps.attribute import attribute
from morphogen.steps.govern import first_snapshot
from morphogen.steps.reset import reset
from morphogen.vocab.purpose import Purpose


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


def _epoch(before: EnvState, top: phases.Head, rest: phases.Body) -> Epoch:
    """Everything by its name."""
    names = ("observation", "masks", "missed", "choice", "acted", "outcome", "ticked", "ticks")
    found = {name: getattr(top, name) for name in names}
    return Epoch(before=before, train=rest.train, validation=rest.validation, **found, **rest.tail._asdict())


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
        envs: int | Tensor,
        tasks: Tensor | None = None,
        control: Narrowing | None = None,
        compiled: Compiled | None = None,
        timer: NoTimer = NO_TIMER,
    ) -> None:
        """`envs`: how many from `first` on, or their keys int64 [E, 3]; `compiled` None: everything runs eager.

        `tasks`: the keys that instances are drawn from, where they are not those of the envs.  Worlds with equal
        tasks are siblings: the same classes, samples and prices; other hosts, batches and noise.  Keys lie on the host.
        """
        own = rng.env_keys(setup.spec.seed, first, envs) if isinstance(envs, int) else envs
        drawn = own if tasks is None else tasks
        self.setup, self.fences, self.purpose, self.control = setup, fences, instances, control
        self.key, self.tasks = own.to(setup.device), drawn.to(setup.device)
        self.feed: Feed = setup.feed or Streamed(
            setup.dataset,
            setup.task,
            setup.spec,
            fences=fences,
            key=own,
            tasks=drawn,
            purpose=instances,
        )
        self.compiled = Compiled() if compiled is None else compiled
        self.timer = timer

    def reset(self, episode: int) -> EnvState:
        """Fresh envs, validated once, so that the first observation is measured."""
        return self.begin(self.born(episode), episode, plans.bare_plan(self.key.shape[0], self.setup.net))

    def begin(self, state: EnvState, episode: int, plan: Plan) -> EnvState:
        """Envs that were put together for an episode, validated under their plan: what its first epoch starts from."""
        setup = self.setup
        self.go_on(episode, 0)
        asked = phases.asked(state, self.key, setup=setup)
        _, own = self._fitted(plan)
        validation = own.validate(state, setup.dataset.validation(), *asked)
        measured, _ = attribute(state, validation, **phases.measured(setup))
        return first_snapshot(measured)

    def go_on(self, episode: int, epoch: int) -> None:
        """The epochs from this one on are asked for next."""
        self.feed.start(episode, epoch)

    def born(self, episode: int) -> EnvState:
        """Fresh envs, not yet measured."""
        setup, spec = self.setup, self.setup.spec
        when = torch.full_like(self.key[:, 0], episode)
        instance = draw_instances(
            self.tasks, when, task=setup.task, spec=spec, labels=setup.dataset.labels, purpose=self.purpose
        )
        noise = rng.uniform(rng.stream(self.key, Purpose.HOST_INIT, round=when), setup.net.host_size)
        ledger = setup.rule.init(self.key.shape[0], len(setup.net.slots), setup.device)
        return reset(
            self.key, instance, noise, episode=episode, ledger=ledger, net=setup.net, window=spec.governor.window
        )

    def epoch(self, state: EnvState, policy: Policy, params: TensorDict, hidden: TensorDict) -> Epoch:
        """One epoch: act, train, measure, judge, pay."""
        setup = self.setup
        self.timer.mark("head")
        head = partial(phases.head, setup=setup, policy=policy, narrowed=self.control)
        top = self.compiled.unit("head", head)(state, params, hidden, self.key)
        self.timer.mark("plan_wait")
        plan, own = self._fitted(plans.read_plan(self.fences.plan(top.counts), setup.net))
        rest = phases.body(state, top, self.key, plan, own=own, feed=self.feed, setup=setup, timer=self.timer)
        return _epoch(state, top, rest)

    def close(self) -> None:
        """End what runs beside the epochs: no more of them are wanted, or something went wrong."""
        self.feed.close()

    def _fitted(self, plan: Plan) -> tuple[Plan, phases.Pieces]:
        """The plan as it is run, and its units."""
        fitted = self.compiled.fit(plan, self.key.shape[0])
        plain = phases.pieces(fitted.plan, setup=self.setup)
        keys = (fitted.train, fitted.validate, "tail")
        return fitted.plan, phases.Pieces(*map(self.compiled.unit, keys, plain))
