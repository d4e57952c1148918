"""Choice of the number of ranks from measured costs, where nothing else says how many.  No torch.

`rank_costs.json` holds the costs; `python -m bench.speed.ranks` measures them.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from morphogen.config.execution_spec import COMPILE_OFF, REDUCE_GATHER
from morphogen.config.spec import RunSpec

Costs = Mapping[str, float]
COSTS = Path(__file__).with_name("rank_costs.json")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
GPU = Path("/proc/driver/nvidia/version")
LEAST_ENVS = 2  # of a rank
LEAST_SECONDS = 10.0  # of a run in one process: a shorter one has no second to save
MEMORY_SHARE = 0.5  # of the memory that ranks may take up


@cache
def read_costs() -> dict[str, Any]:
    """Return the measured costs: `ranks` of one machine, and `tasks` by the first word of their
    names.

    ranks: `start_s`, by which ranks start later than one process; `crowding`, time of a rank among
    others over the time of a process alone; `memory_mib` of a rank with its fewest envs, in the
    task that takes most.
    tasks: seconds of one thread for an epoch with any number of envs, `epoch_s`, and per env,
    `env_s`; for an update, `update_s`, and per env and epoch of it, `row_s`.
    """
    return json.loads(COSTS.read_bytes())


def choose_ranks(
    costs: Costs, task: Costs | None, *, envs: int, epochs: int, rounds: int, most: int
) -> int:
    """Return the number of ranks with which a run is over first, of at most `most`.

    Ranks share the envs, and each computes the complete update.  One rank for a task without costs,
    and for a run of less than `LEAST_SECONDS`.

    Args:
        envs, epochs, rounds: of the run; the ranks divide the envs, and each has two or more.
    """
    if task is None:
        return 1
    update = task["update_s"] + task["row_s"] * envs * epochs
    seconds: dict[int, float] = {}
    for n in range(1, most + 1):
        if envs % n == 0 and (n == 1 or envs // n >= LEAST_ENVS):
            rollout = epochs * (task["epoch_s"] + task["env_s"] * envs / n)
            crowding, start = (costs["crowding"], costs["start_s"]) if n > 1 else (1.0, 0.0)
            seconds[n] = start + rounds * crowding * (rollout + update)
    return 1 if seconds[1] < LEAST_SECONDS else min(seconds, key=lambda n: seconds[n])


def default_ranks(spec: RunSpec, *, cores: int, free: int | None) -> int:
    """Return the ranks of a resolved spec that names none, on a machine of this size.

    free: bytes that the ranks may get; None: not known.
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
    costs = read_costs()
    limit = costs["ranks"]["memory_mib"] * 2**20 / MEMORY_SHARE
    fitting = cores if free is None else int(free / limit)
    return choose_ranks(
        costs["ranks"],
        costs["tasks"].get(spec.task.partition("_")[0]),
        envs=spec.envs,
        epochs=spec.episode_length,
        rounds=spec.rounds,
        most=max(1, min(cores, fitting)),
    )


def count_cores() -> int:
    """Return the cores that this process may use, within the limit of its container."""
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quota, _, period = (
        (CPU_LIMIT.read_text() if CPU_LIMIT.exists() else "max").strip().partition(" ")
    )
    return bound if quota == "max" else max(1, min(bound, int(quota) // int(period)))
