"""Training, stacked against the loop: `python -m bench.bench_minibatch [--compiled] [--json FILE]`.

Ratios are time of the loop / time of the stacked form, over the same minibatches from the same state; what both have
trained is compared.  Compiled is the training step as one graph; its compile time is told apart.
"""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from bench.harness.bench_scenes import EPOCH, Scene, Step, scene
from bench.harness.module_loop import LAYOUTS, Loop
from bench.harness.timing import Bench, close, milliseconds, parser, start
from morphogen.cli.measures import Measure, over, ratio
from morphogen.engine.compile import compiler_options

SHORT = {"digits": "digits", "cifar_baseline": "cifar"}
MINIBATCHES = {"digits": EPOCH, "cifar_baseline": 2}  # in a timed call: an epoch of digits, at least 0.2 s of cifar
CHECKED = 8  # minibatches after which the forms are compared; later, rounding has grown too much to tell a bug by it
CLOSE = 2e-3  # largest difference of a host parameter between the forms, float32


def compiled(scene: Scene) -> Step:
    """The training step as one graph."""
    return torch.compile(
        scene.minibatch, fullgraph=True, dynamic=False, options=compiler_options(scene.asked[0].device.type)
    )


def against_loop(
    bench: Bench, task: str, envs: int, *, kind: str = "mixed", minibatches: int | None = None, graph: bool = False
) -> list[Measure]:
    """How many times faster than the loop an epoch of stacked training is."""
    form = "compiled" if graph else "eager"
    name = f"train_{SHORT[task]}_e{envs}_{form}" if kind == "mixed" else f"train_{SHORT[task]}_e{envs}_{kind}_{form}"
    taken = minibatches or MINIBATCHES[task]
    ours = scene(task, envs, kind, minibatches=taken, device=bench.device)
    step, extra = ours.minibatch, []
    if graph:
        step = compiled(ours)
        extra.append(over(f"{name}_compile", [bench.seconds(functools.partial(ours.train, step))], "s"))
    layout = fastest(bench, scene(task, min(envs, 4), kind, minibatches=min(taken, CHECKED), device=bench.device))
    bench.saw(name, _same(replace(ours, batches=ours.batches[:CHECKED]), layout, step))
    loop = Loop(ours, layout)
    forms = {"loop": loop.train, "stacked": functools.partial(ours.train, step)}
    seconds = bench.interleaved(forms, warm=False)
    times = [milliseconds(f"{name}_{form}_ms", [t / taken for t in found]) for form, found in seconds.items()]
    return [ratio(name, seconds["loop"], seconds["stacked"]), *times, *extra]


def _same(scene: Scene, layout: str, step: Step) -> Tensor:
    """The hosts that both forms have trained."""
    trained, loop = scene.train(step).host.params, Loop(scene, layout)
    loop.train()
    torch.testing.assert_close(loop.parameters(), trained, rtol=CLOSE, atol=CLOSE)
    return trained


def fastest(bench: Bench, scene: Scene) -> str:
    """The memory layout in which the loop is faster."""
    seconds = bench.interleaved({name: Loop(scene, name).train for name in LAYOUTS})
    return min(seconds, key=lambda name: min(seconds[name]))


def per_env(bench: Bench, task: str, few: int, many: int, *, minibatches: int = 4) -> list[Measure]:
    """Cost per env of many envs, over that of few: 1 where cost is linear, less where stacking pays on."""
    scenes = {envs: scene(task, envs, "mixed", minibatches=minibatches, device=bench.device) for envs in (few, many)}
    seconds = bench.interleaved({str(envs): one.train for envs, one in scenes.items()})
    each = {envs: [t / int(envs) for t in found] for envs, found in seconds.items()}
    return [ratio(f"train_{SHORT[task]}_e{many}_per_env", each[str(many)], each[str(few)])]


def measures(bench: Bench, *, envs: int = 32) -> list[Measure]:
    """The rows on training."""
    sizes = (("digits", envs), ("cifar_baseline", max(1, envs // 4)), ("cifar_baseline", envs))
    found = [one for task, count in sizes for one in against_loop(bench, task, count)]
    for kind in ("none", "light"):
        found += against_loop(bench, "digits", envs, kind=kind)
    return [*found, *per_env(bench, "digits", envs, 4 * envs)]


def graphs(bench: Bench, *, envs: int = 32) -> list[Measure]:
    """The rows on compiled training; last in a process, since the compiler leaves much behind in it."""
    return [one for task in SHORT for one in against_loop(bench, task, envs, graph=True)]


def main() -> None:
    """Print the rows on training."""
    own = parser(__doc__)
    own.add_argument("--compiled", action="store_true", help="also the compiled forms, which take minutes")
    given = own.parse_args()
    bench = start(given)
    close(given, bench, measures(bench) + (graphs(bench) if given.compiled else []))


if __name__ == "__main__":
    main()
