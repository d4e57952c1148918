"""Alpha: curves, the start of a ramp, ticks along it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.rules.stages import advance_ramp, curve, retarget
from morphogen.testing import oracles
from morphogen.testing.builders.scenes import SLOT_LEAVES, make_slot
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import AlphaMode, Curve, Stage

# lifecycle.md 5.1, typed over: alpha after each tick of a ramp 0 -> 1.
RAMPS = [
    (3, Curve.LINEAR, 12, [0.3333, 0.6667, 1]),
    (3, Curve.COSINE, 12, [0.2500, 0.7500, 1]),
    (3, Curve.SIGMOID, 6, [0.2447, 0.7553, 1]),
    (3, Curve.SIGMOID, 12, [0.1173, 0.8827, 1]),
    (3, Curve.SIGMOID, 24, [0.0180, 0.9820, 1]),
]
steepnesses = st.floats(0.1, 1e4)


def start(slots, target, steps, shape=Curve.LINEAR, steepness=12.0):
    envs, count = slots.stage.shape
    everywhere = torch.ones(envs, count, dtype=torch.bool)
    ticks, kind = torch.full((envs, count), steps), torch.full((envs, count), int(shape))
    return retarget(slots, everywhere, target, steps=ticks, shape=kind, steepness=steepness)


def ride(slots, ticks):
    """Alpha after each of so many ticks, and the slots at the end."""
    seen = []
    for _ in range(ticks):
        slots = advance_ramp(slots, torch.ones_like(slots.stage, dtype=torch.bool))
        seen.append(slots.alpha.flatten()[0].item())
    return seen, slots


def at(t, shape, steepness, dtype=torch.float64):
    value = torch.as_tensor(t, dtype=dtype)
    return curve(
        value,
        torch.full_like(value, int(shape), dtype=torch.int64),
        torch.full_like(value, steepness),
    )


@pytest.mark.parametrize(("ticks", "shape", "steepness", "expected"), RAMPS)
def test_a_ramp_takes_the_tabled_values_tick_by_tick(ticks, shape, steepness, expected):
    slots = start(make_slot(stage=Stage.BLENDING), 1.0, ticks, shape, steepness)
    assert slots.alpha_mode.item() == AlphaMode.UP
    seen, slots = ride(slots, ticks)
    assert seen == pytest.approx(expected, abs=6e-5)
    assert (slots.alpha.item(), slots.alpha_mode.item()) == (1.0, AlphaMode.HOLD)


@given(steepnesses, st.sampled_from([Curve.LINEAR, Curve.COSINE, Curve.SIGMOID]))
def test_every_curve_only_rises_and_never_overflows(steepness, shape):
    values = at(torch.linspace(0, 1, 101), shape, steepness, torch.float32)
    assert values.isfinite().all()
    assert (values.diff() >= -1e-7).all()


@given(
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.sampled_from([0.0, 0.5, 0.7, 1.0]),
    st.integers(0, 12),
    st.sampled_from([Curve.LINEAR, Curve.COSINE, Curve.SIGMOID]),
    steepnesses,
)
def test_a_ramp_stays_between_its_ends_is_monotone_and_lands_exactly(
    begin, target, steps, shape, steepness
):
    slots = make_slot(stage=Stage.BLENDING, alpha=begin, alpha_target=begin)
    slots = start(slots, target, steps, shape, steepness)
    seen, after = ride(slots, steps)
    wanted = oracles.ramp(begin, target, 0 if begin == target else steps, int(shape), steepness)
    assert seen[: len(wanted)] == pytest.approx(wanted, abs=1e-6)
    path = [slots.alpha.item(), *seen]
    low, high = sorted((slots.alpha_start.item(), after.alpha_target.item()))
    assert all(low <= a <= high for a in path)
    assert path == sorted(path, reverse=target < begin)
    assert torch.equal(after.alpha, torch.tensor([[target]]))
    assert after.alpha_mode.item() == AlphaMode.HOLD
    assert after.alpha_done.item() == after.alpha_steps.item()


@given(
    slot_states(stages=(Stage.HOLDING, Stage.BLENDING)),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 8),
)
def test_a_moving_alpha_cannot_be_retargeted(slots, target, steps):
    after = start(slots, target, steps)
    moving = slots.alpha_mode != AlphaMode.HOLD
    for name in SLOT_LEAVES:
        assert torch.equal(getattr(after, name)[moving], getattr(slots, name)[moving]), name
