"""Graphs of a CPU: every kind of operator computes in a replay what it computes in a pass, in
memory of its own.
"""

import functools
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.extras import needs_extra
from torch import nn

from bench.harness.bench_scenes import build_scene
from morphogen.env.capture import Capture
from morphogen.extras.cpu_graphs import recorder
from morphogen.extras.cpu_graphs.recorder import Block, CpuGraphs, plan_memory
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.schedule import RateSchedule
from morphogen.kernels import one_thread
from morphogen.kernels.sums import column_sums
from morphogen.state.loops import repeat
from morphogen.steps.train import start_epoch
from morphogen.testing.builders.tree_equality import trees_equal

PASSES = 9
ADAPTIVE = {
    "optimizer": OPTIMIZERS["adamw"],
    "schedule": RateSchedule(minibatches=PASSES, epochs=2, warmup=4),
    "freeze": ("block0.*",),
}


def in_place(x):
    return (x * 0.5).add_(1.0).clamp_(max=3.0)


def views(x):
    first, second = torch.cat((x, x + 1)).unsafe_split(len(x))
    return first.t().reshape(x.shape) + second.expand_as(x)


def views_in_place(x):
    return (x * 0.5).unsqueeze_(0).transpose_(1, 2).squeeze_(0).contiguous() + 1


def an_empty_view(x):
    y = x * 0.5
    return torch.cat((y[:, 3:3], y, y[:, 8:]), 1) + 1


def several_results(x):
    values, index = x.sort(-1)
    return values + index * 0.25 + x.topk(2, -1).values.sum()


def without_a_form_that_fills_memory(x):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        image = nn.functional.conv2d(leaf[None, None], torch.ones(1, 1, 3, 3), padding=1)
        return torch.autograd.grad((image * leaf).sum() / 64, leaf)[0]


def a_kernel_that_copies_its_input(x):
    return x * 0.5 + column_sums(x.unsqueeze(0).transpose(1, 2)).squeeze(0).unsqueeze(-1) / 64


def with_a_gradient_of_its_own(x):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(nn.functional.silu(leaf).square().sum(), leaf)[0]


def one_and_more_threads(x):
    with one_thread(x.device):
        y = x @ x.t()
    return (y / 64).cos()


def constants(x):
    return x * torch.tensor([0.5, 0.25]).repeat(4) + torch.arange(8) / 8


PASS_BODIES = (
    *(in_place, views, views_in_place, an_empty_view, several_results),
    *(without_a_form_that_fills_memory, a_kernel_that_copies_its_input),
    *(with_a_gradient_of_its_own, one_and_more_threads, constants),
)


@pytest.mark.parametrize("adopted_bytes", [2**16, 0], ids=["copied", "adopted"])
@pytest.mark.parametrize("body", PASS_BODIES, ids=lambda body: body.__name__)
def test_replays_have_the_bits_of_passes(body, adopted_bytes, monkeypatch):
    monkeypatch.setattr(recorder, "_ADOPTED_BYTES", adopted_bytes)
    start = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    capture = Capture(CpuGraphs())
    with torch.no_grad():
        assert torch.equal(capture.repeat(body, start, PASSES), repeat(body, start, PASSES))
    assert (capture.recorded, capture.fallbacks) == (1, 0)


def test_a_replay_changes_the_number_of_threads_where_the_pass_does():
    threads, seen, total = torch.get_num_threads(), [], torch.ones(8, 8)
    torch.set_num_threads(2)
    try:
        graph = CpuGraphs().record(lambda: {"total": one_and_more_threads(total)}, {"total": total})
        for call, args, kwargs in graph.calls:
            call(*args, **kwargs)
            seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(threads)
    assert seen[0] == 1
    assert seen[-1] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "envs", "trained"),
    [
        ("digits", 7, {}),
        ("digits", 7, ADAPTIVE),
        pytest.param("tokens", 3, {}, marks=needs_extra("text")),
    ],
)
def test_a_minibatch_of_all_seeds_has_the_bits_of_a_pass(task, envs, trained):
    scene = build_scene(task, envs, "mixed", **trained)
    start = start_epoch(scene.state, scene.plan, net=scene.net)
    body = functools.partial(
        lambda batch, state: scene.minibatch_step(state, batch)[0], scene.batches[0]
    )
    with torch.no_grad():
        assert trees_equal(
            Capture(CpuGraphs()).repeat(body, start, PASSES), repeat(body, start, PASSES)
        )


def test_memory_of_a_graph_is_what_a_pass_has_at_once():
    total = torch.zeros(2**20)

    def long_pass():
        result = total
        for _ in range(64):
            result = result * 1.0
        return {"total": result}

    assert CpuGraphs().record(long_pass, {"total": total}).memory.nbytes <= 3 * total.nbytes


def test_a_large_result_is_no_part_of_the_memory_of_a_graph():
    image, weight = torch.rand(1, 4, 64, 64), torch.ones(4, 4, 1, 1)
    graph = CpuGraphs().record(
        lambda: {"image": nn.functional.conv2d(image, weight) / 4}, {"image": image}
    )
    before = image.clone()
    graph()
    torch.testing.assert_close(image, nn.functional.conv2d(before, weight) / 4)
    assert graph.memory.nbytes < 2 * image.nbytes


LIFETIMES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 700)), max_size=60
)


@given(LIFETIMES)
def test_blocks_in_use_at_the_same_time_never_overlap(lifetimes):
    blocks = [Block(None, size, first, first + calls) for first, calls, size in sorted(lifetimes)]
    total = plan_memory(blocks)
    filled = [block for block in blocks if block.nbytes]
    for block, other in itertools.combinations(filled, 2):
        together = other.first <= block.last
        apart = (
            block.offset + block.nbytes <= other.offset
            or other.offset + other.nbytes <= block.offset
        )
        assert apart or not together
    assert all(block.offset % 64 == 0 and block.offset + block.nbytes <= total for block in filled)


FAULTS = {
    "reads a value on the host": lambda x: {"x": x + x.sum().item()},
    "_local_scalar_dense": lambda x: {"x": x + (1 if x.sum() > 0 else 2)},
    "aten.index.Tensor reads": lambda x: {"x": x + x[x > 0].sum()},
    "the pass writes to its input": lambda x: {"x": x.add_(1)},
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_pass_that_no_graph_holds_is_refused_and_leaves_the_buffers_as_they_were(reason):
    x = torch.ones(3)
    with torch.no_grad(), pytest.raises(RuntimeError, match=reason):
        CpuGraphs().record(lambda: FAULTS[reason](x), {"x": x})
    assert x.tolist() == [1, 1, 1]
