"""Effect of an action on the slots, and its outcome."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.manual_gates import by_hand

from morphogen.rules.decoding import decode
from morphogen.rules.gates import check_gate
from morphogen.rules.legality import legal
from morphogen.steps.apply import apply_action
from morphogen.testing.builders.scenes import (
    SLOT_LEAVES,
    make_limits,
    make_slot,
    make_state,
)
from morphogen.testing.builders.tree_equality import differing_leaves, trees_equal
from morphogen.testing.strategies import actions, limits, slot_states
from morphogen.vocab.action import (
    AlphaCurve,
    AlphaSpeed,
    AlphaTarget,
    Head,
    Op,
    Outcome,
    Reason,
    Style,
    Tempo,
)
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, AlphaMode, Check, Curve, Gate, Stage

S = Stage
PLAIN = by_hand()
MARKS = {
    "stage",
    "previous_stage",
    "epochs_in_stage",
    "previous_epochs_in_stage",
    "accuracy_at_stage_start",
}
READY = {
    "stage": S.TRAINING,
    "epochs_in_stage": 10,
    "age": 12,
    "blueprint": 3,
    "algorithm": 1,
    "tempo": 5,
}
READY |= {"blend_target": 0.7, "blend_curve": 3, "gradient_valid": True, "gradient_health": 1.0}
HELD = {
    "stage": S.HOLDING,
    "epochs_in_stage": 3,
    "age": 20,
    "blueprint": 3,
    "algorithm": 1,
    "tempo": 5,
    "alpha": 1.0,
}
HELD |= {
    "alpha_start": 1.0,
    "alpha_target": 1.0,
    "alpha_steps": 5,
    "alpha_done": 5,
    "contribution_valid": True,
}


def action(op, slot=0, **heads):
    row = [int(op), slot, 3, 0, 1, 2, 0, 0]
    for name, value in heads.items():
        row[Head[name.upper()]] = int(value)
    return torch.tensor([row])


def act(before, heads, spec=PLAIN, **knobs):
    return apply_action(
        before, decode(heads, before.slots, make_limits(before.slots, **knobs)), lifecycle=spec
    )


def leaves(slots) -> dict:
    return {name: getattr(slots, name).item() for name in SLOT_LEAVES}


def changed(before, after) -> dict:
    """Leaves of a single slot that the step wrote, with their new values."""
    return {name: leaves(after.slots)[name] for name in differing_leaves(before.slots, after.slots)}


def reported(outcome) -> tuple:
    return tuple(
        kind(getattr(outcome, name).item())
        for name, kind in (
            ("outcome", Outcome),
            ("effective_op", Op),
            ("reason", Reason),
            ("gate", Gate),
        )
    )


def test_germinate_fills_an_empty_slot_and_marks_the_accuracy():
    before = make_state(make_slot(), 37.5)
    heads = action(
        Op.GERMINATE,
        blueprint=5,
        style=Style.GATED_GATE,
        tempo=Tempo.SLOW,
        alpha_target=AlphaTarget.HALF,
    )
    after, outcome = act(before, heads)
    assert changed(before, after) == {
        "stage": S.GERMINATED,
        "previous_stage": S.DORMANT,
        "blueprint": Blueprint.BOTTLENECK,
        "algorithm": Algorithm.GATE,
        "tempo": 8,
        "blend_target": 0.5,
        "blend_curve": Curve.LINEAR,
        "accuracy_at_germination": 37.5,
        "accuracy_at_stage_start": 37.5,
    }
    assert reported(outcome) == (Outcome.EXECUTED, Op.GERMINATE, Reason.NONE, Gate.NONE)
    assert (after.signals.last_op.item(), after.signals.last_outcome.item()) == (
        Op.GERMINATE,
        Outcome.EXECUTED,
    )


def test_advance_from_germinated_only_moves_the_stage():
    before = make_state(make_slot(stage=S.GERMINATED, epochs_in_stage=2, age=2, blueprint=3), 40.0)
    after, outcome = act(before, action(Op.ADVANCE))
    assert changed(before, after) == {
        "stage": S.TRAINING,
        "previous_stage": S.GERMINATED,
        "epochs_in_stage": 0,
        "previous_epochs_in_stage": 2,
        "accuracy_at_stage_start": 40.0,
    }
    assert reported(outcome) == (Outcome.EXECUTED, Op.ADVANCE, Reason.NONE, Gate.TRAIN)


def test_advance_into_blending_starts_the_first_ramp():
    before = make_state(make_slot(**READY), 60.0)
    after, outcome = act(before, action(Op.ADVANCE))
    assert changed(before, after) == {
        "stage": S.BLENDING,
        "previous_stage": S.TRAINING,
        "epochs_in_stage": 0,
        "previous_epochs_in_stage": 10,
        "accuracy_at_stage_start": 60.0,
        "accuracy_at_blending": 60.0,
        "accuracy_at_blending_valid": True,
        "alpha_target": pytest.approx(0.7),
        "alpha_mode": AlphaMode.UP,
        "alpha_curve": Curve.SIGMOID,
        "alpha_steps": 5,
    }
    assert reported(outcome) == (Outcome.EXECUTED, Op.ADVANCE, Reason.NONE, Gate.BLEND)


def test_advance_into_holding_rests_alpha_at_one():
    near = {
        **HELD,
        "stage": S.BLENDING,
        "alpha": 1 - 5e-7,
        "alpha_start": 0.0,
        "alpha_target": 1 - 5e-7,
    }
    before = make_state(make_slot(**near))
    after, outcome = act(before, action(Op.ADVANCE))
    assert changed(before, after).keys() == MARKS | {"alpha", "alpha_start", "alpha_target"}
    now = leaves(after.slots)
    assert [now[n] for n in ("stage", "alpha", "alpha_start", "alpha_target", "alpha_mode")] == [
        S.HOLDING,
        1,
        1,
        1,
        0,
    ]
    assert reported(outcome) == (Outcome.EXECUTED, Op.ADVANCE, Reason.NONE, Gate.HOLD)


def test_fossilize_only_moves_the_stage():
    before = make_state(make_slot(**HELD))
    after, outcome = act(before, action(Op.FOSSILIZE))
    assert changed(before, after).keys() == MARKS
    assert reported(outcome) == (Outcome.EXECUTED, Op.FOSSILIZE, Reason.NONE, Gate.FOSSILIZE)


@pytest.mark.parametrize(
    ("row", "op", "gate_code", "bits"),
    [
        ({**READY, "epochs_in_stage": 9}, Op.ADVANCE, Gate.BLEND, {Check.TOO_EARLY}),
        ({**READY, "stage": S.BLENDING, "alpha_mode": 1, "alpha_target": 1.0, "alpha_steps": 5}, Op.ADVANCE, Gate.HOLD,
         {Check.NOT_AT_TARGET}),
        ({**HELD, "contribution_valid": False}, Op.FOSSILIZE, Gate.FOSSILIZE, {Check.CONTRIBUTION_UNMEASURED}),
    ],
)  # fmt: skip
def test_difference_09_a_declined_action_leaves_the_state_that_waiting_leaves(
    row, op, gate_code, bits
):
    """The env is not changed and not paid for a move that its gate declined; only the feedback
    tells it apart.
    """
    before = make_state(make_slot(**row))
    after, outcome = act(before, action(op))
    waited, _ = act(before, action(Op.WAIT))
    assert reported(outcome) == (Outcome.DECLINED, op, Reason(int(gate_code)), gate_code)
    assert {check for check in Check if int(outcome.gate_failed.item()) >> check & 1} == bits
    assert not outcome.executed.item()
    assert trees_equal(after.slots, waited.slots)
    aside = {"last_op": waited.signals.last_op, "last_outcome": waited.signals.last_outcome}
    assert trees_equal(after.replace(signals=after.signals.replace(**aside)), waited)


def test_a_partial_target_takes_a_held_seed_back_to_blending():
    before = make_state(make_slot(**HELD), 55.0)
    heads = action(Op.SET_ALPHA_TARGET, style=Style.LINEAR_MULTIPLY, alpha_target=AlphaTarget.SEVENTY,
                   alpha_speed=AlphaSpeed.FAST, alpha_curve=AlphaCurve.SIGMOID_SHARP)  # fmt: skip
    after, outcome = act(before, heads)
    assert changed(before, after) == {
        "stage": S.BLENDING,
        "previous_stage": S.HOLDING,
        "epochs_in_stage": 0,
        "previous_epochs_in_stage": 3,
        "accuracy_at_stage_start": 55.0,
        "algorithm": Algorithm.MULTIPLY,
        "alpha_target": pytest.approx(0.7),
        "alpha_mode": AlphaMode.DOWN,
        "alpha_curve": Curve.SIGMOID,
        "alpha_steepness": 24.0,
        "alpha_steps": 3,
        "alpha_done": 0,
    }
    assert outcome.executed.item()


def test_a_full_target_keeps_a_held_seed_in_holding():
    before = make_state(make_slot(**HELD))
    heads = action(
        Op.SET_ALPHA_TARGET, style=Style.GATED_GATE, alpha_target=AlphaTarget.FULL, alpha_speed=3
    )
    after, outcome = act(before, heads)
    now = leaves(after.slots)
    assert [now[n] for n in ("stage", "alpha", "alpha_mode", "algorithm")] == [
        S.HOLDING,
        1.0,
        AlphaMode.HOLD,
        3,
    ]
    assert outcome.executed.item()


@pytest.mark.parametrize("row", [{**HELD}, {**READY, "age": 12}], ids=["held", "at alpha 0"])
@pytest.mark.parametrize("speed", [0, 2])
def test_prune_removes_at_once_what_is_not_blended_in_or_has_no_time(row, speed):
    before = make_state(make_slot(**row))
    after, outcome = act(before, action(Op.PRUNE, alpha_speed=speed))
    now = leaves(after.slots)
    assert outcome.executed.item()
    if row["stage"] == S.HOLDING and speed:
        assert [now[n] for n in ("stage", "alpha", "alpha_target", "alpha_mode")] == [
            S.BLENDING,
            1,
            0,
            AlphaMode.DOWN,
        ]
        return
    assert now["stage"] == S.PRUNED
    kept = {"blueprint", "algorithm", "tempo", "age", "blend_target", "blend_curve"}
    assert {n: now[n] for n in kept} == {n: leaves(before.slots)[n] for n in kept}
    empty = leaves(make_slot())
    assert all(now[n] == empty[n] for n in SLOT_LEAVES if n not in kept | MARKS)


@pytest.mark.parametrize(
    "row",
    [{"stage": S.FOSSILIZED, "age": 99, "alpha": 1.0}, {}, {**HELD, "age": 4}],
    ids=["fossil", "empty", "young"],
)
def test_prune_of_a_fossil_an_empty_slot_or_a_young_seed_changes_nothing(row):
    before = make_state(make_slot(**row))
    after, outcome = act(before, action(Op.PRUNE))
    assert reported(outcome)[:2] == (Outcome.INVALID, Op.WAIT)
    assert differing_leaves(before.slots, after.slots) == set()


def test_without_a_measured_accuracy_only_waiting_is_done():
    before = make_state(make_slot(**HELD), measured=False)
    after, outcome = act(before, action(Op.FOSSILIZE))
    assert reported(outcome) == (Outcome.VETOED, Op.WAIT, Reason.UNMEASURED, Gate.NONE)
    assert differing_leaves(before.slots, after.slots) == set()
    assert (after.signals.last_op.item(), after.signals.last_outcome.item()) == (
        Op.FOSSILIZE,
        Outcome.VETOED,
    )
    assert reported(act(before, action(Op.WAIT))[1])[0] is Outcome.EXECUTED
    assert reported(act(before, action(Op.GERMINATE))[1])[0] is Outcome.INVALID


@given(st.data(), slot_states(max_envs=2))
def test_every_legal_pair_is_executed_unless_its_gate_says_no(data, slots):
    allow = data.draw(limits(slots))
    spec = by_hand(permissive_gates=data.draw(st.booleans()))
    legality = legal(slots, allow)
    op, place = (
        data.draw(st.sampled_from(list(Op))),
        data.draw(st.integers(0, slots.stage.shape[1] - 1)),
    )
    heads = action(op, place, blueprint=allow.allowed_blueprints[0]).repeat(len(slots), 1)
    before = make_state(slots)
    after, outcome = apply_action(before, decode(heads, slots, allow), lifecycle=spec)
    to = {
        S.GERMINATED: S.TRAINING,
        S.TRAINING: S.BLENDING,
        S.BLENDING: S.HOLDING,
        S.HOLDING: S.FOSSILIZED,
    }
    up = torch.tensor([[to.get(S(s), S.UNKNOWN) for s in row] for row in slots.stage.tolist()])
    passed = check_gate(slots, before.signals.val_acc, up, spec=spec)[0][:, place]
    for e in range(len(slots)):
        allowed = op is Op.WAIT or bool(legality[e, op, place])
        gated = op in (Op.ADVANCE, Op.FOSSILIZE) and not passed[e]
        expected = (
            Outcome.INVALID if not allowed else Outcome.DECLINED if gated else Outcome.EXECUTED
        )
        assert outcome.outcome[e].item() == expected
        if expected is not Outcome.EXECUTED:
            assert trees_equal(forgetful(after)[e], forgetful(before)[e])


def forgetful(world):
    """The state without the memory of what was tried last, which is all that a refused action
    leaves behind.
    """
    unknown = torch.full_like(world.signals.last_op, -1)
    return world.replace(signals=world.signals.replace(last_op=unknown, last_outcome=unknown))


@given(st.data(), slot_states())
def test_outcome_op_and_reason_agree(data, slots):
    allow = data.draw(limits(slots))
    before = make_state(slots, measured=data.draw(st.booleans()))
    spec = decode(data.draw(actions(slots, 0, 6)), slots, allow)
    _, outcome = apply_action(before, spec, lifecycle=PLAIN)
    kind = outcome.outcome
    assert torch.equal(outcome.executed, kind == Outcome.EXECUTED)
    assert torch.equal(outcome.reason == Reason.NONE, outcome.executed)
    assert (outcome.effective_op == spec.op)[outcome.executed].all()
    refused = (kind == Outcome.INVALID) | (kind == Outcome.VETOED)
    assert (outcome.effective_op[refused] == Op.WAIT).all()
    assert torch.equal(kind == Outcome.DECLINED, outcome.gate_failed != 0)
    assert torch.equal(outcome.target, spec.target)


@given(st.data(), slot_states())
def test_slots_that_the_action_does_not_address_keep_every_leaf(data, slots):
    before = make_state(slots)
    after, outcome = act(before, data.draw(actions(slots, 0, 6)))
    untouched = ~outcome.target
    for name in SLOT_LEAVES:
        assert torch.equal(getattr(after.slots, name)[untouched], getattr(slots, name)[untouched])
    assert trees_equal(after.seeds, before.seeds)
    assert trees_equal(after.governor, before.governor)
