"""Play frozen policies on held-out instances, through the same epochs as training; the evaluation
at a run's end.

All policies see the same instances, hosts and batches (common random numbers), so that differences
are paired.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from morphogen.config.registry import show_part
from morphogen.config.spec import RunSpec, SplitName, resolve
from morphogen.data.instances import HELD_OUT_INSTANCES, InstanceSplit
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import EpisodeTraces, fetch_traces, run_episodes
from morphogen.env.policies import Arm, build_arm, greedy_arm
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.evaluation.bootstrap import interval, stability
from morphogen.log.kinds.run import Evaluated, Interval
from morphogen.log.round_summary import running_value
from morphogen.policy.policy import Policy
from morphogen.state import rng
from morphogen.state.env import EnvState
from morphogen.vocab.objective import ACCURACY, DELIVERED, OBJECTIVES
from morphogen.vocab.plain import read_count

Array = np.ndarray[Any, Any]
SHARE_TITLE = "share of the optimal return: mean value over the value of the best possible policy"
TRAINED_ARM = "trained"  # the policy of the run
PLAY_METRICS = ("network_value", "committed_accuracy", "params_ratio", "success_share", "stability")


@dataclass(frozen=True, slots=True)
class ArmResult:
    """Results of `play`, one number per episode.  Accuracies in points; params: of the delivered
    network.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> result = mg.play(env, "wait")
        >>> result
        ArmResult(wait: network value 0.050, accuracy 5.0 %, 1.00 x the host; 2 episodes)
        >>> result.network_value.round(3), result.params
        (array([0. , 0.1], dtype=float32), array([ 72, 150]))
    """

    policy: str
    network_value: Array
    """float [n]."""
    committed_accuracy: Array
    """float [n]."""
    params: Array
    """int [n], host and fossils."""
    params_ratio: Array
    """float [n], the same over the host."""
    success_share: Array
    """float [n], 1 where the task's accuracy was reached."""
    stability: Array
    """float [n]."""
    rollbacks: Array
    """int [n]."""
    param_epochs: Array
    """int [n], parameters that trained, host and living seeds, summed over the epochs."""
    minibatches: Array
    """int [n], that each parameter of the host was trained with."""
    seconds: float
    """Wall clock of all episodes."""
    traces: EpisodeTraces
    """Epoch by epoch."""
    value_name: str = OBJECTIVES[DELIVERED]
    """Of `network_value`, by the objective of the task."""
    score_name: str = ACCURACY
    """Of the score of the task, in percent in `committed_accuracy`."""

    def __repr__(self) -> str:
        value, accuracy, size = (
            x.mean() for x in (self.network_value, self.committed_accuracy, self.params_ratio)
        )
        numbers = f"{self.value_name} {value:.3f}, {self.score_name} {accuracy:.1f} %, {size:.2f}"
        episodes = len(self.network_value)
        return f"ArmResult({self.policy}: {numbers} x the host; {episodes} episodes)"

    def to_event(self, *, split: SplitName, seed: int) -> Evaluated:
        """The numbers as an event, each with its 95 % interval."""
        intervals = {name: _event_interval(getattr(self, name), seed) for name in PLAY_METRICS}
        return Evaluated(episodes=len(self.network_value), split=split, **intervals)

    def table_row(self, reference: "ArmResult", *, seed: int) -> dict[str, object]:
        """Numbers as a row of the closing table, next to the run's own policy on the same
        instances.
        """
        _, low, high = interval(self.network_value, seed=seed)
        behind, least, most = interval(reference.network_value - self.network_value, seed=seed)
        return {
            "policy": self.policy,
            self.value_name: float(self.network_value.mean()),
            "95 % interval": f"{low:.3f} .. {high:.3f}",
            f"{self.score_name} %": float(self.committed_accuracy.mean()),
            "parameters": round(float(self.params.mean())),
            "x host": float(self.params_ratio.mean()),
            f"{reference.policy} minus arm": ""
            if reference is self
            else f"{behind:+.3f} ({least:+.3f} .. {most:+.3f})",
        }

    def per_episode(self) -> dict[str, list[float]]:
        """Every number per episode, for a file."""
        return {
            name: getattr(self, name).tolist() for name in (*PLAY_METRICS, "params", "rollbacks")
        }

    def costs(self) -> dict[str, Any]:
        """Costs for a file: per episode, and the seconds of all."""
        costs = {name: getattr(self, name).tolist() for name in ("param_epochs", "minibatches")}
        return {**costs, "kept": self.traces.fossil_blueprint.tolist(), "seconds": self.seconds}


def _event_interval(values: Array, seed: int) -> Interval:
    mean, low, high = interval(values, seed=seed)
    return Interval(mean=mean, low=low, high=high)


