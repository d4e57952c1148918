"""Order of a run, top to bottom: run -> run_round -> run_epoch.

The scheduler decides when the host waits for the device, as `Environment` does within an epoch;
every crossing goes through `device.transfers`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.registry import extra_parts
from morphogen.device import cuda_memory
from morphogen.device.profiler import NULL_TIMER, open_timer
from morphogen.device.transfers import Transfers
from morphogen.env.action_control import ActionControl
from morphogen.env.capture import Capture
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import Carry, Epoch, Rollout, first_carry, run_epoch
from morphogen.env.policies import Arm, build_arm, build_learner
from morphogen.env.setup import Setup
from morphogen.env.units import Units, open_units
from morphogen.errors import TrainingDiverged
from morphogen.kernels import one_thread
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.round_summary import NO_COMPILES, CompileStats, RoundCosts
from morphogen.log.writer import AnySink
from morphogen.ppo.learner import Round
from morphogen.state import rng
from morphogen.state.env import EnvState
from morphogen.state.loops import repeat
from morphogen.state.tree_ops import get_leaf
from morphogen.train.reporter import Reporter, build_record, send_record

DEMONSTRATOR = "heuristic"  # the policy that a learner may imitate at first
MAX_IDLE_ROUNDS = 3  # consecutive rounds without one applied optimiser step


# receives the summary of a round and the scheduler; False stops the run
OnRound = Callable[[BatchSummary, "Scheduler"], bool | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions that a run calls between epochs and between rounds.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(preset="tiny", rounds=9, envs=4, policy_name="wait", episode_length=2)
        >>> hooks = mg.Hooks(
        ...     on_round=lambda summary, scheduler: summary.round < 1
        ... )  # False stops the run
        >>> len(mg.train_ppo_vectorized(spec, parts=mg.Parts(hooks=hooks)).history)
        2
    """

    on_epoch: Callable[[int, int], None] | None = None
    """(round, epoch) after each epoch."""
    on_round: OnRound | None = None
    """After each round; False stops the run."""
    should_stop: Callable[[], object] = lambda: False
    """Asked between epochs; a true value stops the run there."""
    should_save: Callable[[], object] = lambda: False
    """Asked between epochs; a true value calls `save` there."""
    save: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a run that are no settings: sinks of events, hooks, clock, compiled units, capture.

    Example:
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 1,
        ...     "envs": 4,
        ...     "policy_name": "wait",
        ...     "episode_length": 2,
        ... }
        >>> spec = mg.RunSpec(**fields, final_episodes=0, telemetry={"level": "normal"})
        >>> events = []
        >>> result = mg.train_ppo_vectorized(spec, parts=mg.Parts(sinks=(events.extend,)))
        >>> "RoundCompleted" in {event.name for event in events}
        True
    """

    control: ActionControl | None = None
    """Narrows every choice; default: the schedule of the spec."""
    sinks: Sequence[AnySink] = ()
    """Objects, or functions of a list of events."""
    clock: Callable[[], float] = time.perf_counter
    compiled: Units | None = None
    """Default: as `engine.compile` says."""
    capture: Capture | None = None
    """Loops of training and validation; default: as `engine.capture` says."""
    hooks: Hooks = Hooks()


class RoundStart(NamedTuple):
    """Readings at the start of a round, or at its resumption."""

    seconds: float
    waited_s: float  # seconds in fences, so far
    epoch: int


class Scheduler:
    """One run in this process, round by round; it writes no files.

    Attributes for hooks and for a loop of your own: `round` and `epoch`, the next epoch to run;
    `carry`, with the states [E]; `policy` with its `params`; `arm`; `rollout`, rows of the round;
    `env`, the environment of the round.

    Args:
        setup: of `build_setup`.
        parts: sinks, hooks, clock, compiled units, capture.

    Raises: ConfigError for a policy that cannot be built; TrainingDiverged, ScheduleError while the
    run goes on.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(preset="tiny", rounds=2, envs=4, policy_name="wait", episode_length=2)
        >>> scheduler = mg.Scheduler(mg.build_setup(mg.resolve(spec)))
        >>> [round(summary.network_value_mean, 3) for summary in scheduler.run()], scheduler.round
        ([0.1, 0.075], 2)
    """

    def __init__(self, setup: Setup, parts: Parts = Parts()) -> None:
        spec = setup.spec
        self.setup = setup
        self.parts = parts
        self.transfers = Transfers(setup.device, parts.clock)
        self.exchange = setup.exchange
        self._own = self.exchange.own(spec.envs)  # envs in this process
        arm = build_arm(spec.policy_name, setup)
        self.policy: Any = arm.policy
        self.params = arm.params
        self.control = parts.control or arm.control
        self.compiled = parts.compiled or open_units(spec.engine, setup.device, parts.clock)
        self.timer = NULL_TIMER
        if spec.engine.phase_profile:
            self.timer = open_timer(setup.device, lambda: self.compiled.totals.compile_s)
        self.learner = build_learner(spec)
        self.demonstrated = 0 if self.learner is None else self.learner.demonstrations(spec)
        self._siblings = 1 if self.learner is None else spec.ppo.world_envs
        self.reporter = Reporter(
            setup, parts.sinks, demonstrated=self.demonstrated, siblings=self._siblings
        )
        self.round = self.epoch = 0  # the next epoch to run
        self.env = self._open_env(parts.capture)
        key = rng.env_keys(spec.seed, 0, 1, setup.device)[0]
        self._of_updates = self.exchange.of_updates(spec, self.learner)
        self.learned: Any = None  # state of the learner
        if self.learner is not None:
            self.learned = self.learner.init(self.policy, key, spec=spec)
            self.params = self.learned.get("params")
        self._demonstrator = build_arm(DEMONSTRATOR, setup) if self.demonstrated else None
        self.rollout = Rollout(
            spec.episode_length,
            envs=len(self._own),
            slots=len(setup.net.slots),
            device=setup.device,
        )
        self.carry: Carry | None = None  # None: no round has begun
        self._pending_record: int | None = None  # epoch whose record is being copied
        self._reported_graphs = NO_COMPILES  # graphs of a warm-up belong to the first round

    def run(self) -> tuple[BatchSummary, ...]:
        """Run all remaining rounds, unless a hook stops the run; return a summary per complete
        round.
        """
        on_round = self.parts.hooks.on_round
        summaries: list[BatchSummary] = []
        try:
            while self.round < self.setup.spec.rounds:
                summary = self.run_round()
                if summary is None:
                    break
                summaries.append(summary)
                halted = on_round is not None and on_round(summary, self) is False
                if self.round < self.setup.spec.rounds and self._pause(halted):
                    break
        finally:
            self.env.close()
        return tuple(summaries)

    def run_round(self) -> BatchSummary | None:
        """Run the rest of an episode of all envs, then update the policy; None if a hook stopped
        the episode.
        """
        start = RoundStart(self._elapsed_s(), self.transfers.total_wait_s, self.epoch)
        if self.epoch == 0 or self.carry is None:
            self.timer.mark("reset")
            self.carry = first_carry(self.env, self.actor.policy, self.round)
        while True:
            self.carry, epoch = self.run_epoch(self.carry, self.epoch)
            hidden = epoch.choice.hidden
            self.epoch += 1
            del epoch  # with the states within it, before the next one allocates its own
            if self.epoch == self.setup.spec.episode_length:
                return self._close_round(start, hidden)
            if self._pause():
                return None

    def run_epoch(self, carry: Carry, t: int) -> tuple[Carry, Epoch]:
        """Run epoch t, then read the record of the previous one."""
        actor = self.actor
        carry, epoch = run_epoch(self.env, actor.policy, actor.params, carry)
        self.rollout.write(t, epoch)
        self.timer.end_segment("record_read")
        send_record(self.transfers, build_record(epoch), t % 2)
        self.read_pending_record(t)
        if self.parts.hooks.on_epoch is not None:
            self.parts.hooks.on_epoch(self.round, t)
        return carry, epoch

    def _close_round(self, start: RoundStart, hidden: TensorDict) -> BatchSummary:
        """Update the policy, and sum up the round.  hidden [E], memory after the last epoch."""
        self.timer.mark("exchange")
        rows = self.rollout.rows
        if self._of_updates is not self.exchange:  # an update gets the rows of all envs
            rows, hidden = self.exchange.join_rollout(rows, hidden)
        rolled = self._elapsed_s()
        self.timer.mark("update")
        with one_thread(self.setup.device):
            leaves: Any = self._update(rows, hidden)
            leaves.update(self.exchange.fingerprint(self.params, self.setup.device))
        self.timer.end_segment("update")
        metrics = {} if leaves.is_empty() else self.transfers.read("update", leaves)
        self.exchange.check_fingerprint(metrics, self.round)
        self.timer.collect()
        updated = self._elapsed_s()
        graphs = self.graph_totals.difference(self._reported_graphs)
        self._reported_graphs = self.graph_totals
        self.timer.mark("record_read")
        self.read_pending_record()
        self.timer.mark("exchange")
        columns = self.reporter.gather()
        costs = RoundCosts(
            rollout_s=rolled - start.seconds,
            update_s=updated - rolled,
            waited_s=self.transfers.total_wait_s - start.waited_s,
            compile_stats=graphs,
            phases={phase: asdict(spent) for phase, spent in self.timer.close().items()},
            memory=cuda_memory.memory_stats(self.setup.device),
            env_epochs=self.setup.spec.envs * (self.epoch - start.epoch),
        )
        summary = self.reporter.end_round(self.round, columns, metrics, costs)
        self.move_to(self.round + 1, 0)
        if metrics.get("skip_streak", 0) >= MAX_IDLE_ROUNDS:
            raise TrainingDiverged(
                _divergence_message(metrics, summary.round, self.setup.spec.envs)
            )
        return summary

    def _update(self, rows: TensorDict, hidden: TensorDict) -> TensorDict:
        """Train the policy on rows [T, E]; return the metrics of both.  hidden [E], after the last
        epoch.
        """
        exchange = self._of_updates
        leaves: dict[str, Tensor] = {}
        scaling: tuple[Any, Any] = (None, None)  # of observations, before and after the update
        if self.learner is not None:
            before = self.params.get("observation", None)
            loop = self.env.capture.repeat if exchange.recordable else repeat
            turn = Round(self.setup.spec, self.round, exchange, loop, self.siblings)
            self.learned, metrics = self.learner.update(
                self.learned, rows, policy=self.policy, round=turn
            )
            self.params = self.learned.get("params")
            leaves = {"steps_done": torch.ones_like(get_leaf(rows, "reward")[0, 0]), **metrics}
            scaling = (before, self.params["observation"])
        for survey in extra_parts("morphogen.surveys").values():
            leaves |= survey(rows["observation"], hidden, *scaling, exchange)
        return TensorDict(leaves, batch_size=[])

    def _pause(self, halted: bool = False) -> bool:
        """Save between two epochs if that is due; return whether to stop here.  All processes
        decide alike.
        """
        hooks = self.parts.hooks
        wish = (bool(halted or hooks.should_stop()), bool(hooks.should_save()))
        stops, saves = (any(wishes) for wishes in zip(*self.exchange.facts(wish), strict=True))
        if saves and not stops:
            self.timer.mark("checkpoint")
            hooks.save()
        return stops

    def read_pending_record(self, sent: int | None = None) -> None:
        """Read the record that is being copied, if any; `sent`: the epoch whose record was sent
        after it.
        """
        t = self._pending_record
        self._pending_record = sent
        if t is None:
            return
        record = self.transfers.receive("record", t % 2)
        self.timer.collect()
        self.reporter.add_record(record)
        if self.control is not None:
            self.control.check_missed(record["missed"], t, f"round {self.round + 1}")

    def move_to(self, round: int, epoch: int) -> None:
        """Set the next epoch to run, with the envs of its round."""
        before = self.siblings
        self.round = round
        self.epoch = epoch
        if self.siblings != before:
            self.env.close()
            self.env = self._open_env(self.env.capture)

    def _open_env(self, capture: Capture | None) -> Environment:
        """Lay out the envs of this round."""
        spec = self.setup.spec
        own = self._own
        worlds = torch.arange(own.start, own.stop, device="cpu") // self.siblings
        env = open_environment(
            self.setup,
            envs=rng.env_keys(spec.seed, 0, spec.envs)[worlds],
            actions=rng.env_keys(spec.seed, own.start, len(own)),
            control=self.control,
            transfers=self.transfers,
        )
        capture = capture or env.capture
        return replace(env, compiled=self.compiled, capture=capture, timer=self.timer)

    def _elapsed_s(self) -> float:
        """Seconds of the clock without compiling."""
        return self.parts.clock() - self.compiled.totals.compile_s

    @property
    def state(self) -> EnvState | None:
        """State of the envs, [E]; None before the first round."""
        return None if self.carry is None else self.carry.state

    @property
    def siblings(self) -> int:
        """Consecutive envs that play the same world in this round; 1 if the demonstrator, which
        draws nothing, acts.
        """
        return 1 if self.round < self.demonstrated else self._siblings

    @property
    def graph_totals(self) -> CompileStats:
        """Counts of graphs so far, compiled and captured."""
        return self.compiled.totals._replace(graph_fallbacks=self.env.capture.fallbacks)

    @property
    def arm(self) -> Arm:
        """The policy of the run as it is now."""
        return Arm(self.policy, self.control, self.params, self.setup.spec.policy_name)

    @property
    def actor(self) -> Arm:
        """Arm that acts in this round: the arm of the run, or the one that its policy learns to
        imitate.
        """
        if self._demonstrator is None or self.round >= self.demonstrated:
            return self.arm
        return self._demonstrator


def _divergence_message(metrics: Mapping[str, Any], round: int, envs: int) -> str:
    """Explain why the policy takes no steps, from the metrics of the last round."""
    count = {
        name: int(metrics[f"nonfinite.{name}"]) for name in ("rollout", "loss", "gradient", "step")
    }
    return (
        f"the policy took no step in {MAX_IDLE_ROUNDS} consecutive rounds, the last of them round "
        f"{round + 1}. In this round {count['rollout']} of {envs} envs had non-finite or huge "
        f"rewards, values or log-probabilities, and of {int(metrics['steps_skipped'])} steps "
        f"{count['loss']} had a non-finite loss, {count['gradient']} a non-finite gradient and "
        f"{count['step']} a non-finite result. The policy network is unchanged since then"
    )
