"""The compile policy: what gets a graph, how many there are, and that they change no number."""

import json
import warnings
from functools import partial

import pytest
import torch
from support.small_runs import live, tiny, world_of
from torch._dynamo.utils import counters

from bench.harness.bench_scenes import build_scene
from morphogen.cli.probe import events_by_round
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.engine.compile import CompiledUnits, compiler_options
from morphogen.engine.make import make
from morphogen.engine.scheduler import Hooks, Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.errors import DeviceError
from morphogen.learn.minibatch import minibatch_step
from morphogen.steps.validate_step import validate
from morphogen.telemetry.writer import MemorySink
from morphogen.testing.builders import tree_equality
from morphogen.testing.laws.step import GraphCounter

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


def small(path=None, **fields):
    """A run of two narrow hosts with one slot; `path`: where the schedule of a whole life of a seed is written."""
    if path is not None:
        path.write_text(json.dumps({"version": 1, "name": "life", "on_illegal": "wait", "steps": LIFE}))
        fields["policy_name"] = f"schedule:{path}"
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
    assert CompiledUnits().unit("head", len) is len


def counted_graph(function, **_):
    """Leave a function as it is, but count a graph at its first call, as the compiler does."""
    calls = []

    def graph(*args, **kwargs):
        counters["stats"]["unique_graphs"] += not calls
        calls.append(True)
        return function(*args, **kwargs)

    return graph


def compiling(counter, *functions):
    """A compiler of these functions; all others are left as they are, and counted."""

    def compiler(function, **options):
        known = getattr(function, "func", function) in functions
        return torch.compile(function, **options, backend=counter) if known else counted_graph(function)

    return compiler


def episode(spec, compiler=torch.compile):
    """A run; its scheduler, its summaries, and the states at the ends of its rounds."""
    states = []
    hooks = Hooks(on_round=lambda _, scheduler: states.append(scheduler.state))
    scheduler = Scheduler(build_setup(spec), Parts(compiler=compiler, hooks=hooks))
    with torch.no_grad():
        history = scheduler.run()
    return scheduler, history, states


def same(found, wanted):
    """Equal up to rounding."""
    others = tree_equality.leaves(found)
    for path, leaf in tree_equality.leaves(wanted).items():
        torch.testing.assert_close(others[path], leaf, rtol=1e-5, atol=1e-5, msg=path)


@pytest.mark.slow
def test_a_life_of_seeds_makes_no_graph_after_the_first_round_and_the_same_numbers(tmp_path):
    file = tmp_path / "life.json"
    compiler = compiling(GraphCounter("eager"))
    scheduler, history, states = episode(small(file, rounds=3, seed=1, engine=engine()), compiler)
    assert (history[0].germinated, history[0].fossilized, history[0].pruned) == (2, 1, 1)
    assert [one.graphs for one in history] == [4, 0, 0]  # observation, policy, head and tail; a schedule learns nothing
    assert scheduler.compiled.totals.graphs == 4
    for found, wanted in zip(states, episode(small(file, rounds=3, seed=1))[2], strict=True):
        same(found, wanted)


def test_results_of_a_mode_with_cuda_graphs_outlive_the_next_call():
    memory = torch.zeros(3)
    twice = lambda x: (torch.mul(x, 2, out=memory), None)  # noqa: E731  (as a CUDA graph does)
    double = CompiledUnits(engine(compile="max-autotune"), compiler=lambda function, **_: function).unit("head", twice)
    first = double(torch.ones(3))
    double(torch.full((3,), 5.0))
    assert first[0].tolist() == [2.0, 2.0, 2.0]
    assert first[1] is None


@pytest.mark.parametrize(("device", "capability", "bits"), [
    ("cpu", "AVX512_VNNI", 256),  # two of them fit one register
    ("cpu", "AVX2", None),
    ("cpu", "DEFAULT", None),
    ("cuda", "AVX512", None),
])  # fmt: skip
def test_vectors_are_made_shorter_only_where_the_processor_has_longer_ones(monkeypatch, device, capability, bits):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    told = compiler_options(device)
    assert told.get("cpp.simdlen") == bits