def play(
    env: Environment, arm: Arm | Policy | str, *, episodes: int | None = None, greedy: bool = False
) -> ArmResult:
    """Play a policy on the instances of an environment, without training it.

    Args:
        env: of `make`; `make(..., instances="held-out")` has instances that no training has seen.
        arm: name of a policy, as in `build_arm`; the arm itself, such as `TrainResult.arm`; or a
            policy, which plays with its initial parameters.
        episodes: number of episodes; None: one per env.
        greedy: take the likeliest actions instead of drawn ones.

    Returns: network value, accuracy, parameters and traces, arrays [n] and [T, n], in the order of
    the instances.
    Raises: ConfigError for an unknown name, ScheduleError for a schedule with an illegal action.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=4, seed=0, instances="held-out")
        >>> result = mg.play(env, "wait")
        >>> result.policy, result.network_value.shape
        ('wait', (4,))
    """
    if isinstance(arm, str):
        arm = build_arm(arm, env.setup)._replace(name=arm)
    if not isinstance(arm, Arm):
        if not hasattr(arm, "act"):
            raise ConfigError(f"arm: expected a name, an Arm or a Policy, got {show_part(arm)}")
        arm = Arm(arm, None, arm.init(env.keys[0]), type(arm).__name__)
    arm = greedy_arm(arm) if greedy else arm
    count = env.envs if episodes is None else read_count("episodes", episodes)
    return play_arm(env.setup, env.transfers, arm, name=arm.name, episodes=count, split=env.split)


def play_arm(
    setup: Setup,
    transfers: Transfers,
    arm: Arm,
    *,
    name: str,
    episodes: int,
    split: InstanceSplit = HELD_OUT_INSTANCES,
    ended: Callable[[EnvState], None] | None = None,
) -> ArmResult:
    """Run `episodes` episodes of a split, a part in each process; one `plan` crossing an epoch, one
    `result` in all.

    Episodes run in groups of `setup.spec.envs`; `ended` receives the state of each group after its
    last epoch.
    """
    began = time.perf_counter()
    envs = min(setup.spec.envs, episodes)
    keys = rng.env_keys(setup.spec.seed, 0, envs)[setup.exchange.places(envs)]
    with open_environment(
        setup, envs=keys, split=split, control=arm.control, transfers=transfers
    ) as env:
        counts = [envs] * -(-episodes // envs)
        parts = [
            run_episodes(env, *env.reset(episode), arm.policy, arm.params, ended=ended)
            for episode in range(len(counts))
        ]
    traces = fetch_traces(
        transfers, parts, exchange=setup.exchange, counts=counts, episodes=episodes
    )
    if arm.control is not None:  # raises ScheduleError where a declared action was not legal
        for epoch, missed in enumerate(traces.missed):
            for first in range(0, len(missed), envs):
                arm.control.check_missed(missed[first : first + envs], epoch, split.label)
    return build_result(setup, traces, name=name, seconds=time.perf_counter() - began)


def build_result(setup: Setup, traces: EpisodeTraces, *, name: str, seconds: float) -> ArmResult:
    """Result of an arm on held-out instances."""
    host = traces.host_params
    accuracy = traces.committed_acc[-1]
    return ArmResult(
        policy=name,
        network_value=running_value(traces.network_value, setup.task.objective)[-1],
        value_name=setup.task.value_name,
        score_name=setup.task.score_name,
        committed_accuracy=accuracy,
        params=host + traces.fossil_params,
        params_ratio=1.0 + traces.fossil_params / host,
        success_share=(accuracy >= setup.task.success).astype(np.float64),
        stability=stability(traces.accuracy),
        rollbacks=traces.rollbacks,
        param_epochs=traces.cost[-1],
        minibatches=np.full_like(host, len(traces.trained_params) * setup.spec.data.minibatches),
        seconds=seconds,
        traces=traces,
    )


def evaluation_spec(spec: RunSpec, *, seed: int, envs: int) -> RunSpec:
    """Spec for an evaluation: seed and envs set the worlds, so that both runs of a pair see the
    same worlds.
    """
    return resolve(replace(spec, seed=seed, envs=envs, ppo=replace(spec.ppo, minibatches=None)))


def shares_of_optimum(
    setup: Setup, transfers: Transfers, results: Sequence[ArmResult]
) -> dict[str, float]:
    """Mean network value over the mean optimum of the same instances, by policy; empty for an
    unknown optimum.
    """
    if not results:
        return {}
    best = setup.kind.best_returns(setup, transfers, len(results[0].network_value))
    if best is None:
        return {}
    most = best.mean()
    return {result.policy: float(np.mean(result.network_value) / most) for result in results}


def share_table(shares: Mapping[str, float]) -> list[dict[str, object]]:
    """A row per policy; empty for an unknown optimum."""
    return [{"policy": name, "share": share} for name, share in shares.items()]
