"""Draws of the strategies: reachable, with edges, shrinking to small ones."""

import pytest
import torch
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from support.slot_invariants import broken_invariants
from support.small_runs import live, tiny_setup, world_of

from morphogen.rules.legality import legal
from morphogen.rules.stages import advance_ramp
from morphogen.state import schema
from morphogen.testing import strategies
from morphogen.testing.builders import scenes, tree_equality
from morphogen.testing.builders.reward_inputs import OPTIONAL_INPUTS, OPTIONAL_SLOT_INPUTS
from morphogen.vocab.action import Op
from morphogen.vocab.stage import OCCUPIED, AlphaMode, Stage

S = Stage
SHRUNK = settings(phases=list(Phase), database=None)


# slots


@given(strategies.slot_states(max_slots=4))
def test_every_slot_keeps_what_is_true_of_all_that_can_be_reached(slots):
    assert broken_invariants(slots) == []


@given(strategies.slot_states(stages=(S.BLENDING,)))
def test_alphas_are_those_that_ticks_lead_to(slots):
    start = slots.replace(alpha=slots.alpha_start, alpha_done=torch.zeros_like(slots.alpha_done))
    moving = slots.alpha_mode != AlphaMode.HOLD
    for done in range(1, int(slots.alpha_done.max()) + 1):
        start = advance_ramp(start, moving & (slots.alpha_done >= done))
    torch.testing.assert_close(start.alpha[moving], slots.alpha[moving], rtol=0, atol=1e-6)
    assert torch.equal(slots.alpha[~moving], slots.alpha_target[~moving])


@pytest.mark.slow
def test_the_smallest_slots_are_one_empty_slot():
    assert tree_equality.trees_equal(
        find(strategies.slot_states(), lambda _: True, settings=SHRUNK), scenes.make_slot()
    )


@given(st.data(), strategies.slot_states(stages=(S.DORMANT, S.HOLDING)))
def test_limits_fit_the_slots(data, slots):
    allow = data.draw(strategies.limits(slots))
    assert len(allow.enabled) == slots.stage.shape[1]
    assert legal(slots, allow).shape == (len(slots), len(Op), slots.stage.shape[1])


# states


@pytest.mark.slow
@given(strategies.env_states())
def test_states_fit_the_schema_and_hold_nothing_that_was_not_measured(state):
    count = state.slots.stage.shape[1]
    for part, leaves in schema.PARTS.items():
        for leaf in leaves:
            assert getattr(getattr(state, part), leaf.name).dtype == leaf.dtype
    signals = state.signals
    flags = {"measured": ("val_loss", "val_acc"), "train_measured": ("train_loss", "train_acc")}
    for flag, names in {
        **flags,
        "clean_valid": ("clean_improvement",),
        "history_valid": ("acc_history",),
    }.items():
        for name in names:
            assert (getattr(signals, name)[~getattr(signals, flag)] == 0).all()
    assert torch.equal(signals.measured, signals.history_valid[:, -1])
    assert broken_invariants(state.governor.slots) == []
    occupied = torch.stack([state.seeds[f"r0c{s}", "params"].any(-1) for s in range(count)], dim=1)
    assert torch.equal(
        occupied, (state.slots.stage >= OCCUPIED[0]) & (state.slots.stage <= OCCUPIED[-1])
    )


# reward inputs


@given(strategies.reward_inputs())
def test_reward_inputs_are_consistent(seen):
    slots = seen.slots
    for part, optional in ((seen, OPTIONAL_INPUTS), (slots, OPTIONAL_SLOT_INPUTS)):
        for flag, names in optional.items():
            for name in names:
                assert (getattr(part, name)[~getattr(part, flag)] == 0).all()
    acted = seen.op_executed & (seen.op != Op.WAIT)
    assert torch.equal((slots.op != Op.WAIT).sum(-1), acted.long())
    assert torch.equal(slots.op.amax(-1)[acted], seen.op[acted])
    assert (seen.fossil_params <= seen.live_params).all()
    assert torch.equal(seen.interaction, seen.interaction.mT)
    assert (slots.contribution_valid <= seen.uncommitted_valid[:, None]).all()
    assert (seen.stable_val_acc <= seen.val_acc).all()


def test_every_slot_of_a_random_life_keeps_what_is_true_of_all_that_can_be_reached():
    for epoch in live(world_of(tiny_setup(envs=8, episode_length=14))):
        assert broken_invariants(epoch.after.slots) == []