def test_the_device_that_auto_stands_for_decides_the_options_of_the_compiler(monkeypatch):
    """`auto` and the name of the device behind it compile alike, in runs and in environments."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = []

    def compiler(function, **given):
        options.append(given["options"])
        return function

    for name in ("auto", "cpu"):
        setup = build_setup(small(engine=engine(devices=(name,))))
        Scheduler(setup, Parts(compiler=compiler)).env.reset()
        assert make(setup.spec).compiled.device == torch.device("cpu")
    assert options
    assert all(given == compiler_options("cpu") for given in options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler, as where a run compiles
def test_validation_of_every_way_of_blending_is_one_graph():
    for host in ("digits", "cifar_baseline"):  # the second shows that no number of the first has been made a symbol
        ours = build_scene(host, 3, "mixed")
        judge = partial(validate, plan=ours.plan, net=ours.net)
        compiled = torch.compile(judge, fullgraph=True, dynamic=False, backend="eager")
        found = compiled(ours.state, ours.split, *ours.requested_coalitions)
        assert torch.equal(found.accuracy, judge(ours.state, ours.split, *ours.requested_coalitions).accuracy)


def test_the_time_of_making_a_graph_is_told_apart():
    now = [0.0]

    def compiler(function, **_):
        """A function whose first call takes 100 seconds and makes a graph; nothing else takes any time."""
        first = iter((True,))

        def run(*args, **knobs):
            made = next(first, False)
            now[0] += 100.0 * made
            counters["stats"]["unique_graphs"] += int(made)
            return function(*args, **knobs)

        return run

    spec = small(policy_name="germinate_one", rounds=2, episode_length=2, engine=engine())
    kept = MemorySink()
    scheduler = Scheduler(build_setup(spec), Parts(compiler=compiler, clock=lambda: now[0], sinks=(kept,)))
    with torch.no_grad():
        history = scheduler.run()
    scheduler.reporter.close()
    assert [(one.graphs, one.seconds) for one in history] == [(4, 0.0), (0, 0.0)]
    assert [one["Throughput"].compile_s for one in events_by_round(kept.events)] == [400.0, 0.0]


@pytest.mark.slow
def test_the_coefficients_of_a_round_make_no_new_graph():
    counter, ppo = GraphCounter("eager"), PpoSpec(epochs=1, entropy_anneal_rounds=2)
    fields = {"rounds": 3, "episode_length": 2, "ppo": ppo}
    compiler = compiling(counter, minibatch_step)  # what a round changes goes to no other graph
    _, history, states = episode(small(**fields, engine=engine()), compiler)
    assert [one.updated for one in history] == [True, True, True]
    assert [one.graphs for one in history] == [5, 0, 0]  # observation, policy, head, tail and update
    assert counter.graphs == 1
    same(states[2], episode(small(**fields))[2][2])


def lived(setup, length=8):
    """Epochs of a random life: a function that runs one under a plan, and the arguments and plan of each epoch."""
    world = world_of(setup)
    given = [(epoch.before, epoch.choice.action) for epoch in live(world, "random", epochs=length)][3:]

    def run_under(plan):
        return partial(world.step, plan=plan)

    return run_under, given, [world.plan(*one) for one in given]


@pytest.mark.slow
def test_a_whole_epoch_is_one_graph_of_tensors_for_its_plan():
    torch.compiler.reset()
    counter = GraphCounter("eager")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        run_under, given, plans = lived(build_setup(small()))
        at = next(i for i, plan in enumerate(plans) if any(plan.births))
        graph = torch.compile(run_under(plans[at]), fullgraph=True, dynamic=False, backend=counter)
        found = [graph(*given[at]) for _ in range(2)]
        assert counter.graphs == 1
        for got in found:
            same(got, run_under(plans[at])(*given[at]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device; this machine has none")
def test_a_cuda_graph_replays_a_whole_epoch():
    with torch.no_grad():
        run_under, given, plans = lived(build_setup(small(engine=EngineSpec(devices=("cuda",)))))
        step = run_under(plans[0])
        static, graph, beside = tree_equality.copy_tree(given[0]), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(beside):
            for _ in range(3):
                step(*static)
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph):
            out = step(*static)
        graph.replay()
        same(out, step(*given[0]))


def test_a_mode_that_needs_cuda_is_refused_on_a_cpu():
    spec = tiny(engine=EngineSpec(devices=("cpu",), compile="reduce-overhead"))
    with pytest.raises(DeviceError, match="reduce-overhead: expected a CUDA device, got cpu"):
        build_setup(spec)
