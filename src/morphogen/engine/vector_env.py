"""Vectorized envs of one process: their keys, their data, and the units of a plan."""

import torch
from torch import Tensor

from morphogen.data.feed import Feed, StreamedFeed
from morphogen.data.instances import draw_instances
from morphogen.device.profiler import NULL_TIMER, NullTimer
from morphogen.device.transfers import Transfers
from morphogen.engine import phases
from morphogen.engine.action_control import ActionControl
from morphogen.engine.compile import CompiledUnits
from morphogen.engine.setup import Setup
from morphogen.nets import plan as plans
from morphogen.nets.plan import Plan
from morphogen.state import rng
from morphogen.state.env import EnvState
from morphogen.steps.govern import first_snapshot
from morphogen.steps.reset import reset
from morphogen.steps.score import attribute
from morphogen.vocab.purpose import Purpose


class VectorEnv:
    """Envs on one stream of instances; `engine.epoch.run_epoch` moves them.  `control` narrows every choice."""

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
        """Lay out the envs.

        Args:
            envs: the number of envs from `first` on, or their keys int64 [E, 3] on the host.
            tasks: keys that instances are drawn from, int64 [E, 3]; None: the keys of the envs.  Envs with equal tasks
                are siblings: they share classes, samples and prices, and differ in hosts, batches and noise.
            compiled: None runs everything eager.
        """
        key = rng.env_keys(setup.spec.seed, first, envs) if isinstance(envs, int) else envs
        task_key = key if tasks is None else tasks
        self.setup, self.transfers, self.purpose, self.control = setup, transfers, instances, control
        self.key, self.tasks = key.to(setup.device), task_key.to(setup.device)
        self.feed: Feed = setup.feed or StreamedFeed(
            setup.dataset, setup.task, setup.spec, transfers=transfers, key=key, tasks=task_key, purpose=instances
        )
        self.compiled = CompiledUnits() if compiled is None else compiled
        self.timer = timer

    def reset(self, episode: int) -> EnvState:
        """Return fresh envs, validated once, so that their first observation is complete."""
        plan = plans.empty_plan(self.key.shape[0], self.setup.net)
        return self.start_episode(self.init_state(episode), episode, plan)

    def start_episode(self, state: EnvState, episode: int, plan: Plan) -> EnvState:
        """Validate prepared envs under their plan; return the state that the episode's first epoch starts from."""
        setup = self.setup
        self.resume_data_at(episode, 0)
        coalitions = phases.requested_coalitions(state, self.key, setup=setup)
        _, units = self.fit_plan(plan)
        validation = units.validate(state, setup.dataset.validation(), *coalitions)
        measured, _ = attribute(state, validation, **phases.attribution_args(setup))
        return first_snapshot(measured)

    def resume_data_at(self, episode: int, epoch: int) -> None:
        """Position the data before an epoch."""
        self.feed.start(episode, epoch)

    def init_state(self, episode: int) -> EnvState:
        """Return fresh envs, not yet measured."""
        setup, spec = self.setup, self.setup.spec
        round = torch.full_like(self.key[:, 0], episode)
        instance = draw_instances(
            self.tasks, round, task=setup.task, spec=spec, labels=setup.dataset.labels, purpose=self.purpose
        )
        noise = rng.uniform(rng.stream(self.key, Purpose.HOST_INIT, round=round), setup.net.host_size)
        ledger = setup.rule.init(self.key.shape[0], len(setup.net.slots), setup.device)
        return reset(
            self.key, instance, noise, episode=episode, ledger=ledger, net=setup.net, window=spec.governor.window
        )

    def read_plan(self, counts: Tensor) -> Plan:
        """Read the sizes of the epoch on the host; waits for the device.  counts int32 [54 S]."""
        return plans.read_plan(self.transfers.read_counts(counts), self.setup.net)

    def fit_plan(self, plan: Plan) -> tuple[Plan, phases.PhaseFns]:
        """Return the plan, padded to a compiled signature if one covers it, and the units that run it."""
        fitted = self.compiled.fit(plan)
        eager = phases.phase_fns(fitted.plan, setup=self.setup)
        keys = (fitted.train, fitted.validate, "tail")
        return fitted.plan, phases.PhaseFns(*map(self.compiled.unit, keys, eager))

    def close(self) -> None:
        """Stop prefetching; no epochs follow."""
        self.feed.close()
