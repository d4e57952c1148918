"""The closing comparison: the baselines and the policy of a run on the same held-out instances."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from morphogen.config.spec import RIVALS
from morphogen.device.transfers import Transfers
from morphogen.engine.optimum import OPTIMAL, is_known, optimal_returns
from morphogen.engine.policies import Arm, build_arm
from morphogen.engine.scheduler import Scheduler
from morphogen.engine.setup import Setup
from morphogen.evaluation.play import ArmResult, play


def run_final_evaluation(scheduler: Scheduler, halt: Callable[[], object]) -> tuple[ArmResult, ...] | None:
    """The results of the baselines, then of the policy of the run; none where no episode is asked for.

    `halt()` is asked before each of them; True ends the comparison without a result: None.
    """
    spec, results = scheduler.setup.spec, []
    rivals = (*RIVALS, OPTIMAL) if is_known(scheduler.setup) else RIVALS
    for name in (*(rival for rival in rivals if rival != spec.policy_name), spec.policy_name):
        if halt():
            return None
        results += [_play_arm(scheduler, name)] if spec.final_episodes else []
    return tuple(results)


def shares_of_optimum(setup: Setup, transfers: Transfers, results: Sequence[ArmResult]) -> dict[str, float]:
    """Mean network value over the mean optimum of the same instances, by policy; empty where no optimum is known."""
    if not results or not is_known(setup):
        return {}
    most = optimal_returns(setup, transfers, len(results[0].network_value)).mean()
    return {one.policy: float(np.mean(one.network_value) / most) for one in results}


def share_table(shares: Mapping[str, float]) -> list[dict[str, object]]:
    """A row per policy; none where no optimum is known."""
    return [{"policy": name, "share": share} for name, share in shares.items()]


def _play_arm(scheduler: Scheduler, name: str) -> ArmResult:
    setup, own = scheduler.setup, name == scheduler.setup.spec.policy_name
    arm = Arm(scheduler.policy, scheduler.control, scheduler.params) if own else build_arm(name, setup)
    return play(setup, scheduler.transfers, arm, name=name, episodes=setup.spec.final_episodes)
