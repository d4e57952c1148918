"""The compile policy: what gets a graph, how many there are, and that they change no number."""

import json
import warnings
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states
from support.small_runs import live, tiny, world_of
from torch._dynamo.utils import counters

from bench.harness.bench_scenes import build_scene
from morphogen.cli.probe import events_by_round
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.engine.compile import (
    SIGNATURE_ROUNDS,
    CompiledUnits,
    FittedPlan,
    PaddingState,
    Signature,
    compiler_options,
)
from morphogen.engine.make import make
from morphogen.engine.scheduler import Hooks, Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.errors import CheckpointError, DeviceError
from morphogen.learn.update import minibatch_step
from morphogen.nets.plan import build_slot_plans, empty_plan, join_plans, pad_plan
from morphogen.run.train import train_ppo_vectorized
from morphogen.steps.train import train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.storage.checkpoint_files import load_checkpoint
from morphogen.storage.codec import pack, unpack
from morphogen.telemetry.writer import MemorySink
from morphogen.testing.builders import tree_equality
from morphogen.testing.laws.step import GraphCounter

NET = small_states.net()
ENVS = 6
BARE = empty_plan(ENVS, NET)
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


def book(most):
    """The book-keeping alone: a compiler that leaves functions as they are."""
    return CompiledUnits(engine(max_graphs=most), compiler=lambda function, **_: function)


@cache
def plan_of(seed):
    return small_states.plan(small_states.mixed(NET, ENVS, seed=seed), NET)


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


def test_nothing_is_padded_or_compiled_unless_it_is_asked_for():
    compiled, plan = CompiledUnits(), plan_of(0)
    assert compiled.fit(plan) == (plan, None, None)
    assert compiled.unit("head", len) is len
    assert compiled.unit(None, len) is len


def lives(compiled, rounds, envs=ENVS):
    """Rounds of plans under a book -> per round, how each of them was run."""
    found = []
    for number, plans in enumerate(rounds):
        found.append([compiled.fit(plan) for plan in plans])
        compiled.end_round(number, envs)
    return found


def test_a_round_is_looked_at_before_anything_is_compiled_for_it():
    compiled, plan = book(8), plan_of(0)
    (first,), (second,) = lives(compiled, [[plan], [plan]])
    assert (first.plan, first.train, first.validate) == (plan, None, None)
    wide = pad_plan(plan, ENVS)
    assert (second.plan.train, second.plan.evaluate, second.plan.rows) == (wide.train, wide.evaluate, wide.rows)
    assert second.plan.births == plan.births
    assert [second.train, second.validate] == compiled.signatures
    assert compiled.totals.graph_fallbacks == 1


def test_the_signatures_of_a_round_have_room_for_all_of_its_plans():
    compiled, plans = book(8), [plan_of(seed) for seed in range(4)]
    _, found = lives(compiled, [plans, plans])
    assert {(one.train, one.validate) for one in found} == {tuple(compiled.signatures)}
    assert compiled.totals.graph_fallbacks == len(plans)


def test_a_larger_plan_runs_eager_until_the_round_is_over_and_its_signature_replaces_the_one_before():
    compiled = book(8)
    whole = replace(BARE, train=build_slot_plans([ENVS if at % 25 < 15 else 0 for at in range(75)]))
    found = lives(compiled, [[BARE], [whole, BARE], [BARE, whole]])
    small, large = (one for one in compiled.signatures if one.unit == "train")
    assert large.covers(small)
    assert [one.train for one in found[1]] == [None, small]
    assert found[1][0].plan.train == whole.train
    assert [one.train for one in found[2]] == [large, large]
    assert compiled.totals.graph_fallbacks == 2


def test_a_new_signature_has_the_room_of_the_one_before():
    compiled = book(8)
    one, other = (replace(BARE, train=build_slot_plans([0] * 25 * s + [6] * 3 + [0] * (72 - 25 * s))) for s in (0, 1))
    *_, found = lives(compiled, [[one], [other], [one, other]])
    assert all(run.train == compiled.signatures[-1] for run in found)
    assert compiled.totals.graph_fallbacks == 2


