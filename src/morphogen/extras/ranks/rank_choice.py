"""Choice of the number of ranks from measured costs, where nothing else says how many.  No torch.

`rank_costs.json` holds the costs; `python -m bench.speed.ranks` measures them.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from morphogen.config.execution_spec import COMPILE_OFF, REDUCE_GATHER
from morphogen.config.spec import RunSpec

COSTS = Path(__file__).with_name("rank_costs.json")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
GPU = Path("/proc/driver/nvidia/version")
LEAST_ENVS = 2  # of a rank
LEAST_SECONDS = 10.0  # of a run in one process: a shorter one has no second to save
MEMORY_SHARE = 0.5  # of the memory that ranks may take up


class TaskCosts(NamedTuple):
    """Seconds of one thread, by the task."""

    epoch_s: float  # of an epoch with any number of envs, for its calls
    env_s: float  # of an epoch, per env
    update_s: float  # of an update, for its calls
    row_s: float  # of an update, per env and epoch


class RankCosts(NamedTuple):
    """Costs of ranks on one machine."""

    start_s: float  # by which ranks start later than one process
    crowding: float  # time of a rank among others over the time of a process alone
    memory_mib: float  # of a rank with its fewest envs, in the task that takes most


@cache
def read_costs() -> tuple[RankCosts, dict[str, TaskCosts]]:
    """Return the measured costs of ranks, and of tasks by the first word of their names."""
    content = json.loads(COSTS.read_bytes())
    return RankCosts(**content["ranks"]), {
        name: TaskCosts(**row) for name, row in content["tasks"].items()
    }


def run_seconds(
    ranks: int, costs: RankCosts, task: TaskCosts, *, envs: int, epochs: int, rounds: int
) -> float:
    """Estimate the seconds of a run: ranks share the envs, each computes the complete update."""
    rollout = epochs * (task.epoch_s + task.env_s * envs / ranks)
    update = task.update_s + task.row_s * envs * epochs
    crowding, start = (costs.crowding, costs.start_s) if ranks > 1 else (1.0, 0.0)
    return start + rounds * crowding * (rollout + update)


def choose_ranks(
    costs: RankCosts, task: TaskCosts | None, *, envs: int, epochs: int, rounds: int, most: int
) -> int:
    """Return the number of ranks with which a run is over first, of at most `most`.

    One for a task without costs, and for a run of less than `LEAST_SECONDS`.

    Args:
        envs, epochs, rounds: of the run; the ranks divide the envs, and each has two or more.
    """
    numbers = [
        n for n in range(1, most + 1) if envs % n == 0 and (n == 1 or envs // n >= LEAST_ENVS)
    ]
    if task is None:
        return 1
    seconds = {
        n: run_seconds(n, costs, task, envs=envs, epochs=epochs, rounds=rounds) for n in numbers
    }
    return 1 if seconds[1] < LEAST_SECONDS else min(numbers, key=lambda n: seconds[n])


def default_ranks(spec: RunSpec, *, cores: int, free_mib: float | None) -> int:
    """Return the ranks of a resolved spec that names none, on a machine of this size.

    Several ranks give the bits of one process only under `engine.reduce` gather, without graphs, on
    a CPU.  A spec with several threads gets one process.
    """
    engine = spec.engine
    on_cpu = engine.devices == ("cpu",) or (engine.devices == ("auto",) and not GPU.exists())
    if (
        not on_cpu
        or engine.compile != COMPILE_OFF
        or engine.reduce != REDUCE_GATHER
        or (engine.threads or 1) > 1
    ):
        return 1
    costs, tasks = read_costs()
    fitting = cores if free_mib is None else int(free_mib * MEMORY_SHARE / costs.memory_mib)
    task = tasks.get(spec.task.partition("_")[0])
    size = {"envs": spec.envs, "epochs": spec.episode_length, "rounds": spec.rounds}
    return choose_ranks(costs, task, **size, most=max(1, min(cores, fitting)))


def count_cores() -> int:
    """Return the cores that this process may use, within the limit of its container."""
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota, _, period = (
        (CPU_LIMIT.read_text() if CPU_LIMIT.exists() else "max").strip().partition(" ")
    )
    return bound if quota == "max" else max(1, min(bound, int(quota) // int(period)))
