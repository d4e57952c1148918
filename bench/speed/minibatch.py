"""Training, stacked against the loop: `python -m bench.speed.minibatch [--compiled] [--json FILE]`.

Ratios are time of the loop / time of the stacked form, over the same minibatches from the same
state; what both have trained is compared.  Compiled is the training step as one graph; its compile
time is reported separately.
"""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from bench.harness.bench_scenes import EPOCH_MINIBATCHES, TOKENS, BenchScene, TrainStep, build_scene
from bench.harness.module_loop import LAYOUTS, ModuleLoop
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
from morphogen.extras.compiler.compiled_units import compiler_options

SHORT_NAMES = {"digits": "digits", "cifar_baseline": "cifar", TOKENS: TOKENS}
MINIBATCHES = {
    "digits": EPOCH_MINIBATCHES,
    "cifar_baseline": 2,
    TOKENS: 4,
}  # in a timed call: an epoch of digits, at least 0.2 s of the others
CHECKED_MINIBATCHES = (
    # minibatches after which the forms are compared; later, rounding has grown too much to tell a
    # bug by it
    8
)
TOLERANCE = 2e-3  # largest difference of a host parameter between the forms, float32


def compile_step(scene: BenchScene) -> TrainStep:
    """The training step as one graph."""
    return torch.compile(
        scene.minibatch_step,
        fullgraph=True,
        dynamic=False,
        options=compiler_options(scene.requested_coalitions[0].device.type, "minibatch"),
    )


def loop_comparison(
    bench: Bench,
    task: str,
    envs: int,
    *,
    kind: str = "mixed",
    minibatches: int | None = None,
    graph: bool = False,
) -> list[Measure]:
    """Speed of an epoch of stacked training over the loop."""
    form = "compiled" if graph else "eager"
    name = (
        f"train_{SHORT_NAMES[task]}_e{envs}_{form}"
        if kind == "mixed"
        else f"train_{SHORT_NAMES[task]}_e{envs}_{kind}_{form}"
    )
    taken = minibatches or MINIBATCHES[task]
    ours = build_scene(task, envs, kind, minibatches=taken, device=bench.device)
    step, extra = ours.minibatch_step, []
    if graph:
        step = compile_step(ours)
        extra.append(
            median_measure(
                f"{name}_compile", [bench.time_call(functools.partial(ours.train, step))], "s"
            )
        )
    layout = fastest_layout(
        bench,
        build_scene(
            task,
            min(envs, 4),
            kind,
            minibatches=min(taken, CHECKED_MINIBATCHES),
            device=bench.device,
        ),
    )
    bench.record_checksum(
        name,
        _check_same_hosts(replace(ours, batches=ours.batches[:CHECKED_MINIBATCHES]), layout, step),
    )
    loop = ModuleLoop(ours, layout)
    forms = {"loop": loop.train, "stacked": functools.partial(ours.train, step)}
    seconds = bench.time_interleaved(forms, warm=False)
    times = [
        ms_measure(f"{name}_{form}_ms", [t / taken for t in found])
        for form, found in seconds.items()
    ]
    return [ratio_measure(name, seconds["loop"], seconds["stacked"]), *times, *extra]


def _check_same_hosts(scene: BenchScene, layout: str, step: TrainStep) -> Tensor:
    """The hosts that both forms have trained."""
    trained, loop = scene.train(step).host.params, ModuleLoop(scene, layout)
    loop.train()
    torch.testing.assert_close(loop.parameters(), trained, rtol=TOLERANCE, atol=TOLERANCE)
    return trained


def fastest_layout(bench: Bench, scene: BenchScene) -> str:
    """The memory layout in which the loop is faster; tokens have one."""
    if scene.net.host.vocabulary:
        return "contiguous"
    seconds = bench.time_interleaved({name: ModuleLoop(scene, name).train for name in LAYOUTS})
    return min(seconds, key=lambda name: min(seconds[name]))


def cost_per_env(
    bench: Bench, task: str, few: int, many: int, *, minibatches: int = 4
) -> list[Measure]:
    """Cost per env of many envs, over few: 1 where cost is linear, less where stacking pays
    on.
    """
    scenes = {
        envs: build_scene(task, envs, "mixed", minibatches=minibatches, device=bench.device)
        for envs in (few, many)
    }
    seconds = bench.time_interleaved({str(envs): one.train for envs, one in scenes.items()})
    each = {envs: [t / int(envs) for t in found] for envs, found in seconds.items()}
    return [
        ratio_measure(f"train_{SHORT_NAMES[task]}_e{many}_per_env", each[str(many)], each[str(few)])
    ]


def one_thread(bench: Bench, envs: int) -> list[Measure]:
    """Speed over the loop where both have one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (ratio, *_) = loop_comparison(bench, "digits", envs)
    finally:
        torch.set_num_threads(threads)
    return [replace(ratio, name=f"{ratio.name}_one_thread")]


def measures(bench: Bench, *, envs: int = 32) -> list[Measure]:
    """The rows on training."""
    few = max(1, envs // 4)
    sizes = [(task, count) for task in SHORT_NAMES for count in (few, envs)]
    found = [
        *one_thread(bench, envs),
        *[row for task, count in sizes for row in loop_comparison(bench, task, count)],
    ]
    for kind in ("none", "light"):
        found += loop_comparison(bench, "digits", envs, kind=kind)
    return [*found, *cost_per_env(bench, "digits", envs, 4 * envs)]


def compiled_measures(bench: Bench, *, envs: int = 32) -> list[Measure]:
    """The rows on compiled training; last in a process, since the compiler leaves much behind in
    it.
    """
    sizes = [*[(task, envs) for task in SHORT_NAMES], (TOKENS, max(1, envs // 4))]
    return [row for task, count in sizes for row in loop_comparison(bench, task, count, graph=True)]


def main() -> None:
    """Print the rows on training."""
    own = build_parser(__doc__)
    own.add_argument(
        "--compiled", action="store_true", help="also the compiled forms, which take minutes"
    )
    given = own.parse_args()
    bench = start_bench(given)
    finish_bench(
        given, bench, measures(bench) + (compiled_measures(bench) if given.compiled else [])
    )


if __name__ == "__main__":
    main()
