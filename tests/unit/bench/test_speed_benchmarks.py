"""Both sides of a benchmark compute the same."""

import pytest
import torch
from support import small_states
from support.extras import needs_extra

pytest.importorskip("morphogen.extras.compiler.compiled_units")
from bench.harness.bench_scenes import TOKENS, build_scene
from bench.harness.module_loop import LAYOUTS, ModuleLoop
from bench.harness.timing import Bench
from bench.speed import compiled, data, launches
from bench.speed.epoch import build_epoch


@pytest.fixture
def quick():
    return Bench(runs=1)


def test_the_loop_trains_what_the_stacked_form_trains():
    ours = build_scene("digits", 7, "mixed", minibatches=3).to(torch.float64)
    pairs = zip(
        ours.state.slots.blueprint.flatten(), ours.state.slots.algorithm.flatten(), strict=True
    )
    held = {(int(b), int(a)) for b, a in pairs}
    assert held == {(b, a) for b in range(1, 8) for a in (1, 2, 3)}
    stacked = ours.train()
    for layout in LAYOUTS:
        loop = ModuleLoop(ours, layout)
        loop.train()
        torch.testing.assert_close(loop.parameters(), stacked.host.params, rtol=1e-9, atol=1e-10)
    assert (stacked.host.params - ours.state.host.params).abs().max() > 1e-3


@pytest.mark.slow
@needs_extra("text")
def test_the_loop_trains_the_language_models_of_the_stacked_form():
    ours = build_scene(TOKENS, 7, "mixed", minibatches=2).to(torch.float64)
    loop, after = ModuleLoop(ours), ours.train()
    loop.train()
    torch.testing.assert_close(loop.parameters(), after.host.params, rtol=1e-9, atol=1e-10)
    assert (after.host.params - ours.state.host.params).abs().max() > 1e-3


def test_the_loop_trains_the_epoch_of_a_run_with_its_samples():
    ours = build_epoch("digits", 3, torch.device("cpu"), minibatches=9)  # enough to replay
    loop, after = ModuleLoop(ours.scene), ours.train()
    loop.train(ours.batches("contiguous"))
    torch.testing.assert_close(loop.parameters(), after.host.params, rtol=2e-3, atol=2e-3)
    assert (after.host.params - ours.scene.state.host.params).abs().max() > 2e-2


@pytest.mark.parametrize(
    ("kind", "most", "python"), [("none", 130, 600), ("light", 240, 950), ("mixed", 700, 3_700)]
)
def test_a_minibatch_without_kernels_takes_few_launches_and_little_python(kind, most, python):
    call = launches.minibatch_call("digits", kind)
    assert launches.count_launches(call) <= most
    assert launches.count_python_calls(call) <= python


@pytest.mark.slow
@needs_extra("cifar")
def test_the_loop_trains_seeds_too():
    ours = build_scene("cifar_baseline", 1, "mixed", minibatches=3).to(torch.float64)
    loop, after = ModuleLoop(ours, "channels_last"), ours.train()
    loop.train()
    for slot in ours.net.slots:
        row = after.seeds[slot.name, "params"][0]
        moved = small_states.stored(loop.envs[0].host.slots[slot.name], len(row))
        torch.testing.assert_close(row, moved, rtol=1e-9, atol=1e-10)
        assert not torch.equal(row, ours.state.seeds[slot.name, "params"][0])


def test_bare_hosts_train_and_score_like_hosts_with_empty_slots():
    ours = build_scene("digits", 3, "none", minibatches=2)
    bare = ours.without_slots()
    assert bare.state.slots.stage.shape == (3, 0)
    assert torch.equal(bare.train().host.params, ours.train().host.params)
    assert torch.equal(bare.validate().accuracy[:, 0], ours.validate().accuracy[:, 0])


def test_an_epoch_of_a_scene_starts_from_the_same_state_at_every_call():
    ours = build_scene("digits", 2, "kept", minibatches=2)
    assert torch.equal(ours.train().host.params, ours.train().host.params)


@pytest.mark.slow
def test_streamed_batches_are_those_of_resident_data(quick):
    data.measures(quick, 2, 3)
    seen = quick.checksums
    assert (
        seen["data_shifted"]
        == seen["data_shifted_streamed"]
        != seen["data_plain"]
        == seen["data_plain_streamed"]
    )


def test_a_compiled_form_that_computes_something_else_is_found():
    whole = {"stage": torch.tensor([1, 2]), "loss": torch.tensor([3.0, -1.0])}
    assert compiled.largest_error(
        {**whole, "loss": torch.tensor([3.0, -1.02])}, whole
    ) == pytest.approx(0.01)
    with pytest.raises(AssertionError, match="stage"):
        compiled.largest_error({**whole, "stage": torch.tensor([1, 3])}, whole)
