"""Capture of loops: the bits of runs without, loops that no graph holds, calls of a replay."""

import sys
from contextlib import nullcontext

import pytest
import torch
from support.captured_runs import MINIBATCHES, RESTLESS, run, spec_of

from morphogen.config.host import CnnSpec
from morphogen.device.graphs import write_back
from morphogen.env.capture import Capture
from morphogen.env.setup import build_setup
from morphogen.state.loops import repeat
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.train.loop import Parts, Scheduler


class RepeatedPasses:
    """Graphs that run the pass again for a replay, on the same buffers; `replays` counts them."""

    fewest_passes = 4

    def __init__(self):
        self.replays = 0

    def stream(self):
        return nullcontext()

    def record(self, step, buffers):
        def replay():
            self.replays += 1
            write_back(buffers, step())

        write_back(buffers, step())
        return replay


@pytest.mark.slow
def test_recorded_epochs_have_the_bits_of_plain_ones(monkeypatch):
    monkeypatch.setattr(CnnSpec, "chunk", 50)
    settings = {**RESTLESS, "rounds": 1, "episode_length": 3, "data": {"placement": "resident"}}
    graphs = RepeatedPasses()
    captured, history, states = run(graphs, **settings)
    _, plain_history, plain_states = run(None, **settings)
    assert history == plain_history
    assert trees_equal(states, plain_states)
    epochs, rounds, steps = 3, 1, 2 * 2  # steps of the policy in a round
    assert captured.env.capture.recorded == 2 * (epochs + rounds)
    replays = (
        epochs * (MINIBATCHES - 1) + (epochs + rounds) * (300 // 50 - 1) + rounds * (steps - 1)
    ) - captured.env.capture.recorded
    assert graphs.replays == replays
    assert captured.env.capture.fallbacks == 0


class NoGraphs(RepeatedPasses):
    """Graphs that hold no pass."""

    def record(self, step, buffers):
        raise RuntimeError("reads a value")


def test_a_loop_that_no_graph_can_hold_runs_as_it_is_and_is_counted_with_its_reason():
    capture = Capture(NoGraphs())
    said = "engine.capture: runs without a graph: reads a value"
    with pytest.warns(RuntimeWarning, match=said):
        found = capture.repeat(lambda x: x + 1, torch.zeros(2), 6)
    again = capture.repeat(lambda x: x + 1, found, 6)  # without another warning
    assert again.tolist() == [12, 12]
    assert (capture.recorded, capture.fallbacks) == (0, 2)


def test_a_state_that_changes_its_shape_falls_back():
    capture = Capture(RepeatedPasses())
    with pytest.warns(
        RuntimeWarning, match=r"expected the leaf of the first pass or one of its form"
    ):
        grown = capture.repeat(lambda x: torch.cat((x, x)), torch.ones(1), 5)
    assert grown.shape == (32,)
    assert (capture.recorded, capture.fallbacks) == (0, 1)


def test_short_loops_are_not_recorded():
    capture = Capture(RepeatedPasses())
    assert capture.repeat(lambda x: x + 1, torch.zeros(2), 3).tolist() == [3, 3]
    assert (capture.recorded, capture.fallbacks) == (0, 0)


def test_state_that_swaps_its_leaves_is_written_back_without_overwriting_itself():
    start = torch.tensor([1.0]), torch.tensor([2.0])
    swap = lambda pair: (pair[1], pair[0])
    for times in (4, 5):
        captured = Capture(RepeatedPasses()).repeat(swap, start, times)
        assert trees_equal(captured, repeat(swap, start, times))


class CountedGraphs(RepeatedPasses):
    """Graphs whose replay does nothing, as its launch looks to Python; `calls` before each
    replay.
    """

    def __init__(self):
        self.calls, self.before = 0, []

    def record(self, step, buffers):
        step()
        return lambda: self.before.append(self.calls)

    def count(self, frame, event, _):
        self.calls += event in ("call", "c_call")


def test_a_replayed_minibatch_costs_the_host_few_calls():
    graphs = CountedGraphs()
    spec = spec_of(envs=2, episode_length=1, data={"minibatches": 41, "val_samples": 32})
    scheduler = Scheduler(build_setup(spec), Parts(capture=Capture(graphs)))
    sys.setprofile(graphs.count)
    try:
        with torch.no_grad():
            scheduler.run()
    finally:
        sys.setprofile(None)
    minibatches = graphs.before[:39]  # of the epoch; the update follows
    assert (minibatches[-1] - minibatches[0]) / 38 <= 80  # a pass costs thousands
