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
from morphogen.data.stream import StreamedFeed
from morphogen.device.profiler import NULL_TIMER, NullTimer
from morphogen.device.transfers import Transfers
from morphogen.engine import phases
from morphogen.engine.action_control import ActionControl
from morphogen.engine.compile import CompiledUnits
from morphogen.engine.setup import Setup
from morphogen.nets import plan as plans
from morphogen.nets.plan import Plan
from morphogen.nets.policy import Policy
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActionOutcome, ActOutput, Observation
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, GovernorReport, StepScore, TickReport, TrainMetrics, Validation
from morphogen.state.tree_ops import expand_mask
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
    score: StepScore
    host_params: Tensor  # int64 [E]
    seed_params: Tensor  # int64 [E, S], of the seeds that trained


def _collect_epoch(before: EnvState, top: phases.ActPhase, rest: phases.TrainPhase) -> Epoch:
    """Everything by its name."""
    names = ("observation", "masks", "missed", "choice", "acted", "outcome", "ticked", "ticks")
    found = {name: getattr(top, name) for name in names}
    return Epoch(before=before, train=rest.train, validation=rest.validation, **found, **rest.tail._asdict())


def reset_hidden(hidden: TensorDict, terminated: Tensor) -> TensorDict:
    """Memory for the next epoch: empty where a segment ended.  hidden [E], terminated bool [E]."""
    return hidden.apply(lambda leaf: torch.where(expand_mask(terminated, leaf), torch.zeros_like(leaf), leaf))


class VectorEnv:
    """The envs of one process on one stream of instances, moved epoch by epoch.  `control` narrows every choice."""

    def __init__(
        self,
        setup: Setup,
        transfers: Transfers,
        *,
        instances: Purpose,
        first: int = 0,
        envs: int | Tensor,
        tasks: Tensor | None = None,
        control: ActionControl | None = None,
        compiled: CompiledUnits | None = None,
        timer: NullTimer = NULL_TIMER,
    ) -> None:
        """`envs`: how many from `first` on, or their keys int64 [E, 3]; `compiled` None: everything runs eager.

        `tasks`: the keys that instances are drawn from, where they are not those of the envs.  Worlds with equal
        tasks are siblings: the same classes, samples and prices; other hosts, batches and noise.  Keys lie on the host.
        """
        own = rng.env_keys(setup.spec.seed, first, envs) if isinstance(envs, int) else envs
        drawn = own if tasks is None else tasks
        self.setup, self.transfers, self.purpose, self.control = setup, transfers, instances, control
        self.key, self.tasks = own.to(setup.device), drawn.to(setup.device)
        self.feed: Feed = setup.feed or StreamedFeed(
            setup.dataset,
            setup.task,
            setup.spec,
            transfers=transfers,
            key=own,
            tasks=drawn,
            purpose=instances,
        )
        self.compiled = CompiledUnits() if compiled is None else compiled
        self.timer = timer

    def reset(self, episode: int) -> EnvState:
        """Fresh envs, validated once, so that the first observation is measured."""
        return self.start_episode(
            self.init_state(episode), episode, plans.empty_plan(self.key.shape[0], self.setup.net)
        )

    def start_episode(self, state: EnvState, episode: int, plan: Plan) -> EnvState:
        """Envs that were put together for an episode, validated under their plan: what its first epoch starts from."""
        setup = self.setup
        self.resume_data_at(episode, 0)
        asked = phases.requested_coalitions(state, self.key, setup=setup)
        _, own = self._fit_plan(plan)
        validation = own.validate(state, setup.dataset.validation(), *asked)
        measured, _ = attribute(state, validation, **phases.attribution_args(setup))
        return first_snapshot(measured)

    def resume_data_at(self, episode: int, epoch: int) -> None:
        """The epochs from this one on are asked for next."""
        self.feed.start(episode, epoch)

    def init_state(self, episode: int) -> EnvState:
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
        head = partial(phases.act_phase, setup=setup, policy=policy, action_control=self.control)
        top = self.compiled.unit("head", head)(state, params, hidden, self.key)
        self.timer.mark("plan_wait")
        plan, own = self._fit_plan(plans.read_plan(self.transfers.read_counts(top.counts), setup.net))
        rest = phases.train_phase(state, top, self.key, plan, fns=own, feed=self.feed, setup=setup, timer=self.timer)
        return _collect_epoch(state, top, rest)

    def close(self) -> None:
        """End what runs beside the epochs: no more of them are wanted, or something went wrong."""
        self.feed.close()

    def _fit_plan(self, plan: Plan) -> tuple[Plan, phases.PhaseFns]:
        """The plan as it is run, and its units."""
        fitted = self.compiled.fit(plan, self.key.shape[0])
        plain = phases.phase_fns(fitted.plan, setup=self.setup)
        keys = (fitted.train, fitted.validate, "tail")
        return fitted.plan, phases.PhaseFns(*map(self.compiled.unit, keys, plain))
