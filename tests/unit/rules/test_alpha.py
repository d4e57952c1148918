"""Alpha: curves, the start of a ramp, ticks along it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.rules.stages import advance_ramp, curve, retarget
from morphogen.testing.builders.scenes import SLOT_LEAVES, make_slot, make_slots
from morphogen.testing.builders.tree_equality import differing_leaves, trees_equal
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import AlphaMode, Curve, Stage

# lifecycle.md 5.1, typed over: alpha after each tick of a ramp 0 -> 1.
RAMPS = [
    (3, Curve.LINEAR, 12, [0.3333, 0.6667, 1]),
    (3, Curve.COSINE, 12, [0.2500, 0.7500, 1]),
    (3, Curve.SIGMOID, 6, [0.2447, 0.7553, 1]),
    (3, Curve.SIGMOID, 12, [0.1173, 0.8827, 1]),
    (3, Curve.SIGMOID, 24, [0.0180, 0.9820, 1]),
    (5, Curve.LINEAR, 12, [0.2, 0.4, 0.6, 0.8, 1]),
    (5, Curve.COSINE, 12, [0.0955, 0.3455, 0.6545, 0.9045, 1]),
    (5, Curve.SIGMOID, 6, [0.1043, 0.3391, 0.6609, 0.8957, 1]),
    (5, Curve.SIGMOID, 12, [0.0242, 0.2301, 0.7699, 0.9758, 1]),
    (5, Curve.SIGMOID, 24, [0.0007, 0.0832, 0.9168, 0.9993, 1]),
    (8, Curve.LINEAR, 12, [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]),
    (8, Curve.COSINE, 12, [0.0381, 0.1464, 0.3087, 0.5, 0.6913, 0.8536, 0.9619, 1]),
    (8, Curve.SIGMOID, 6, [0.0529, 0.1491, 0.3020, 0.5, 0.6980, 0.8509, 0.9471, 1]),
    (8, Curve.SIGMOID, 12, [0.0086, 0.0452, 0.1808, 0.5, 0.8192, 0.9548, 0.9914, 1]),
    (8, Curve.SIGMOID, 24, [0.0001, 0.0025, 0.0474, 0.5, 0.9526, 0.9975, 0.9999, 1]),
]
HERE = torch.ones(1, 1, dtype=torch.bool)
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
    seen, slots = ride(start(make_slot(stage=Stage.BLENDING), 1.0, ticks, shape, steepness), ticks)
    assert seen == pytest.approx(expected, abs=6e-5)
    assert (slots.alpha.item(), slots.alpha_mode.item()) == (1.0, AlphaMode.HOLD)


@given(steepnesses, st.sampled_from([Curve.LINEAR, Curve.COSINE, Curve.SIGMOID]), st.floats(0, 1))
def test_every_curve_runs_from_0_over_a_half_to_1_and_is_point_symmetric(steepness, shape, t):
    ends = at([0.0, 0.5, 1.0], shape, steepness)
    assert ends.tolist() == pytest.approx([0.0, 0.5, 1.0], abs=1e-12)
    assert (at(t, shape, steepness) + at(1 - t, shape, steepness)).item() == pytest.approx(
        1.0, abs=1e-9
    )


@given(steepnesses, st.sampled_from([Curve.LINEAR, Curve.COSINE, Curve.SIGMOID]))
def test_every_curve_only_rises_and_never_overflows(steepness, shape):
    values = at(torch.linspace(0, 1, 101), shape, steepness, torch.float32)
    assert values.isfinite().all()
    assert (values.diff() >= -1e-7).all()


@given(steepnesses, st.sampled_from([Curve.LINEAR, Curve.COSINE]))
def test_only_the_sigmoid_reads_the_steepness(steepness, shape):
    t = torch.linspace(0, 1, 11)
    assert torch.equal(at(t, shape, steepness), at(t, shape, 12.0))


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
    path = [slots.alpha.item(), *seen]
    low, high = sorted((slots.alpha_start.item(), after.alpha_target.item()))
    assert all(low <= a <= high for a in path)
    assert path == sorted(path, reverse=target < begin)
    assert torch.equal(after.alpha, torch.tensor([[target]]))
    assert after.alpha_mode.item() == AlphaMode.HOLD
    assert after.alpha_done.item() == after.alpha_steps.item()


@given(slot_states())
def test_ticks_of_resting_slots_change_nothing(slots):
    after = advance_ramp(slots, torch.ones_like(slots.stage, dtype=torch.bool))
    resting = slots.alpha_mode == AlphaMode.HOLD
    for name in ("alpha", "alpha_mode", "alpha_done"):
        assert torch.equal(getattr(after, name)[resting], getattr(slots, name)[resting])
    assert differing_leaves(slots, after) <= {"alpha", "alpha_mode", "alpha_done"}


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


@given(slot_states(stages=(Stage.HOLDING, Stage.BLENDING)), st.integers(0, 8))
def test_a_ramp_to_the_present_alpha_takes_no_time(slots, steps):
    after = start(slots, slots.alpha, steps)
    resting = slots.alpha_mode == AlphaMode.HOLD
    assert (after.alpha_mode[resting] == AlphaMode.HOLD).all()
    assert torch.equal(after.alpha[resting], slots.alpha[resting])
    assert (after.alpha_steps - after.alpha_done)[resting].sum() == 0


def test_a_ramp_of_no_ticks_is_immediate():
    after = start(make_slot(stage=Stage.BLENDING, alpha=0.5, alpha_target=0.5), 1.0, 0)
    assert (after.alpha.item(), after.alpha_mode.item(), after.alpha_start.item()) == (
        1.0,
        AlphaMode.HOLD,
        0.5,
    )


def test_up_and_down_are_told_apart():
    slots = make_slots([[{"alpha": 0.5}, {"alpha": 0.5}]])
    target = torch.tensor([[0.7, 0.0]])
    assert start(slots, target, 3).alpha_mode.tolist() == [[AlphaMode.UP, AlphaMode.DOWN]]


@given(st.integers(1, 8), st.integers(1, 7))
def test_saving_and_restoring_in_mid_ramp_changes_nothing(steps, cut):
    slots = start(make_slot(stage=Stage.BLENDING), 0.7, steps, Curve.SIGMOID)
    _, whole = ride(slots, steps)
    _, half = ride(slots, min(cut, steps))
    _, rest = ride(half.clone(), steps - min(cut, steps))
    assert trees_equal(whole, rest)


def test_double_precision_stays_double():
    slots = start(make_slots([[{"stage": Stage.BLENDING}]], torch.float64), 0.7, 3, Curve.SIGMOID)
    after = advance_ramp(slots, HERE)
    assert after.alpha.dtype is torch.float64
