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
from morphogen.vocab.action import RELEVANT, Head, Op, Reason
from morphogen.vocab.stage import Stage

S = Stage
HUGE = [-(2**63), -1, 0, 1, 5, 6, 13, 2**31, 2**63 - 1]


def spec_of(action, slots, **knobs):
    return decode(torch.tensor([action]), slots, make_limits(slots, **knobs))


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


def test_a_blueprint_that_is_not_allowed_is_refused():
    spec = spec_of([Op.GERMINATE, 0, 1, 0, 0, 0, 0, 0], make_slot(), blueprints=("norm",))
    assert spec.reason.item() == Reason.BLUEPRINT_NOT_ALLOWED


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
