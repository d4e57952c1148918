"""Legality and masks, against the rules written out one cell at a time."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.errors import ConfigError
from morphogen.rules.legality import action_count, action_masks, legal, used_heads
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.scenes import make_limits, make_slot, make_slots
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.testing.strategies import limits, slot_states
from morphogen.testing.strategies.slots import STAGES
from morphogen.vocab.action import HEADS, RELEVANT, Head, Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import AlphaMode, Stage

S = Stage
COOLS = (S.PRUNED, S.EMBARGOED, S.RESETTING)
SEEDS = (S.GERMINATED, S.TRAINING, S.BLENDING, S.HOLDING, S.FOSSILIZED)
AUTO = {S.GERMINATED: "TRAIN", S.TRAINING: "BLEND", S.BLENDING: "HOLD"}


def may(op: Op, here: int, env: list[tuple[int, int, int]], allow: Limits) -> bool:
    """The rules of actions.md 3 for one cell; env: (stage, age, alpha mode) per slot."""
    stage, age, mode = env[here]
    if not allow.enabled[here] or op.name in allow.disabled_ops:
        return False
    hold = mode == AlphaMode.HOLD
    if op is Op.GERMINATE:
        seeds = sum(s in SEEDS for s, _, _ in env)
        busy = any(
            on and s in (S.GERMINATED, S.TRAINING, *COOLS)
            for (s, _, _), on in zip(env, allow.enabled, strict=True)
        )
        return (
            stage == S.DORMANT
            and not busy
            and not (allow.max_seeds > 0 and seeds >= allow.max_seeds)
        )
    if op is Op.SET_ALPHA_TARGET:
        return stage in (S.BLENDING, S.HOLDING) and hold
    if op is Op.PRUNE:
        return (
            stage in (S.GERMINATED, S.TRAINING, S.BLENDING, S.HOLDING)
            and age >= allow.min_prune_age
            and hold
        )
    if op is Op.FOSSILIZE:
        return stage == S.HOLDING
    if op is Op.ADVANCE:
        return stage in AUTO and AUTO[stage] not in allow.auto_forward
    return True


def cells(slots) -> list[list[tuple[int, int, int]]]:
    columns = (slots.stage.tolist(), slots.age.tolist(), slots.alpha_mode.tolist())
    return [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)]


@given(st.data(), slot_states(max_slots=4))
def test_legality_is_what_the_rules_say_cell_by_cell(data, slots):
    allow = data.draw(limits(slots))
    expected = [
        [[may(op, s, env, allow) for s in range(len(env))] for op in Op] for env in cells(slots)
    ]
    assert legal(slots, allow).tolist() == expected


@given(st.data(), slot_states())
def test_waiting_is_always_legal_on_every_enabled_slot(data, slots):
    allow = data.draw(limits(slots))
    masks = action_masks(slots, allow)
    assert masks.slot[:, Op.WAIT].tolist() == [list(allow.enabled)] * len(slots)
    assert masks.op[:, Op.WAIT].all()


@given(st.data(), slot_states())
def test_an_op_may_be_chosen_iff_some_slot_may_be(data, slots):
    allow = data.draw(limits(slots))
    masks = action_masks(slots, allow)
    assert torch.equal(masks.op, masks.slot.any(-1))
    assert not masks.slot[:, :, [i for i, on in enumerate(allow.enabled) if not on]].any()


@given(slot_states(), st.integers(-5, 30))
def test_a_stage_outside_the_table_allows_waiting_only(slots, code):
    code = code if not 1 <= code <= 9 else 0
    broken = slots.replace(stage=torch.full_like(slots.stage, code))
    assert legal(broken, make_limits(slots)).sum() == slots.stage.numel()


@given(st.data(), slot_states())
def test_legality_reads_stage_age_and_alpha_mode_only(data, slots):
    allow = data.draw(limits(slots))
    reads = ("stage", "age", "alpha_mode")
    scrambled = slots.apply(
        lambda leaf: leaf.flip(0, 1) if leaf.dtype is torch.bool else leaf * 3 + 1
    )
    scrambled = scrambled.replace(**{name: getattr(slots, name) for name in reads})
    assert differing_leaves(slots, scrambled).isdisjoint(reads)
    assert torch.equal(legal(slots, allow), legal(scrambled, allow))


@given(st.data(), slot_states(max_slots=4))
def test_permuting_slots_permutes_the_last_axis_and_nothing_else(data, slots):
    allow = data.draw(limits(slots))
    order = data.draw(st.permutations(range(slots.stage.shape[1])))
    moved = Limits(
        **{
            **{f: getattr(allow, f) for f in allow.__dataclass_fields__},
            "enabled": tuple(allow.enabled[i] for i in order),
        }
    )
    assert torch.equal(legal(permute(slots, order), moved), legal(slots, allow)[:, :, order])


@given(st.data(), slot_states(max_envs=4))
def test_an_env_does_not_see_its_neighbours(data, slots):
    allow = data.draw(limits(slots))
    together = legal(slots, allow)
    for e in range(len(slots)):
        assert torch.equal(legal(slots[e : e + 1], allow)[0], together[e])


@given(slot_states(), st.integers(1, 20))
def test_waiting_longer_never_forbids_prune(slots, longer):
    later = slots.replace(age=slots.age + longer)
    before, after = (
        legal(slots, make_limits(slots))[:, Op.PRUNE],
        legal(later, make_limits(slots))[:, Op.PRUNE],
    )
    assert (before <= after).all()


@given(slot_states(), st.integers(0, 12))
def test_a_higher_prune_age_never_allows_more(slots, least):
    lower = legal(slots, make_limits(slots, min_prune_age=least))
    assert (legal(slots, make_limits(slots, min_prune_age=least + 1)) <= lower).all()


def test_a_seed_may_be_pruned_from_age_5_on():
    slots = make_slots([[{"stage": S.TRAINING, "age": 4}], [{"stage": S.TRAINING, "age": 5}]])
    assert legal(slots, make_limits(slots))[:, Op.PRUNE, 0].tolist() == [False, True]


@given(slot_states(), st.integers(2, 4))
def test_a_limit_beyond_the_slots_is_no_limit_and_a_lower_one_only_stops_germination(slots, most):
    count = slots.stage.shape[1]
    free = legal(slots, make_limits(slots))
    assert torch.equal(free, legal(slots, make_limits(slots, max_seeds=count + 1)))
    loose, tight = (legal(slots, make_limits(slots, max_seeds=n)) for n in (most, most - 1))
    assert (tight <= loose).all()
    assert (loose <= free).all()
    others = [op for op in Op if op is not Op.GERMINATE]
    assert torch.equal(tight[:, others], free[:, others])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_germination_needs_an_empty_slot_and_nothing_developing_or_cooling(count):
    tuples = list(itertools.product(STAGES, repeat=count))
    slots = make_slots([[{"stage": stage} for stage in stages] for stages in tuples])
    calm = (S.DORMANT, S.BLENDING, S.HOLDING, S.FOSSILIZED)
    enabled = [mask for mask in itertools.product((False, True), repeat=count) if any(mask)]
    for mask, most in itertools.product(enabled, range(count + 1)):
        found = (
            legal(slots, make_limits(slots, enabled=mask, max_seeds=most))[:, Op.GERMINATE]
            .any(-1)
            .tolist()
        )
        for may_grow, stages in zip(found, tuples, strict=True):
            usable = [stage for stage, on in zip(stages, mask, strict=True) if on]
            room = most == 0 or sum(stage in SEEDS for stage in stages) < most
            assert may_grow == (
                S.DORMANT in usable and all(stage in calm for stage in usable) and room
            )


@pytest.mark.parametrize("stage", [S.GERMINATED, S.TRAINING, *COOLS])
def test_a_slot_that_is_not_enabled_keeps_nobody_waiting_but_counts_as_a_seed(stage):
    slots = make_slots([[{}, {"stage": stage}]])
    assert legal(slots, make_limits(slots, enabled=(True, False)))[0, Op.GERMINATE].tolist() == [
        True,
        False,
    ]
    assert not legal(slots, make_limits(slots))[0, Op.GERMINATE].any()
    full = legal(slots, make_limits(slots, enabled=(True, False), max_seeds=1))[
        0, Op.GERMINATE, 0
    ].item()
    assert full == (stage in COOLS)


@pytest.mark.parametrize("stage", [S.FOSSILIZED, *COOLS, S.DORMANT])
def test_there_is_nothing_to_do_with_a_slot_that_is_done_or_cooling(stage):
    slots = make_slot(stage=stage, age=50)
    allowed = {op for op in Op if legal(slots, make_limits(slots))[0, op, 0]}
    assert allowed == ({Op.WAIT, Op.GERMINATE} if stage is S.DORMANT else {Op.WAIT})


@pytest.mark.slow
@given(st.data(), slot_states())
def test_no_limits_open_anything_else_for_slots_that_are_empty_done_or_cooling(data, slots):
    allow = data.draw(limits(slots))
    found = legal(slots, allow).transpose(1, 2)  # [E, S, 6]
    settled = (slots.stage == S.FOSSILIZED) | (slots.stage >= S.PRUNED)
    assert not found[settled][:, Op.GERMINATE :].any()
    assert not found[slots.stage == S.DORMANT][:, Op.SET_ALPHA_TARGET :].any()


def test_auto_forwarding_every_gate_takes_advance_away():
    slots = make_slots([[{"stage": stage} for stage in (S.GERMINATED, S.TRAINING, S.BLENDING)]])
    assert legal(slots, make_limits(slots))[0, Op.ADVANCE].tolist() == [True, True, True]
    assert legal(slots, make_limits(slots, auto_forward=("BLEND",)))[0, Op.ADVANCE].tolist() == [
        True,
        False,
        True,
    ]
    assert not legal(slots, make_limits(slots, auto_forward=("TRAIN", "BLEND", "HOLD")))[
        0, Op.ADVANCE
    ].any()


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
    assert (action_count(masks) == 1).tolist() == [n == 1 for n in expected]


def test_the_sizes_of_the_choice_are_those_of_the_spec():
    empty, held = make_slot(), make_slot(stage=S.HOLDING, age=9)
    assert action_count(action_masks(empty, make_limits(empty))).item() == 1 + 252
    assert action_count(action_masks(held, make_limits(held))).item() == 1 + 240 + 20 + 1
    empty_twice = make_slots([[{}, {}]])
    assert action_count(action_masks(empty_twice, make_limits(empty_twice))).item() == 1 + 2 * 252


def test_a_head_is_available_iff_some_allowed_op_uses_it():
    growing = make_slot(stage=S.TRAINING, age=1)
    found = used_heads(action_masks(growing, make_limits(growing)))[0]
    assert [head for head, yes in zip(HEADS, found, strict=True) if yes] == ["op", "slot"]
    fossil = make_slot(stage=S.FOSSILIZED)
    assert used_heads(action_masks(fossil, make_limits(fossil)))[0].tolist() == [True] + [False] * 7


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
