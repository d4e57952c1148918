"""The compile policy: what gets a graph, how many there are, and that they change no number."""

from functools import partial
from io import StringIO

import pytest
import torch
from support.declared_actions import declared
from support.small_runs import events_by_round, tiny
from torch._dynamo.utils import counters

from bench.harness.memory_sink import MemorySink
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.env.make import make
from morphogen.env.phases import choose_actions
from morphogen.env.policies import build_arm
from morphogen.env.setup import build_setup
from morphogen.env.units import Units
from morphogen.errors import CompileError, DeviceError
from morphogen.extras.compiler.compiled_units import CompiledUnits, compiler_options
from morphogen.log.console import Console
from morphogen.ppo.exchange import Exchange
from morphogen.testing.builders import tree_equality
from morphogen.train.loop import Hooks, Parts, Scheduler
from morphogen.train.train import compile_units, train_ppo_vectorized

LIFE = [  # env 1 prunes what env 0 keeps
    {"epoch": 0, "op": "GERMINATE", "slot": "r0c0", "blueprint": "norm", "tempo": "FAST"},
    {"epoch": 1, "op": "ADVANCE", "slot": "r0c0"},
    {"epoch": 3, "op": "ADVANCE", "slot": "r0c0"},
    {"epoch": 6, "op": "PRUNE", "slot": "r0c0", "env": 1},
    {"epoch": 7, "op": "ADVANCE", "slot": "r0c0", "env": 0},
    {"epoch": 8, "op": "FOSSILIZE", "slot": "r0c0", "env": 0},
]


def engine(**fields):
    return EngineSpec(**{"compile": "default", "devices": ("cpu",), **fields})


def small(**fields):
    """A run of two narrow hosts with one slot."""
    return tiny(
        **{
            "envs": 2,
            "slots": ("r0c0",),
            "episode_length": 10,
            "host": HostSpec(width=2),
            "data": DataSpec(batch=4, minibatches=2, val_samples=16),
            **fields,
        }
    )


def test_nothing_is_compiled_unless_it_is_asked_for():
    assert type(make("tiny", envs=1).compiled) is Units
    assert Units().unit("head", len) is CompiledUnits().unit("head", len) is len


def counted_graph(function, **_):
    """Leave a function as it is, but count a graph at its first call, as the compiler does."""
    calls = []

    def graph(*args, **kwargs):
        counters["stats"]["unique_graphs"] += not calls
        calls.append(True)
        return function(*args, **kwargs)

    return graph


def episode(spec, compiler=torch.compile, control=None):
    """A run; its scheduler, its summaries, and the states at the ends of its rounds."""
    states = []
    hooks = Hooks(on_round=lambda _, scheduler: states.append(scheduler.state))
    scheduler = Scheduler(
        build_setup(spec),
        Parts(compiled=CompiledUnits(spec.engine, compiler=compiler), hooks=hooks, control=control),
    )
    with torch.no_grad():
        history = scheduler.run()
    return scheduler, history, states


def same(found, wanted):
    """Equal up to rounding."""
    others = tree_equality.leaves(found)
    for path, leaf in tree_equality.leaves(wanted).items():
        torch.testing.assert_close(others[path], leaf, rtol=1e-5, atol=1e-5, msg=path)


@pytest.mark.slow
def test_a_life_of_seeds_makes_no_graph_after_the_first_round_and_the_same_numbers():
    run = {"rounds": 3, "seed": 1, "policy_name": "random"}
    control = declared(small(**run), LIFE)
    scheduler, history, states = episode(small(**run, engine=engine()), counted_graph, control)
    assert (history[0].germinated, history[0].fossilized, history[0].pruned) == (2, 1, 1)
    # observation, policy, head and tail; random actions learn nothing
    assert [one.graphs for one in history] == [4, 0, 0]
    assert scheduler.compiled.totals.graphs == 4
    for found, wanted in zip(states, episode(small(**run), control=control)[2], strict=True):
        same(found, wanted)


def test_results_of_a_mode_with_cuda_graphs_outlive_the_next_call():
    memory = torch.zeros(3)
    twice = lambda x: (torch.mul(x, 2, out=memory), None)
    double = CompiledUnits(
        engine(compile="max-autotune"), compiler=lambda function, **_: function
    ).unit("head", twice)
    first = double(torch.ones(3))
    double(torch.full((3,), 5.0))
    assert first[0].tolist() == [2.0, 2.0, 2.0]
    assert first[1] is None


