"""Eager against compiled, step by step: `python -m bench.speed.compiled [--envs 32] [--json FILE]`.

Both forms get the same inputs, from the middle of an episode of digits.  The first rows are public
rules and steps alone.  `observe`, `act` and `env.step` are compiled as in a run: their graphs serve
every plan, and training and validation replay recorded minibatches in both forms.  `minibatch` is
one step of training, called from Python, whose graph serves one plan; `replayed` is the recorded
form that runs use instead.

Columns: median ms of both forms, their ratio, seconds of compiling, and the largest difference of
the results, divided by 1 + |x|; integers and flags have to be equal.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bench.harness.bench_scenes import build_scene, build_scheduler
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
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.registry import extra_parts
from morphogen.env.capture import Capture
from morphogen.env.episodes import first_carry, run_epoch
from morphogen.env.phases import PolicyInputs, choose_actions
from morphogen.extras.compiler.compiled_units import CompiledUnits
from morphogen.log.console import Console
from morphogen.policy.baselines import RandomPolicy
from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks
from morphogen.state.env import EnvState
from morphogen.steps.apply import apply_action
from morphogen.steps.tick_step import tick
from morphogen.steps.train import start_epoch
from morphogen.testing.builders.tree_equality import leaves
from morphogen.train.loop import Scheduler

Call = Callable[[], object]
EPOCHS = 12  # of an episode, half of which run before anything is measured
CALLS = 50  # of a step in a measured turn
LONG = {"env.step": 2, "minibatch": 10}  # calls of steps that train
PARTS = {"env.step": ("observe", "apply", "score")}  # units whose graphs make up a step
REPLAYED = 16  # minibatches of a recorded loop
COLUMNS: dict[str, Callable[[Measure], str]] = {
    "eager": lambda measure: f"{measure.value:.3f} ms",
    "compiled": lambda measure: f"{measure.value:.3f} ms",
    "speedup": lambda measure: f"{measure.value:.1f} x",
    "compile": lambda measure: f"{measure.value:.0f} s",
    "error": lambda measure: f"{measure.value:.0e}",
}


def mid_episode(own: Scheduler) -> tuple[EnvState, PolicyInputs, Tensor]:
    """Return envs with seeds, the inputs of a policy there, and an action of every env."""
    policy = RandomPolicy()
    params = policy.init(own.env.keys[0])
    carry = first_carry(own.env, policy)
    for _ in range(EPOCHS // 2):
        carry, _ = run_epoch(own.env, policy, params, carry)
    _, epoch = run_epoch(own.env, policy, params, carry)
    return carry.state, carry.inputs, epoch.choice.action


def build_calls(
    own: Scheduler, state: EnvState, seen: PolicyInputs, action: Tensor
) -> dict[str, Call]:
    """Name -> one call on these inputs, compiled if the scheduler compiles."""
    unit, limits, env = own.compiled.unit, own.setup.limits, own.env
    lifecycle, hidden = (
        own.setup.spec.lifecycle,
        own.policy.initial_hidden(own.env.envs, device=own.setup.device),
    )
    chosen = decode(action, state.slots, limits)
    act = unit("act", partial(choose_actions, policy=own.policy), own.policy)

    return {
        "action_masks": partial(
            unit("action_masks", partial(action_masks, limits=limits)), state.slots
        ),
        "decode": partial(unit("decode", partial(decode, limits=limits)), action, state.slots),
        "apply_action": partial(
            unit("apply_action", partial(apply_action, lifecycle=lifecycle)), state, chosen
        ),
        "tick": partial(unit("tick", partial(tick, lifecycle=lifecycle)), state),
        "observe": partial(env.observe, state),
        "act": lambda: act(own.params, seen, hidden, env.action_keys, state.clock),
        "env.step": lambda: env.advance(state, action, facts=seen.facts)[0],
    }


def largest_error(found: object, wanted: object) -> float:
    """Return the largest difference divided by 1 + |x|.  Raises: AssertionError for integers or
    flags that differ.
    """
    errors, others = [0.0], leaves(found)
    for path, leaf in leaves(wanted).items():
        if not leaf.is_floating_point():
            assert torch.equal(others[path], leaf), f"{path}: expected equal numbers"
        elif leaf.numel():
            errors.append(float(((others[path] - leaf).abs() / (1 + leaf.abs())).max()))
    return max(errors)


def compare(
    bench: Bench, name: str, forms: Mapping[str, Call], units: CompiledUnits
) -> list[Measure]:
    """Measure a step.  forms: `eager` and `compiled`; units: of the compiled form, whose seconds
    are counted.
    """
    error, calls = largest_error(forms["compiled"](), forms["eager"]()), LONG.get(name, CALLS)

    def repeat(form: Call) -> None:
        for _ in range(calls):
            form()

    seconds = bench.time_interleaved({form: partial(repeat, call) for form, call in forms.items()})
    compile_s = sum(units.seconds[part] for part in PARTS.get(name, (name,)))
    return [
        *(
            ms_measure(f"{name}_{form}", [each / calls for each in spent])
            for form, spent in seconds.items()
        ),
        ratio_measure(f"{name}_speedup", seconds["eager"], seconds["compiled"]),
        median_measure(f"{name}_compile", [compile_s], "s"),
        median_measure(f"{name}_error", [error], "share"),
    ]


def measure_minibatch(bench: Bench, envs: int) -> list[Measure]:
    """Measure a step of training with mixed seeds under its plan; `replayed` as a run does it."""
    scene = build_scene("digits", envs, "mixed", device=bench.device)
    batch, units = (
        scene.batches[0],
        CompiledUnits(EngineSpec(compile="default"), device=bench.device),
    )
    start = start_epoch(scene.state, scene.plan, net=scene.net)
    graphs = Capture(extra_parts("morphogen.graphs")["cpu"]())

    def replay() -> object:
        return graphs.repeat(lambda carry: scene.minibatch_step(carry, batch)[0], start, REPLAYED)

    forms = {
        "eager": partial(scene.minibatch_step, start, batch),
        "compiled": partial(units.unit("minibatch", scene.minibatch_step), start, batch),
    }
    rows = compare(bench, "minibatch", forms, units)
    replayed = bench.time_interleaved({"replayed": replay})["replayed"]
    return [*rows, ms_measure("minibatch_replayed", [spent / REPLAYED for spent in replayed])]


@torch.no_grad()
def measures(bench: Bench, envs: int = 32) -> list[Measure]:
    """Measure every step in both forms."""
    eager, compiled = (
        build_scheduler(envs, bench.device, compile=mode, episode_length=EPOCHS)
        for mode in ("off", "default")
    )
    inputs = mid_episode(eager)
    forms = zip(
        build_calls(eager, *inputs).items(), build_calls(compiled, *inputs).values(), strict=True
    )
    rows: list[Measure] = []
    for (name, plain), graph in forms:
        rows += compare(bench, name, {"eager": plain, "compiled": graph}, compiled.compiled)
    return [*rows, *measure_minibatch(bench, envs)]


def table_rows(measures: Sequence[Measure]) -> list[dict[str, str]]:
    """Return a row per step: the form in which a person reads the measures."""
    known = {measure.name: measure for measure in measures}
    steps = [name.removesuffix("_error") for name in known if name.endswith("_error")]
    return [
        {"step": step, **{name: show(known[f"{step}_{name}"]) for name, show in COLUMNS.items()}}
        for step in steps
    ]


if __name__ == "__main__":
    parser = build_parser(__doc__)
    parser.add_argument("--envs", type=int, default=32, metavar="E", help="envs (default 32)")
    args = parser.parse_args()
    bench = start_bench(args)
    found = measures(bench, args.envs)
    Console().print_table(table_rows(found))
    finish_bench(args, bench, found)
