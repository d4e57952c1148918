"""`engine.amp`: modes and devices, runs in low precision, and the loss scale in checkpoints."""

from dataclasses import replace

import pytest
import torch
from support.small_runs import live, tiny, tiny_setup, world_of

from morphogen.config.execution_spec import EngineSpec
from morphogen.env.setup import PRECISIONS, build_setup, resolve_precision
from morphogen.errors import DeviceError
from morphogen.train.loop import Scheduler
from morphogen.train.manifest import build_manifest, run_started_event

CPU = torch.device("cpu")


def setup_in(mode, **fields):
    """A setup in a precision that a CPU is refused, but can compute."""
    setup = tiny_setup(**fields)
    return replace(setup, net=replace(setup.net, precision=PRECISIONS[mode]))


def test_float16_is_refused_without_cuda_before_data_are_opened():
    spec = tiny(engine=EngineSpec(devices=("cpu",), amp="float16"))
    with pytest.raises(
        DeviceError,
        match=r"^engine\.amp: expected one of off, auto, bfloat16 on cpu, got 'float16'",
    ):
        build_setup(spec)


@pytest.mark.parametrize(
    ("capability", "label"), [((7, 5), "float16"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")]
)
def test_auto_is_what_the_device_computes_in(monkeypatch, capability, label):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert resolve_precision("auto", torch.device("cuda:0")).label == label
    assert resolve_precision("auto", CPU).label == resolve_precision("off", CPU).label == "float32"


def test_only_float16_scales_losses():
    assert [mode for mode, precision in PRECISIONS.items() if precision.scaled] == ["float16"]


def test_the_first_event_names_the_resolved_precision(tmp_path):
    for mode, label in (("auto", "float32"), ("bfloat16", "bfloat16")):
        scheduler = Scheduler(build_setup(tiny(engine=EngineSpec(devices=("cpu",), amp=mode))))
        event = run_started_event(
            scheduler, build_manifest(scheduler.setup, out=tmp_path, command="train"), ["cpu"]
        )
        assert (event.precision, event.config["engine"]["amp"]) == (label, mode)


@pytest.mark.parametrize("mode", ["bfloat16", "float16"])
def test_an_episode_of_random_growth_stays_finite_and_calm(mode):
    world = world_of(setup_in(mode, envs=6, episode_length=12))
    epochs = live(world)
    assert (epochs[-1].after.slots.blueprint > 0).any()
    assert not any(epoch.step.report.panic.any() for epoch in epochs)
    assert all(epoch.step.validation.loss.isfinite().all() for epoch in epochs)


def test_steps_that_overflow_are_no_panic_and_no_fault():
    """From the largest scale every step overflows for epochs on end, until the scale is low
    enough.
    """
    world = world_of(setup_in("float16", envs=4, episode_length=10))

    def from_the_top(t, state):
        scale = torch.full_like(state.scaling.loss_scale, 2.0**24)
        return state.replace(scaling=state.scaling.replace(loss_scale=scale)) if t == 0 else state

    epochs = live(world, "wait", change=from_the_top)
    starved = [epoch.step.metrics.skipped >= 2 for epoch in epochs]
    assert sum(starved).max() >= world.setup.spec.governor.panics
    assert not any(
        epoch.step.report.panic.any() or epoch.step.report.anomaly.any() for epoch in epochs
    )
    assert (epochs[-1].after.scaling.loss_scale < 2.0**24).all()
    assert not epochs[-1].step.metrics.skipped.any()
