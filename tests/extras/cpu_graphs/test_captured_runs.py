"""Capture of a run on a CPU: the bits of runs without graphs."""

import pytest
import torch
from support.captured_runs import RESTLESS, run, spec_of
from support.extras import rows_of_extra

from morphogen.config.execution_spec import EngineSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.env.capture import Capture, open_capture
from morphogen.env.setup import build_setup
from morphogen.extras.cpu_graphs.recorder import CpuGraphs
from morphogen.state.loops import repeat
from morphogen.testing.builders.tree_equality import trees_equal

CASES = {
    "resident": {},
    **rows_of_extra("streaming", lambda: {"streamed": {"data": {"placement": "streamed"}}}),
    "bfloat16": {"engine": EngineSpec(amp="bfloat16")},
    **rows_of_extra(
        "text", lambda: {"language": {"task": "pydoc", "data": {"batch": 2, "val_samples": 16}}}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_epochs_of_a_cpu_have_the_bits_of_plain_ones(case):
    settings = {
        **RESTLESS,
        "rounds": 2,
        "episode_length": 3,
        "ppo": PpoSpec(epochs=4, minibatches=2),
        **CASES[case],
    }
    settings["data"] = {"minibatches": 9} | settings.get("data", {})
    graphs, history, states = run(CpuGraphs(), **settings)
    _, plain_history, plain_states = run(None, **settings)
    assert history == plain_history
    assert trees_equal(states, plain_states)
    # epochs, and an update
    assert (graphs.env.capture.recorded, graphs.env.capture.fallbacks) == (2 * (3 + 1), 0)


@pytest.mark.parametrize(("mode", "kind"), [("auto", CpuGraphs), ("off", type(None))])
def test_a_run_on_a_cpu_records_its_loops_unless_told_otherwise(mode, kind):
    setup = build_setup(spec_of(engine=EngineSpec(capture=mode)))
    assert type(open_capture(setup)._graphs) is kind


def test_state_that_swaps_its_leaves_is_written_back_without_overwriting_itself():
    start = torch.tensor([1.0]), torch.tensor([2.0])
    swap = lambda pair: (pair[1], pair[0])
    for times in (8, 9):
        captured = Capture(CpuGraphs()).repeat(swap, start, times)
        assert trees_equal(captured, repeat(swap, start, times))


@pytest.mark.filterwarnings("ignore")  # of the compiler, as where a run compiles
def test_a_graph_of_the_compiler_holds_the_passes_itself():
    capture = Capture(CpuGraphs())
    double = lambda carry: {"x": carry["x"] * 2}
    repeat = torch.compile(
        lambda x: capture.repeat(double, {"x": x}, 9)["x"], fullgraph=True, backend="eager"
    )
    assert repeat(torch.ones(2)).tolist() == [512.0, 512.0]
    assert capture.recorded == 0
