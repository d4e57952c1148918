"""Held-out instances in a run: a learning curve every N rounds, and the evaluation after the last
round.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from morphogen.config.parts import LEARNERS
from morphogen.config.registry import extra_parts
from morphogen.config.spec import RIVALS, RunSpec
from morphogen.env.policies import build_arm, greedy_arm
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.evaluation.play import ArmResult, play_arm
from morphogen.log.kinds.run import HeldOutPlayed
from morphogen.log.run_directory import RunDirectory
from morphogen.state.env import EnvState
from morphogen.train.loop import Scheduler

CURVE_RIVALS = ("wait", "heuristic")  # rivals that are drawn with the curve


class Keeper(Protocol):
    """Reader of the final evaluation, which writes files of its own; extras register a function
    (setup, transfers) -> Keeper at the entry points `morphogen.keepers`.
    """

    def end_group(self, state: EnvState) -> None:
        """Read the envs of this process at the end of a group of episodes of an arm.  state [n]."""
        ...

    def end_arm(self, result: ArmResult) -> None:
        """Read the results of the arm."""
        ...

    def write(self, folder: RunDirectory) -> Iterable[str]:
        """Write files, once the result of the run is written; return lines for its closing summary.

        Raises: CheckpointError, after which the run continues.
        """
        ...


def open_keepers(scheduler: Scheduler) -> list[Keeper]:
    """Return the keepers of a run."""
    parts = extra_parts("morphogen.keepers").values()
    return [part(scheduler.setup, scheduler.transfers) for part in parts]


def has_curve(spec: RunSpec) -> bool:
    """Return whether a run draws the curve: its policy learns, for as many rounds as lie between
    two plays.
    """
    every = spec.evaluation.every_rounds
    return bool(every) and spec.policy_name in LEARNERS and spec.rounds >= every


def play_curve(scheduler: Scheduler) -> Iterable[HeldOutPlayed]:
    """Play the instances if a play is due after the rounds that are complete; yield an event per
    play.

    The policy plays before the first round and then every `evaluation.every_rounds`; its rivals
    play once, before it.  A play changes nothing of the run: it has instances, and random numbers,
    of its own.
    """
    spec = scheduler.setup.spec
    rounds = scheduler.round
    every = spec.evaluation.every_rounds
    if not has_curve(spec) or rounds % every:
        return
    rivals = () if rounds else CURVE_RIVALS
    for name in (*rivals, spec.policy_name):
        result = play_held_out(scheduler, name, spec.evaluation.episodes)
        yield HeldOutPlayed(
            policy=name,
            rounds=0 if name in rivals else rounds,
            network_value=tuple(result.network_value.tolist()),
            score=tuple(result.committed_accuracy.tolist()),
            params=tuple(result.params.tolist()),
        )


def plays_greedily(spec: RunSpec) -> bool:
    """Return True if the policy of a run takes its likeliest actions on held-out instances;
    baselines never do.
    """
    return spec.evaluation.greedy and spec.policy_name in LEARNERS


def play_held_out(
    scheduler: Scheduler,
    name: str,
    episodes: int,
    ended: Callable[[EnvState], None] | None = None,
) -> ArmResult:
    """Play held-out instances with the policy of the run, if `name` is its name, or with another.

    ended: as of `play_arm`.
    """
    setup = scheduler.setup
    if name != setup.spec.policy_name:
        arm = build_arm(name, setup)
    else:
        arm = greedy_arm(scheduler.arm) if plays_greedily(setup.spec) else scheduler.arm
    return play_arm(setup, scheduler.transfers, arm, name=name, episodes=episodes, ended=ended)


def task_rivals(setup: Setup) -> list[str]:
    """Return the rivals of the task that can play under the settings of the run."""
    names: list[str] = []
    for name in setup.task.rivals:
        with suppress(ConfigError):
            build_arm(name, setup)
            names.append(name)
    return names


def run_final_evaluation(
    scheduler: Scheduler, halt: Callable[[], object], keepers: Iterable[Keeper]
) -> tuple[ArmResult, ...] | None:
    """Results of the baselines, then of the policy of the run; empty without final episodes.

    `halt()` is called before each arm; True, in any process, ends the evaluation with None.
    """

    def end_group(state: EnvState) -> None:
        for keeper in keepers:
            keeper.end_group(state)

    results: list[ArmResult] = []
    setup = scheduler.setup
    spec = setup.spec
    rivals = (*RIVALS, *task_rivals(setup), *setup.kind.rivals(setup))
    for name in (*(rival for rival in rivals if rival != spec.policy_name), spec.policy_name):
        if any(setup.exchange.facts(bool(halt()))):
            return None
        if not spec.final_episodes:
            continue
        result = play_held_out(scheduler, name, spec.final_episodes, end_group)
        results.append(result)
        for keeper in keepers:
            keeper.end_arm(result)
    return tuple(results)
