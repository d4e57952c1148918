"""Capture on a CPU, by graphs and by the recorder: the bits of runs without, planted faults, calls
of a replay.
"""

import sys
from contextlib import nullcontext

import pytest
import torch
from support.captured_runs import MINIBATCHES, RESTLESS, run, spec_of
from support.graph_recorder import GraphRecorder

from morphogen.config.host import CnnSpec
from morphogen.data.feed import Feed
from morphogen.env.capture import Capture
from morphogen.env.setup import build_setup
from morphogen.state.loops import repeat
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.train.loop import Parts, Scheduler


@pytest.mark.slow
def test_recorded_epochs_have_the_bits_of_plain_ones(monkeypatch):
    monkeypatch.setattr(CnnSpec, "chunk", 50)
    settings = {**RESTLESS, "rounds": 2, "episode_length": 5, "data": {"placement": "resident"}}
    recorder = GraphRecorder()
    captured, history, states = run(recorder, **settings)
    _, plain_history, plain_states = run(None, **settings)
    assert history == plain_history
    assert trees_equal(states, plain_states)
    assert sum(summary.rollbacks for summary in history) > 0
    assert sum(summary.germinated for summary in history) > 0
    epochs, rounds, steps = 2 * 5, 2, 2 * 2  # steps of the policy in a round
    assert recorder.graphs == captured.env.capture.recorded == 2 * (epochs + rounds)
    replays = (
        epochs * (MINIBATCHES - 1) + (epochs + rounds) * (300 // 50 - 1) + rounds * (steps - 1)
    )
    assert recorder.replays == replays
    assert captured.env.capture.fallbacks == 0


ORIGINAL = Feed.batch


def batch_that_asks(feed, draws, minibatch):
    """A minibatch whose number is read by the host."""
    return ORIGINAL(feed, draws, torch.tensor([minibatch.item()]))


def batch_that_writes(feed, draws, minibatch):
    """A minibatch that changes the draws of its epoch in place."""
    draws.labels.add_(0)
    return ORIGINAL(feed, draws, minibatch)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (batch_that_asks, "reads a value on the host"),
        (batch_that_writes, "the pass writes to its input"),
    ],
)
def test_a_loop_that_no_graph_can_hold_runs_as_it_is_and_is_counted_with_its_reason(
    fault, reason, monkeypatch
):
    monkeypatch.setattr(Feed, "batch", fault)
    with pytest.warns(
        RuntimeWarning, match=f"engine.capture: runs without a graph: .*{reason}"
    ) as said:
        scheduler, history, states = run(GraphRecorder())
    assert len(said) == 1
    assert scheduler.env.capture.fallbacks == history[0].graph_fallbacks == 6
    monkeypatch.undo()
    assert trees_equal(states, run(None)[2])


def test_a_state_that_changes_its_shape_falls_back():
    capture = Capture(GraphRecorder())
    with pytest.warns(
        RuntimeWarning, match=r"expected the leaf of the first pass or one of its form"
    ):
        grown = capture.repeat(lambda x: torch.cat((x, x)), torch.ones(1), 5)
    assert grown.shape == (32,)
    assert (capture.recorded, capture.fallbacks) == (0, 1)


def test_short_loops_are_not_recorded():
    capture = Capture(GraphRecorder())
    assert capture.repeat(lambda x: x + 1, torch.zeros(2), 3).tolist() == [3, 3]
    assert (capture.recorded, capture.fallbacks) == (0, 0)


def test_recording_is_a_pass():
    total = torch.zeros(2)
    replay = GraphRecorder().record(lambda: {"total": total + 1}, {"total": total})
    assert total.tolist() == [1, 1]
    replay()
    assert total.tolist() == [2, 2]


def test_state_that_swaps_its_leaves_is_written_back_without_overwriting_itself():
    start = torch.tensor([1.0]), torch.tensor([2.0])
    swap = lambda pair: (pair[1], pair[0])
    for times in (4, 5):
        captured = Capture(GraphRecorder()).repeat(swap, start, times)
        assert trees_equal(captured, repeat(swap, start, times))


class CountedGraphs:
    """Graphs whose replay does nothing, as its launch looks to Python; `calls` before each
    replay.
    """

    fewest_passes = 4

    def __init__(self):
        self.calls, self.before = 0, []

    def stream(self):
        return nullcontext()

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