def test_beyond_the_limit_there_is_no_new_signature_and_what_has_no_room_runs_eager():
    compiled, plan = book(2), plan_of(0)
    _, grown, again = lives(compiled, [[BARE], [plan], [plan, BARE]])
    assert [one.unit for one in compiled.signatures] == ["train", "validate"]
    assert again == [*grown, FittedPlan(replace(BARE, padded=True), *compiled.signatures)]
    assert again[0] == FittedPlan(plan, None, None)
    assert compiled.totals.graph_fallbacks == 3


def test_one_unit_may_run_eager_beside_the_other():
    compiled, plan = book(1), plan_of(0)
    _, (found,) = lives(compiled, [[plan], [plan]])
    assert (found.train, found.validate) == (compiled.signatures[0], None)
    assert (found.plan.evaluate, found.plan.rows) == (plan.evaluate, plan.rows)
    assert compiled.totals.graph_fallbacks == 2


def test_after_the_first_rounds_nothing_new_is_compiled():
    compiled, plan = book(8), plan_of(0)
    early = lives(compiled, [[BARE]] * SIGNATURE_ROUNDS + [[plan], [plan]])
    assert early[-1] == [FittedPlan(plan, None, None)]
    assert len(compiled.signatures) == 2
    assert compiled.totals.graph_fallbacks == 3


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=SIGNATURE_ROUNDS + 3),
    st.integers(1, 9),
)
def test_whatever_grows_has_the_room_it_needs_in_few_graphs(seeds, most):
    rounds = [[plan_of(seed) for seed in some] for some in seeds]
    compiled = book(most)
    for plan, found in zip(chain(*rounds), chain(*lives(compiled, rounds)), strict=True):
        needed, got = (join_plans([one]) for one in (plan, found.plan))
        assert join_plans([needed, got]) == got
    assert len(compiled.signatures) <= min(most, 2 * SIGNATURE_ROUNDS)


@pytest.mark.slow
@given(st.lists(st.integers(0, 60), min_size=2, max_size=SIGNATURE_ROUNDS + 2), st.integers(1, 2 * SIGNATURE_ROUNDS))
def test_a_run_that_goes_on_after_any_epoch_pads_as_before(seeds, stop):
    plans = [plan_of(seed + i) for seed in seeds for i in range(2)]  # two epochs a round
    first, begun, again = book(8), book(8), book(8)
    whole = [_epoch(first, number, plan) for number, plan in enumerate(plans)]
    for number, plan in enumerate(plans[:stop]):
        _epoch(begun, number, plan)
    again.restore(unpack(PaddingState, pack(begun.padding_state()), "compiled"), plans[0])
    assert [_epoch(again, number, plan) for number, plan in enumerate(plans[stop:], stop)] == whole[stop:]
    assert again.padding_state() == first.padding_state()