def test_the_device_that_auto_stands_for_decides_the_options_of_the_compiler(monkeypatch):
    """`auto` and the name of the device behind it compile alike, in runs and in environments."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = []

    def compiler(function, **given):
        options.append(given["options"])
        return function

    for name in ("auto", "cpu"):
        setup = build_setup(small(engine=engine(devices=(name,))))
        compiled = CompiledUnits(setup.spec.engine, device=setup.device, compiler=compiler)
        Scheduler(setup, Parts(compiled=compiled)).env.reset()
        assert make(setup.spec).compiled.device == torch.device("cpu")
    assert options
    assert all(compiler_options("cpu", "observe").items() <= given.items() for given in options)


def test_the_time_of_making_a_graph_is_told_apart():
    now = [0.0]

    def compiler(function, **_):
        """A function whose first call takes 100 seconds and makes a graph; nothing else takes any
        time.
        """
        first = iter((True,))

        def run(*args, **knobs):
            made = next(first, False)
            now[0] += 100.0 * made
            counters["stats"]["unique_graphs"] += int(made)
            return function(*args, **knobs)

        return run

    spec = small(policy_name="random", rounds=2, episode_length=2, engine=engine())
    kept = MemorySink()
    units = CompiledUnits(spec.engine, compiler=compiler, clock=lambda: now[0])
    scheduler = Scheduler(
        build_setup(spec), Parts(compiled=units, clock=lambda: now[0], sinks=(kept,))
    )
    with torch.no_grad():
        history = scheduler.run()
    scheduler.reporter.close()
    assert [(one.graphs, one.seconds) for one in history] == [(4, 0.0), (0, 0.0)]
    assert [one["Throughput"].compile_s for one in events_by_round(kept.events)] == [400.0, 0.0]


def test_a_mode_that_needs_cuda_is_refused_on_a_cpu():
    spec = tiny(engine=EngineSpec(devices=("cpu",), compile="reduce-overhead"))
    with pytest.raises(DeviceError, match="reduce-overhead: expected a CUDA device, got cpu"):
        make(spec)


def broken(function, **_):
    """A compiler that fails at the first call, as the real one does."""

    def graph(*args, **kwargs):
        try:
            raise OSError("no compiler\nand a long explanation")
        except OSError as error:
            raise RuntimeError("backend failed") from error

    return graph


def units_of(mode, compiler=counted_graph, **fields):
    return CompiledUnits(engine(compile=mode), compiler=compiler, **fields)


def trained(out, units, **fields):
    """A short run that imitates in its first round."""
    ppo = PpoSpec(epochs=1, imitation_rounds=1)
    spec = small(
        rounds=2,
        episode_length=2,
        ppo=ppo,
        engine=engine(compile=units.mode),
        final_episodes=0,
        **fields,
    )
    return train_ppo_vectorized(spec, out=out, parts=Parts(compiled=units))


def test_a_run_compiles_every_unit_before_its_directory_exists_and_none_later(tmp_path):
    spoken = []
    out = tmp_path / "run"
    units = units_of("default", announce=lambda *said: spoken.append((*said, out.exists())))
    result = trained(out, units)
    begun = [name for name, seconds, _ in spoken if seconds is None]
    assert begun == ["observe", "act", "apply", "score", "act"]
    assert not any(exists for *_, exists in spoken)
    assert [summary.graphs for summary in result.history] == [5, 0]
    assert units.seconds.keys() == {"observe", "act", "apply", "score"}


def test_a_compiler_that_fails_ends_a_run_in_one_line_before_its_directory_exists(tmp_path):
    with pytest.raises(CompileError) as caught:
        trained(tmp_path / "run", units_of("default", broken))
    assert str(caught.value) == (
        "engine.compile: observe: OSError: no compiler; expected a compiler that works, or off or auto"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_auto_runs_eager_where_the_compiler_fails_with_the_numbers_of_an_eager_run(tmp_path):
    units = units_of("auto", broken)
    found = trained(tmp_path / "auto", units)
    assert (units.eager, units.failure) == (True, "observe: OSError: no compiler")
    wanted = trained(tmp_path / "off", units_of("off"))
    assert tree_equality.trees_equal(found.policy, wanted.policy)


def test_all_processes_run_eager_if_one_of_them_has_to():
    class Another(Exchange):
        def facts(self, fact):
            return [fact, "act: OSError"]

    units = units_of("auto")
    setup = build_setup(small(policy_name="wait", engine=engine(compile="auto")), Another())
    quiet = Console(quiet=True, err=StringIO())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("morphogen.extras.compiler.compiled_units.warm_up", lambda *_: None)
        parts = compile_units(setup, Parts(compiled=units), quiet)
    assert parts.compiled is not None
    assert parts.compiled.eager
    assert parts.compiled.failure == "act: OSError"


def test_an_error_of_a_later_call_is_raised_as_it_is():
    def compiler(function, **_):
        calls = iter(range(2))

        def graph(x):
            if next(calls):
                raise ValueError("of the call")
            return function(x)

        return graph

    double = units_of("auto", compiler).unit("double", lambda x: 2 * x)
    assert double(2) == 4
    with pytest.raises(ValueError, match="of the call"):
        double(2)


def test_every_policy_has_a_unit_of_its_own():
    env = make("tiny", envs=2, seed=0)
    units = units_of("default")
    arms = [build_arm(name, env.setup).policy for name in ("wait", "heuristic", "heuristic")]
    found = [units.unit("act", partial(choose_actions, policy=policy), policy) for policy in arms]
    assert found[0] is not found[1]
    assert found[1] is found[2]


def test_units_do_not_share_the_largest_number_of_graphs():
    """The compiler counts the graphs of a code object, and refuses the ninth."""
    compiler = lambda function, options, **fixed: torch.compile(function, backend="eager", **fixed)
    units = units_of("default", compiler)
    for number in range(10):
        assert (
            units.unit(f"add {number}", partial(torch.add, number))(torch.ones(1)).item()
            == number + 1
        )
