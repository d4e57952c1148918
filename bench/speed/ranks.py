"""Costs from which a run chooses its number of ranks: `python -m bench.speed.ranks [--write]`.

CPU seconds of one thread for epochs and updates at several numbers of envs, fitted by a line with least relative
squares; the time of a rank beside others; what the start of ranks takes.  `--write` replaces the file of the package.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from morphogen.config.rank_choice import COSTS, count_cores
from morphogen.config.spec import RunSpec, resolve
from morphogen.device.malloc import process_memory
from morphogen.engine.scheduler import Hooks, Parts, Scheduler
from morphogen.engine.setup import build_setup

SIZES = {"digits": ("digits", (2, 8, 32, 128)), "cifar": ("cifar_baseline", (1, 4, 16, 64))}  # kind -> task, envs
CROWDED, REPEATS, EPOCHS = ("digits", 32), 3, 16


def time_round(task: str, envs: int) -> tuple[float, float, float, float]:
    """Return CPU seconds of an epoch (median) and of an update, wall seconds of an epoch, and peak MiB."""
    torch.set_num_threads(1)
    fields: Any = {"rounds": 2, "envs": envs, "episode_length": EPOCHS, "engine": {"devices": ["cpu"], "threads": 1}}
    spec = resolve(RunSpec(task=task, telemetry={"level": "off"}, **fields))
    marks: list[tuple[float, float]] = []
    scheduler = Scheduler(
        build_setup(spec),
        Parts(hooks=Hooks(on_epoch=lambda *_: marks.append((time.process_time(), time.perf_counter())))),
    )
    scheduler.run_round()
    marks.clear()
    scheduler.run_round()
    steps = np.diff(np.array(marks), axis=0)
    epoch, wall = np.median(steps, axis=0)
    return float(epoch), time.process_time() - marks[-1][0], float(wall), (process_memory("VmHWM") or 0) / 2**20


def fit_line(sizes: tuple[int, ...], seconds: list[float]) -> tuple[float, float]:
    """Return constant and slope with the least squares of relative errors, neither below 0."""
    x, y = np.array(sizes, dtype=float), np.array(seconds)
    slope, constant = np.polyfit(x, y, 1, w=1 / y)
    return max(0.0, float(constant)), max(0.0, float(slope))


def measure_start() -> float:
    """Return by how many seconds a run of two ranks ends later than one of one process that computes nothing."""
    command = [sys.executable, "-m", "morphogen", "train", "--preset", "whitebox", "--rounds", "1", "--envs", "4"]
    command += ["--set", "final_episodes=0", "--quiet"]
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(REPEATS):
        for ranks, times in seconds.items():
            started = time.perf_counter()
            subprocess.run([*command, "--ranks", ranks], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
    return max(0.0, statistics.median(seconds["2"]) - statistics.median(seconds["1"]))


def measure() -> dict[str, Any]:
    """Return the content of the file."""
    tasks, memory = {}, 0.0
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind, (task, sizes) in SIZES.items():
            rows = [pool.apply(time_round, (task, envs)) for envs in sizes]
            epochs, updates = fit_line(sizes, [row[0] for row in rows]), fit_line(sizes, [row[1] for row in rows])
            tasks[kind] = {
                "epoch_s": round(epochs[0], 5),
                "env_s": round(epochs[1], 6),
                "update_s": round(updates[0], 4),
                "row_s": round(updates[1] / EPOCHS, 7),
            }
            memory = max(memory, rows[0][3])
        alone = pool.apply(time_round, CROWDED)[2]
    with multiprocessing.get_context("spawn").Pool(count_cores()) as pool:
        beside = pool.starmap(time_round, [CROWDED] * count_cores(), chunksize=1)
    crowding = max(1.0, statistics.median(row[2] for row in beside) / alone)
    ranks = {"start_s": round(measure_start(), 2), "crowding": round(crowding, 3), "memory_mib": round(memory)}
    return {"ranks": ranks, "tasks": tasks}


def main() -> None:
    """Measure, print, and write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"replace {COSTS.name}")
    given = parser.parse_args()
    text = json.dumps(measure(), indent=2) + "\n"
    print(text, end="")
    if given.write:
        COSTS.write_text(text)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
