"""The closing comparison: the baselines and the policy of a run on the same held-out instances."""

from collections.abc import Callable

from morphogen.run.evaluate import Result, evaluate
from morphogen.run.optimum import OPTIMAL, is_known
from morphogen.run.policies import Arm, arm_of
from morphogen.run.scheduler import Scheduler

RIVALS = ("wait", "random", "heuristic")  # who every policy is compared with
SPLIT = "validation"


def compared(scheduler: Scheduler, halt: Callable[[], object]) -> tuple[Result, ...] | None:
    """The results of the baselines, then of the policy of the run; none where no episode is asked for.

    `halt()` is asked before each of them; True ends the comparison without a result: None.
    """
    spec, results = scheduler.setup.spec, []
    rivals = (*RIVALS, OPTIMAL) if is_known(scheduler.setup) else RIVALS
    for name in (*(rival for rival in rivals if rival != spec.policy_name), spec.policy_name):
        if halt():
            return None
        results += [_result(scheduler, name)] if spec.final_episodes else []
    return tuple(results)


def _result(scheduler: Scheduler, name: str) -> Result:
    setup, own = scheduler.setup, name == scheduler.setup.spec.policy_name
    arm = Arm(scheduler.policy, scheduler.control) if own else arm_of(name, setup)
    params = scheduler.params if own else arm.policy.init(scheduler.world.key[0])
    return evaluate(
        setup,
        scheduler.fences,
        arm.policy,
        params,
        name=name,
        episodes=setup.spec.final_episodes,
        control=arm.control,
    )
