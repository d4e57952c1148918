"""Costs from which a run chooses its number of ranks: `python -m bench.speed.ranks [--write]`.

CPU seconds of one thread for epochs and updates at several numbers of envs, fitted by a line with
least relative squares; the time of a rank beside others; what the start of ranks takes.  Images of
CIFAR are made up, in official files.  A row is printed per size.  `--write` replaces the file of
the package.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from morphogen.config.spec import RunSpec, resolve
from morphogen.device.malloc import process_memory
from morphogen.env.setup import build_setup
from morphogen.extras.cifar import files as cifar
from morphogen.extras.ranks.rank_choice import COSTS, count_cores
from morphogen.train.loop import Hooks, Parts, Scheduler

SIZES = {  # kind -> task, epochs of a round, numbers of envs
    "digits": ("digits", 16, (2, 8, 32, 64)),
    "cifar": ("cifar_baseline", 6, (1, 2, 4)),
    "pydoc": ("pydoc", 6, (2, 4, 8)),
}
CROWDED, REPEATS = ("digits", 16, 32), 3
RECORDS, RECORD_BYTES = 10_000, 1 + 3 * 32 * 32  # of an official file


class RoundCost(NamedTuple):
    """Costs of the second round of a run, where everything is warm."""

    epoch_s: float  # CPU seconds of an epoch, the median
    update_s: float  # CPU seconds of the update
    wall_s: float  # of an epoch, the median
    peak_mib: float  # of the process


def time_round(data: str, task: str, epochs: int, envs: int) -> RoundCost:
    """Run two rounds and return the costs of the second.  data: folder of the images."""
    torch.set_num_threads(1)
    fields: Any = {
        "rounds": 2,
        "envs": envs,
        "episode_length": epochs,
        "engine": {"devices": ["cpu"], "threads": 1},
    }
    fields["ppo"] = {"imitation_rounds": 0}  # rounds as most of a run
    spec = resolve(RunSpec(task=task, telemetry={"level": "off"}, data={"dir": data}, **fields))
    marks: list[tuple[float, float]] = []
    scheduler = Scheduler(
        build_setup(spec),
        Parts(
            hooks=Hooks(
                on_epoch=lambda *_: marks.append((time.process_time(), time.perf_counter()))
            )
        ),
    )
    scheduler.run_round()
    marks.clear()
    scheduler.run_round()
    steps = np.diff(np.array(marks), axis=0)
    epoch, wall = np.median(steps, axis=0).tolist()
    return RoundCost(
        epoch, time.process_time() - marks[-1][0], wall, (process_memory("VmHWM") or 0) / 2**20
    )


def write_images(folder: str) -> None:
    """Write official files of CIFAR-10 with random images."""
    draw = np.random.default_rng(0)
    Path(folder, cifar.BINARY).mkdir()
    for name in (*cifar.TRAIN, cifar.TEST):
        rows = draw.integers(0, 256, (RECORDS, RECORD_BYTES), dtype=np.uint8)
        rows[:, 0] %= 10
        rows.tofile(Path(folder, cifar.BINARY, f"{name}.bin"))


def fit_line(sizes: tuple[int, ...], seconds: list[float]) -> tuple[float, float]:
    """Return constant and slope with the least squares of relative errors, neither below 0."""
    x, y = np.array(sizes, dtype=float), np.array(seconds)
    slope, constant = np.polyfit(x, y, 1, w=1 / y)
    return max(0.0, float(constant)), max(0.0, float(slope))


def measure_start() -> float:
    """Return by how many seconds a run of two ranks ends later than one of one process that
    computes nothing.
    """
    command = [
        sys.executable,
        "-m",
        "morphogen",
        "train",
        "--preset",
        "whitebox",
        "--rounds",
        "1",
        "--envs",
        "4",
    ]
    command += ["--set", "final_episodes=0", "--quiet"]
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(REPEATS):
        for ranks, times in seconds.items():
            started = time.perf_counter()
            subprocess.run([*command, "--ranks", ranks], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - started)
    return max(0.0, statistics.median(seconds["2"]) - statistics.median(seconds["1"]))


def fit_task(pool: Any, data: str, kind: str) -> tuple[dict[str, float], float]:
    """Return the costs of a task, and the peak MiB of a process with its fewest envs."""
    task, epochs, sizes = SIZES[kind]
    rows: list[RoundCost] = []
    for envs in sizes:
        rows.append(pool.apply(time_round, (data, task, epochs, envs)))
        print(
            f"{task:16} {envs:4} envs  epoch {rows[-1].epoch_s:.4f} s  update "
            f"{rows[-1].update_s:.3f} s",
            flush=True,
        )
    epoch_s, env_s = fit_line(sizes, [row.epoch_s for row in rows])
    update_s, row_s = fit_line(sizes, [row.update_s for row in rows])
    costs = {"epoch_s": round(epoch_s, 5), "env_s": round(env_s, 6)}
    return costs | {"update_s": round(update_s, 4), "row_s": round(row_s / epochs, 7)}, rows[
        0
    ].peak_mib


def measure(data: str) -> dict[str, Any]:
    """Return the content of the file.  data: folder of the images."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1, maxtasksperchild=1) as pool:
        found = {kind: fit_task(pool, data, kind) for kind in SIZES}
        alone = pool.apply(time_round, (data, *CROWDED)).wall_s
    with spawn.Pool(count_cores()) as pool:
        beside = pool.starmap(time_round, [(data, *CROWDED)] * count_cores(), chunksize=1)
    crowding = max(1.0, statistics.median(row.wall_s for row in beside) / alone)
    print(f"a rank beside others takes {crowding:.3f} of its time alone", flush=True)
    memory = max(peak for _, peak in found.values())
    ranks = {
        "start_s": round(measure_start(), 2),
        "crowding": round(crowding, 3),
        "memory_mib": round(memory),
    }
    return {"ranks": ranks, "tasks": {kind: costs for kind, (costs, _) in found.items()}}


def main() -> None:
    """Measure, print, and write on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"replace {COSTS.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        write_images(data)
        text = json.dumps(measure(data), indent=2) + "\n"
    print(text, end="")
    if given.write:
        COSTS.write_text(text)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
