"""Decoding: any integers become an action that can be executed, and an irrelevant head never
matters.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import slow_rules

from morphogen.rules.decoding import decode
from morphogen.rules.legality import action_masks, legal
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.scenes import make_limits, make_slot, make_slots
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.testing.strategies import actions, limits, slot_states
from morphogen.vocab.action import PLACEHOLDER, RELEVANT, Head, Op, Reason
from morphogen.vocab.stage import Algorithm, AlphaMode, Curve, Stage

S = Stage
HUGE = [-(2**63), -1, 0, 1, 5, 6, 13, 2**31, 2**63 - 1]


def spec_of(action, slots, **knobs):
    return decode(torch.tensor([action]), slots, make_limits(slots, **knobs))


def fields(spec) -> dict:
    return {name: leaf[0].item() for name, leaf in spec.items() if leaf.dim() == 1}


@given(st.data(), slot_states())
def test_any_integers_decode_to_what_is_written_out_field_by_field(data, slots):
    allow = data.draw(limits(slots))
    row = st.lists(st.integers(-1, 7) | st.sampled_from(HUGE), min_size=8, max_size=8)
    drawn = data.draw(st.lists(row, min_size=len(slots), max_size=len(slots)))
    spec = decode(torch.tensor(drawn), slots, allow)
    for e, env in enumerate(slow_rules.slot_cells(slots)):
        assert legal(slots, allow)[e].tolist() == slow_rules.legality(env, allow)
        wanted = slow_rules.decode(drawn[e], env, allow)
        found = {name: getattr(spec, name)[e].tolist() for name in wanted}
        assert found == {**wanted, "alpha_target": pytest.approx(wanted["alpha_target"])}


@given(st.data(), slot_states())
def test_an_irrelevant_head_may_hold_anything(data, slots):
    allow = data.draw(limits(slots))
    action = data.draw(actions(slots, 0, 6))
    noise = data.draw(actions(slots, -(2**40), 2**40))
    relevant = torch.tensor(RELEVANT)[action[:, 0].clamp(0, 5)]
    assert trees_equal(
        decode(action, slots, allow), decode(torch.where(relevant, action, noise), slots, allow)
    )


@given(st.data(), slot_states())
def test_every_choice_under_the_masks_is_valid(data, slots):
    allow = data.draw(limits(slots))
    masks = action_masks(slots, allow)
    rows = []
    for e in range(len(slots)):
        op = data.draw(st.sampled_from([o for o in range(6) if masks.op[e, o]]))
        slot = data.draw(
            st.sampled_from([s for s in range(slots.stage.shape[1]) if masks.slot[e, op, s]])
        )
        values = [getattr(masks, h.label)[e].tolist() for h in Head if h > Head.SLOT]
        rows.append(
            [
                op,
                slot,
                *(
                    data.draw(st.sampled_from([i for i, yes in enumerate(v) if yes]))
                    for v in values
                ),
            ]
        )
    spec = decode(torch.tensor(rows), slots, allow)
    assert spec.valid.all()
    assert spec.op.tolist() == [row[0] for row in rows]


def test_germinate_reads_the_curve_of_the_style():
    spec = spec_of([Op.GERMINATE, 0, 3, 2, 2, 1, 1, 1], make_slot())
    assert fields(spec) == {
        "requested_op": Op.GERMINATE,
        "op": Op.GERMINATE,
        "slot": 0,
        "blueprint": 3,
        "algorithm": Algorithm.ADD,
        "tempo": 8,
        "alpha_target": pytest.approx(0.7),
        "alpha_steps": 0,
        "curve": Curve.SIGMOID,
        "steepness": 12.0,
        "valid": True,
        "reason": 0,
    }


TRAINING, EMPTY, HELD = (
    {"stage": S.TRAINING, "age": 9},
    {},
    {"stage": S.HOLDING, "age": 9, "alpha": 1.0},
)
MOVING = {"stage": S.BLENDING, "age": 9, "alpha_mode": AlphaMode.UP, "alpha_steps": 5}
GROW = [Op.GERMINATE, 0, 1, 0, 0, 0, 0, 0]


def to(op, slot=0, **heads):
    row = [op, slot, *PLACEHOLDER[2:]]
    for name, value in heads.items():
        row[Head[name.upper()]] = value
    return row


@pytest.mark.parametrize(
    ("slots", "action", "knobs", "reason"),
    [
        ([EMPTY], to(7), {}, Reason.OUT_OF_RANGE),
        ([EMPTY], to(Op.GERMINATE, 1, blueprint=1), {}, Reason.OUT_OF_RANGE),
        ([EMPTY], to(Op.GERMINATE, 0, blueprint=1, tempo=-2), {}, Reason.OUT_OF_RANGE),
        ([HELD], to(Op.FOSSILIZE), {"disabled_ops": ("FOSSILIZE",)}, Reason.OP_DISABLED),
        ([TRAINING], to(Op.ADVANCE), {"auto_forward": ("BLEND",)}, Reason.OP_DISABLED),
        ([EMPTY, EMPTY], GROW, {"enabled": (False, True)}, Reason.SLOT_DISABLED),
        ([EMPTY], to(Op.ADVANCE), {}, Reason.WRONG_STAGE),
        ([EMPTY, TRAINING], GROW, {}, Reason.BUSY),
        ([EMPTY, HELD], GROW, {"max_seeds": 1}, Reason.SEED_LIMIT),
        ([EMPTY, TRAINING], GROW, {"max_seeds": 1}, Reason.BUSY),
        ([{"stage": S.TRAINING, "age": 4}], to(Op.PRUNE), {}, Reason.TOO_YOUNG),
        ([MOVING], to(Op.PRUNE), {}, Reason.ALPHA_MOVING),
        ([{**MOVING, "age": 0}], to(Op.PRUNE), {}, Reason.TOO_YOUNG),
        ([MOVING], to(Op.SET_ALPHA_TARGET), {}, Reason.ALPHA_MOVING),
        ([EMPTY], to(Op.GERMINATE), {}, Reason.BLUEPRINT_NOT_ALLOWED),
        (
            [EMPTY],
            to(Op.GERMINATE, blueprint=1),
            {"blueprints": ("norm",)},
            Reason.BLUEPRINT_NOT_ALLOWED,
        ),
    ],
)
def test_the_smallest_matching_reason_is_given(slots, action, knobs, reason):
    spec = spec_of(action, make_slots([slots]), **knobs)
    assert (Reason(spec.reason.item()), spec.valid.item(), spec.op.item()) == (
        reason,
        False,
        Op.WAIT,
    )
    wait = fields(spec_of([Op.WAIT] + [0] * 7, make_slots([slots]), **knobs))
    aside = {"requested_op", "valid", "reason"}
    assert {k: v for k, v in fields(spec).items() if k not in aside} == {
        k: v for k, v in wait.items() if k not in aside
    }
    assert spec.requested_op.item() == max(0, min(5, action[0]))


@given(st.data(), slot_states())
def test_difference_07_wait_is_bound_to_no_slot(data, slots):
    """WAIT addresses nothing whatever the slot head says, and permuting slots changes nothing of
    it.
    """
    heads = data.draw(actions(slots))
    heads[:, Head.OP] = int(Op.WAIT)
    spec = decode(heads, slots, make_limits(slots))
    order = data.draw(st.permutations(range(slots.stage.shape[1])))
    assert spec.valid.all()
    assert not spec.target.any()
    assert trees_equal(spec, decode(heads, permute(slots, order), make_limits(slots)))
    assert spec_of([Op.WAIT] + [0] * 7, make_slots([[{}, {}]]), enabled=(False, True)).valid.item()
