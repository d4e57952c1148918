"""Legality and masks, against the rules written out one cell at a time."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import slow_rules

from morphogen.errors import ConfigError
from morphogen.rules.legality import action_count, action_masks, legal
from morphogen.testing.builders.scenes import make_limits, make_slot, make_slots
from morphogen.testing.strategies import limits, slot_states
from morphogen.vocab.action import RELEVANT, Head, Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import Stage

S = Stage


@given(st.data(), slot_states(max_slots=4))
def test_legality_is_what_the_rules_say_cell_by_cell(data, slots):
    allow = data.draw(limits(slots))
    expected = [slow_rules.legality(env, allow) for env in slow_rules.slot_cells(slots)]
    masks = action_masks(slots, allow)
    assert legal(slots, allow).tolist() == masks.slot.tolist() == expected
    assert torch.equal(masks.op, masks.slot.any(-1))


@given(slot_states(), st.integers(-5, 30))
def test_a_stage_outside_the_table_allows_waiting_only(slots, code):
    code = code if not 1 <= code <= 9 else 0
    broken = slots.replace(stage=torch.full_like(slots.stage, code))
    assert legal(broken, make_limits(slots)).sum() == slots.stage.numel()


def test_a_seed_may_be_pruned_from_age_5_on():
    slots = make_slots([[{"stage": S.TRAINING, "age": 4}], [{"stage": S.TRAINING, "age": 5}]])
    assert legal(slots, make_limits(slots))[:, Op.PRUNE, 0].tolist() == [False, True]


@pytest.mark.parametrize(("most", "grows"), [(0, True), (1, False), (2, True)])
def test_a_slot_may_grow_a_seed_below_the_limit_of_seeds(most, grows):
    slots = make_slots([[{}, {"stage": S.HOLDING, "age": 9}]])
    assert legal(slots, make_limits(slots, max_seeds=most))[0, Op.GERMINATE, 0].item() == grows


def count_actions(masks, env: int, slots: int) -> int:
    """Distinct complete actions, found by going through all of them head by head."""
    found = 0
    for op in Op:
        heads = [head for head in Head if head > Head.SLOT and RELEVANT[op][head]]
        free = [
            [v for v, yes in enumerate(getattr(masks, h.label)[env].tolist()) if yes] for h in heads
        ]
        places = [s for s in range(slots) if masks.slot[env, op, s]]
        if op is Op.WAIT:
            places = places[:1]
        found += sum(1 for _ in itertools.product(places, *free))
    return found


@given(st.data(), slot_states(max_envs=2))
def test_choices_are_the_actions_that_enumeration_finds(data, slots):
    masks = action_masks(slots, data.draw(limits(slots)))
    expected = [count_actions(masks, e, slots.stage.shape[1]) for e in range(len(slots))]
    assert action_count(masks).tolist() == expected


def test_the_sizes_of_the_choice_are_those_of_the_spec():
    empty, held = make_slots([[{}, {}]]), make_slot(stage=S.HOLDING, age=9)
    assert action_count(action_masks(empty, make_limits(empty))).item() == 1 + 2 * 252
    assert action_count(action_masks(held, make_limits(held))).item() == 1 + 240 + 20 + 1


def test_blueprints_are_those_of_the_host_or_the_ones_named():
    slots = make_slot()
    mask = action_masks(slots, make_limits(slots)).blueprint[0]
    assert [b for b in Blueprint if mask[b]] == [Blueprint(i) for i in range(1, 8)]
    named = action_masks(slots, make_limits(slots, blueprints=("norm", "attention"))).blueprint[0]
    assert [b.label for b in Blueprint if named[b]] == ["attention", "norm"]


@pytest.mark.parametrize(
    "knobs",
    [
        {"enabled": (False,)},
        {"max_seeds": -1},
        {"min_prune_age": -1},
        {"auto_forward": ("FOSSILIZE",)},
        {"disabled_ops": ("WAIT",)},
        {"blueprints": ("noop",)},
        {"blueprints": ("nobody",)},
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(knobs):
    with pytest.raises(ConfigError, match=next(iter(knobs))):
        Limits(**{"enabled": (True,), **knobs})
