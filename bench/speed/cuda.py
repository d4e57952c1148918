"""The whole table on a CUDA device in one call: `python -m bench.speed.cuda [--json FILE] [--svg
FILE]`.

Training against the loop, cost per env up to 1,024 of them, the training step as a CUDA graph,
whole epochs over the number of envs, validation, empty slots, memory, share of the device's limits,
and the waits that torch itself sees in an epoch outside the declared fences.  `--device cpu
--short` is the same way with two envs, to see that it works.
"""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.harness.bench_scenes import EPOCH_MINIBATCHES, BenchScene, build_scene, task_sizes
from bench.harness.timing import (
    Bench,
    Measure,
    build_parser,
    finish_bench,
    median_measure,
    ms_measure,
    ratio_measure,
    start_bench,
)
from bench.speed import memory, minibatch, rollout, roofline, validate
from morphogen.config.groups import DataSpec
from morphogen.state.measure import InputBatch
from morphogen.steps.train import TrainState, start_epoch

# numbers of envs for which the loop is worth waiting for
LOOP_ENVS = {"digits": (8, 32), "cifar_baseline": (8, 32)}
# 1,024 CIFAR hosts take over 80 GB
MANY_ENVS = {"digits": (128, 512, 1024), "cifar_baseline": (128, 256, 512)}
ENVS = (*rollout.ENVS, 1024)
SHORT_SIZE = 2  # envs, and minibatches of a whole epoch


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A training step as a CUDA graph.  The graph reads its inputs by address, so they live as long
    as the graph.
    """

    replay: Callable[[], None]
    progress: TrainState
    batch: InputBatch
    after: TrainState  # written by every replay


def capture_step(scene: BenchScene) -> CapturedStep:
    """Capture the first training step of an epoch."""
    progress, batch = start_epoch(scene.state, scene.plan, net=scene.net), scene.batches[0]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            scene.minibatch_step(progress, batch)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after, _ = scene.minibatch_step(progress, batch)
    return CapturedStep(graph.replay, progress, batch, after)


def graph_rows(bench: Bench, task: str, envs: int) -> list[Measure]:
    """Speed of the replayed step over the same step launched kernel by kernel."""
    ours = build_scene(task, envs, "mixed", device=bench.device)
    progress = start_epoch(ours.state, ours.plan, net=ours.net)
    step = functools.partial(ours.minibatch_step, progress, ours.batches[0])
    captured = capture_step(ours)
    captured.replay()
    torch.testing.assert_close(
        captured.after.weights.host,
        step()[0].weights.host,
        rtol=minibatch.TOLERANCE,
        atol=minibatch.TOLERANCE,
    )
    seconds = bench.time_interleaved({"launched": step, "replayed": captured.replay})
    name = f"graph_{minibatch.SHORT_NAMES[task]}_e{envs}"
    times = [ms_measure(f"{name}_{form}_ms", found) for form, found in seconds.items()]
    return [ratio_measure(name, seconds["launched"], seconds["replayed"]), *times]


def count_waits(bench: Bench, task: str, envs: int) -> list[Measure]:
    """Waits for the device in an epoch of training and validation, which has no fence: 0."""
    ours = build_scene(task, envs, "mixed", device=bench.device)
    ours.train()
    ours.validate()
    if bench.device.type == "cuda":
        torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ours.train()
        ours.validate()
    if bench.device.type == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    found = [one for one in seen if "synchroniz" in str(one.message)]
    return [median_measure(f"waits_{minibatch.SHORT_NAMES[task]}_e{envs}", [len(found)], "count")]


def training_rows(bench: Bench, *, short: bool) -> list[Measure]:
    """The rows on training, eager and as a CUDA graph."""
    found: list[Measure] = []
    for task in LOOP_ENVS:
        few, many = (
            ((SHORT_SIZE,), (2 * SHORT_SIZE,)) if short else (LOOP_ENVS[task], MANY_ENVS[task])
        )
        for envs in few:
            found += minibatch.loop_comparison(bench, task, envs, minibatches=1 if short else None)
        for envs in many:
            found += minibatch.cost_per_env(bench, task, few[-1], envs, minibatches=1)
        for envs in (*few, *many) if bench.device.type == "cuda" else ():
            found += graph_rows(bench, task, envs)
        found += count_waits(bench, task, many[-1])
    return found


def measures(bench: Bench, *, short: bool = False, svg: Path | None = None) -> list[Measure]:
    """All rows."""
    scanned, minibatches = ((1, SHORT_SIZE), SHORT_SIZE) if short else (ENVS, EPOCH_MINIBATCHES)
    few = SHORT_SIZE if short else 32
    run = {"data": DataSpec(minibatches=minibatches)}
    scan = rollout.scan_envs(bench, scanned, **run)
    if svg is not None:
        rollout.plot_rates(svg, scan, scanned)
    large = {"side": 64, "copied": 4096} if short else {"side": 8192, "copied": 2**28}
    found = [*training_rows(bench, short=short), *validate.measures(bench, few)]
    found += rollout.share_rows(bench, few, SHORT_SIZE if short else None, **run)
    found += [*rollout.empty_slots(bench, few, minibatches), *scan]
    found += roofline.measures(bench, task_sizes(few), **large)
    return found if short else found + memory.measures(bench, task_sizes(few))


def main() -> None:
    """Print all rows."""
    own = build_parser(__doc__)
    own.set_defaults(device=torch.device("cuda"))
    own.add_argument("--short", action="store_true", help="two envs, one repetition of everything")
    own.add_argument(
        "--svg", type=Path, metavar="FILE", help="draw the curves of whole epochs into this file"
    )
    given = own.parse_args()
    if given.short:
        given.runs = 1
    bench = start_bench(given)
    finish_bench(given, bench, measures(bench, short=given.short, svg=given.svg))


if __name__ == "__main__":
    main()