def _epoch(compiled, number, plan):
    """The plan as it is run; after every second one the round ends."""
    fitted = compiled.fit(plan)
    if number % 2:
        compiled.end_round(number // 2, ENVS)
    return fitted


def test_sizes_of_other_hosts_are_refused():
    compiled = book(8)
    compiled.fit(plan_of(1))
    known = compiled.padding_state()
    for odd in (known._replace(seen=known.seen[:3]), known._replace(signatures=(Signature("train", (1, 2)),))):
        with pytest.raises(CheckpointError, match=r"shared\.compiled: expected sizes of plans"):
            book(8).restore(odd, plan_of(1))


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
def test_a_life_of_seeds_is_looked_at_then_compiled_once_and_a_third_one_makes_no_graph(tmp_path):
    counter, file = GraphCounter("eager"), tmp_path / "life.json"
    compiler = compiling(counter, train_minibatch, validate)
    scheduler, history, states = episode(small(file, rounds=3, seed=1, engine=engine()), compiler)
    compiled, fixed = scheduler.compiled, 4  # observation, policy, head and tail; a schedule learns nothing
    assert (history[0].germinated, history[0].fossilized, history[0].pruned) == (2, 1, 1)
    assert [one.unit for one in compiled.signatures] == ["train", "validate"]
    assert [one.graphs for one in history] == [fixed, 2, 0]
    assert (counter.graphs, compiled.totals.graphs) == (2, fixed + 2)
    assert [one.graph_fallbacks for one in history] == [11, 0, 0]  # ten epochs, and the validation before them
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
    assert [(one.graphs, one.seconds) for one in history] == [(4, 0.0), (2, 0.0)]
    assert [one["Throughput"].compile_s for one in events_by_round(kept.events)] == [400.0, 200.0]


@pytest.mark.slow
def test_a_run_with_too_few_graphs_goes_on_eager_and_the_coefficients_of_a_round_make_no_new_one():
    counter, ppo = GraphCounter("eager"), PpoSpec(epochs=1, entropy_anneal_rounds=2)
    fields = {"rounds": 3, "episode_length": 2, "ppo": ppo}
    compiler = compiling(counter, minibatch_step)  # what a round changes goes to no other graph
    scheduler, history, states = episode(small(**fields, engine=engine(max_graphs=1)), compiler)
    assert [one.updated for one in history] == [True, True, True]
    assert all(one.germinated for one in history)
    assert [one.unit for one in scheduler.compiled.signatures] == ["train"]
    assert [one.graphs for one in history] == [5, 1, 0]  # observation, policy, head, tail and update; then training
    assert counter.graphs == 1
    assert [one.graph_fallbacks for one in history] == [3, 3, 3]  # validation, two epochs and the one before them
    assert scheduler.compiled.totals.graph_fallbacks == 9
    same(states[2], episode(small(**fields))[2][2])


def lived(setup, length=8):
    """Epochs of a random life: a function that runs one under a plan, its arguments, a plan for all, exact plans."""
    world = world_of(setup)
    given = [(epoch.before, epoch.choice.action) for epoch in live(world, "random", epochs=length)][3:]

    def run_under(plan):
        return partial(world.step, plan=plan)

    exact = [world.plan(*one) for one in given]
    return run_under, given, join_plans([pad_plan(plan, 2) for plan in exact]), exact


@pytest.mark.slow
def test_a_whole_epoch_is_one_graph_of_tensors_for_a_plan_with_room():
    torch.compiler.reset()
    counter = GraphCounter("eager")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        run_under, given, plan, exact = lived(build_setup(small()))
        assert any(any(one.births) for one in exact)
        graph = torch.compile(run_under(plan), fullgraph=True, dynamic=False, backend=counter)
        found = [graph(*one) for one in given]
        assert counter.graphs == 1
        for one, needed, got in zip(given, exact, found, strict=True):
            same(got, run_under(needed)(*one))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device; this machine has none")
def test_a_cuda_graph_replays_a_whole_epoch():
    with torch.no_grad():
        run_under, given, plan, exact = lived(build_setup(small(engine=EngineSpec(devices=("cuda",)))))
        padded = run_under(plan)
        static, graph, beside = tree_equality.copy_tree(given[0]), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(beside):
            for _ in range(3):
                padded(*static)
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph):
            out = padded(*static)
        for one, needed in zip(given, exact, strict=True):
            for path, leaf in tree_equality.leaves(static).items():
                leaf.copy_(tree_equality.leaves(one)[path])
            graph.replay()
            same(out, run_under(needed)(*one))


def test_a_mode_that_needs_cuda_is_refused_on_a_cpu():
    spec = tiny(engine=EngineSpec(devices=("cpu",), compile="reduce-overhead"))
    with pytest.raises(DeviceError, match="reduce-overhead: expected a CUDA device, got cpu"):
        build_setup(spec)


def test_the_signatures_of_a_run_are_in_its_checkpoint(tmp_path):
    spec = small(policy_name="wait", engine=engine(), episode_length=2)
    seen = []
    parts = Parts(compiler=lambda function, **_: function)
    train_ppo_vectorized(spec, parts=parts, out=tmp_path / "run", on_round=lambda _, s: seen.append(s.compiled))
    (path,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert load_checkpoint(path)["shared"]["compiled"] == pack(seen[0].padding_state())
    assert len(seen[0].signatures) == 2
