"""The scheduler: the order of a run, read top to bottom.  run -> run_round -> run_epoch, one line a step.

It is the only place that decides when the host waits for the device; every crossing goes through `Fences`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict

from morphogen.device import cuda_memory
from morphogen.device.profiler import NO_TIMER, Timer
from morphogen.device.transfers import Fences
from morphogen.engine.action_control import Control
from morphogen.engine.compile import Compiled
from morphogen.engine.epoch import Epoch, World, forget
from morphogen.engine.policies import arm_of
from morphogen.engine.record import record
from morphogen.engine.reporter import Reporter
from morphogen.engine.rollout_buffer import Rollout
from morphogen.engine.setup import Setup
from morphogen.errors import TrainingDiverged
from morphogen.learn.rollout_stats import survey
from morphogen.learn.schedule import coefficients
from morphogen.learn.update import deal, init_learner, minibatch_step, update
from morphogen.nets.policy import Policy, RecurrentPolicy
from morphogen.state import rng
from morphogen.state.env import EnvState
from morphogen.telemetry.dispatch import AnySink
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.round_summary import Compiling, Costs
from morphogen.vocab.purpose import Purpose

STRIKES = 3  # rounds in a row without one applied optimiser step


@dataclass(frozen=True, slots=True)
class Parts:
    """What can be handed in instead of the production default.  None = the default."""

    policy: Policy | None = None  # acts without being trained; default: as the spec names it
    control: Control | None = None  # narrows what the policy may choose; default: as the spec names it
    sinks: Sequence[AnySink] = ()  # each may also be a function of a list of events
    clock: Callable[[], float] = time.perf_counter
    compiler: Callable[..., Callable] = torch.compile  # where the spec asks for compiled units
    on_epoch: Callable[[int, int], None] | None = None  # (round, epoch) after each epoch
    halt: Callable[[], object] = lambda: False  # asked between epochs: whether to save the run and stop it


class Moment(NamedTuple):
    """When a round began, or went on."""

    seconds: float
    stood: float  # seconds in fences, so far
    compiled: Compiling
    epoch: int


class Scheduler:
    """One run: its envs, its policy, its crossings."""

    def __init__(self, setup: Setup, parts: Parts = Parts()) -> None:
        spec = setup.spec
        self.setup, self.parts = setup, parts
        self.fences = Fences(setup.device, parts.clock)
        self.reporter = Reporter(setup, parts.sinks)
        arm = arm_of(spec.policy_name, setup)
        self.policy, self.control = parts.policy or arm.policy, parts.control or arm.control
        self.compiled = Compiled(spec.engine, compiler=parts.compiler, clock=parts.clock)
        profiled = spec.engine.phase_profile
        self.timer = Timer(setup.device, apart=lambda: self.compiled.done.compile_s) if profiled else NO_TIMER
        self.world = World(
            setup,
            self.fences,
            instances=Purpose.INSTANCE,
            envs=spec.envs,
            control=self.control,
            compiled=self.compiled,
            timer=self.timer,
        )
        key = rng.env_keys(spec.seed, 0, 1, setup.device)[0]
        self.learner = init_learner(self.policy, key) if isinstance(self.policy, RecurrentPolicy) else None
        self.params = self.policy.init(key) if self.learner is None else self.learner.params
        self.rollout = Rollout(spec.episode_length, envs=spec.envs, slots=len(setup.net.slots), device=setup.device)
        self.round = self.epoch = 0  # the next epoch to run
        self.state: EnvState | None = None
        self.hidden, self.segment = self._forgotten()
        self._unread: int | None = None  # the epoch whose record is on its way

    def run(
        self, on_round: Callable[[BatchSummary], bool | None] | None = None, *, halt: Callable[[], bool] = lambda: False
    ) -> tuple[BatchSummary, ...]:
        """All rounds that are left; `on_round` returning False stops after the round, `halt()` between two epochs."""
        with closing(self.world):
            return tuple(self._rounds(on_round, halt))

    def _rounds(
        self, on_round: Callable[[BatchSummary], bool | None] | None, halt: Callable[[], bool]
    ) -> Iterator[BatchSummary]:
        while self.round < self.setup.spec.rounds:
            summary = self.run_round(halt)
            if summary is None:
                return
            yield summary
            if on_round is not None and on_round(summary) is False:
                return

    def run_round(self, halt: Callable[[], bool] = lambda: False) -> BatchSummary | None:
        """What is left of one episode of all envs, then one update of the policy; None if it was halted before."""
        started = Moment(self._running(), self.fences.stood, self.compiled.done, self.epoch)
        state = self._entered()
        while True:
            epoch = self.run_epoch(state, self.hidden, self.segment, self.epoch)
            self.state, self.segment = state, _ = epoch.after, epoch.score.terminated
            self.hidden = forget(epoch.choice.hidden, self.segment)
            self.epoch += 1
            if self.epoch == self.setup.spec.episode_length:
                return self._close_round(started, epoch.choice.hidden)
            if halt():
                return None

    def _entered(self) -> EnvState:
        """The state before the next epoch: fresh envs where a round begins."""
        if self.epoch == 0 or self.state is None:
            self.timer.mark("reset")
            self.state = self.world.reset(self.round)
            self.hidden, self.segment = self._forgotten()
        return self.state

    def _forgotten(self) -> tuple[TensorDict, torch.Tensor]:
        """Memory and marks before the first epoch of a round, in which every row starts a segment."""
        envs, where = self.setup.spec.envs, self.setup.device
        return self.policy.initial_hidden(envs, device=where), torch.ones(envs, dtype=torch.bool, device=where)

    def run_epoch(self, state: EnvState, hidden: TensorDict, segment: torch.Tensor, t: int) -> Epoch:
        """One epoch; the record of the one before is read meanwhile.  segment bool [E]: rows that start a segment."""
        epoch = self.world.epoch(state, self.policy, self.params, hidden)
        self.rollout.write(t, epoch, segment)
        self.timer.seal("record_read")
        self.fences.send("record", record(epoch), t % 2)
        unread, self._unread = self._unread, t
        if unread is not None:
            self._read(unread)
        if self.parts.on_epoch is not None:
            self.parts.on_epoch(self.round, t)
        return epoch

    def catch_up(self) -> None:
        """Take in the record that is on its way, if there is one."""
        unread, self._unread = self._unread, None
        if unread is not None:
            self._read(unread)

    def _read(self, t: int) -> None:
        """Take in the record of an epoch of this round."""
        record = self.fences.receive("record", t % 2)
        self.timer.take()
        self.reporter.take(record, (self.round, t))
        if self.control is not None:
            self.control.heed(record["missed"], t, f"round {self.round}")

    def _running(self) -> float:
        """The clock, which stands still where a graph is made."""
        return self.parts.clock() - self.compiled.done.compile_s

    def _close_round(self, started: Moment, hidden: TensorDict) -> BatchSummary:
        rolled = self._running()
        self.timer.mark("update")
        leaves = self._update(hidden)
        self.timer.seal("update")
        metrics = self.fences.read("update", leaves)
        self.timer.take()
        updated = self._running()
        self.timer.mark("record_read")
        self.catch_up()
        summary = self.reporter.end_round(
            self.round,
            metrics,
            Costs(
                rollout_s=rolled - started.seconds,
                update_s=updated - rolled,
                waited_s=self.fences.stood - started.stood,
                compiling=self.compiled.done.since(started.compiled),
                phases={phase: spent._asdict() for phase, spent in self.timer.close().items()},
                memory=cuda_memory.memory(self.setup.device),
                env_epochs=self.setup.spec.envs * (self.epoch - started.epoch),
            ),
        )
        self.compiled.learn(self.round, self.setup.spec.envs)
        self.round, self.epoch = self.round + 1, 0
        if metrics.get("skip_streak", 0) >= STRIKES:
            raise TrainingDiverged(_stuck(metrics, summary.round, self.setup.spec.envs))
        return summary

    def _update(self, hidden: TensorDict) -> TensorDict:
        """Train the policy on the rollout; what is told of both.  A baseline learns nothing.  hidden [E], the last."""
        spec, rows, used = self.setup.spec, self.rollout.rows, self.params.get("observation", None)
        if self.learner is None or not isinstance(self.policy, RecurrentPolicy):
            return survey(rows["observation"], hidden, None, None)
        self.learner, metrics = update(
            self.learner,
            rows,
            self._minibatches(),
            coefficients(spec.ppo, self.round),
            policy=self.policy,
            spec=spec.ppo,
            return_scale=spec.reward.return_scale,
            step=self.compiled.unit("update", minibatch_step),
        )
        self.params = self.learner.params
        return metrics.update(survey(rows["observation"], hidden, used, self.params["observation"]))

    def _minibatches(self) -> torch.Tensor:
        """Which envs each minibatch of each PPO epoch holds: int64 [K, n, E / n]."""
        spec = self.setup.spec
        n = spec.ppo.minibatches
        blocks = rng.env_keys(spec.seed, 0, spec.envs // n, self.setup.device)
        pass_ = torch.arange(spec.ppo.epochs, device=self.setup.device).unsqueeze(-1)
        stream = rng.stream(blocks, Purpose.PPO_MINIBATCH, round=self.round, epoch=pass_)
        return deal(rng.uniform(stream, n))


def _stuck(metrics: Mapping[str, Any], round: int, envs: int) -> str:
    """Why the policy takes no step any more, from the metrics of the last round."""
    count = {name: int(metrics[f"nonfinite.{name}"]) for name in ("rollout", "loss", "gradient", "step")}
    return (
        f"the policy took no step in {STRIKES} rounds in a row, the last of them round {round}. There "
        f"{count['rollout']} of {envs} envs had rewards, values or log-probabilities that are no sane numbers, and of "
        f"{int(metrics['steps_skipped'])} steps {count['loss']} had a loss, {count['gradient']} a gradient and "
        f"{count['step']} a result that is not finite. The network of the policy is as it was before these rounds"
    )
