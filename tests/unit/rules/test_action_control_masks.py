"""Action controls: masks narrowed to what is declared, pure, and never to nothing."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import noise, observation, tables
from support.small_runs import live, tiny_setup, world_of

from morphogen.cli import main, setting_flags
from morphogen.config.spec import build_limits as limits_of_spec
from morphogen.config.spec import resolve
from morphogen.policy.distribution import (
    action_entropy,
    build_support,
    normalise_tables,
)
from morphogen.policy.policy import NetworkPolicy
from morphogen.policy.policy_network import LstmNetwork
from morphogen.rules.decoding import decode
from morphogen.rules.legality import (
    action_count,
    action_masks,
    narrow_masks,
    restrict_masks,
)
from morphogen.testing.builders.scenes import make_limits, make_slots
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.testing.strategies import actions, limits, slot_states
from morphogen.vocab.action import RELEVANT, Head, Op
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

S = Stage
WAITING = [0, 0, 0, 2, 1, 2, 0, 0]
FLOOR = (0.005, *[0.01] * 7)
POLICY = NetworkPolicy(LstmNetwork(hidden=8), FLOOR)
PARAMS = POLICY.init(torch.zeros(3, dtype=torch.int64))


def sampled(masks, seed=0, policy=POLICY, params=PARAMS):
    envs, slots = masks.slot.shape[0], masks.slot.shape[-1]
    return policy.act(
        params,
        observation(envs, slots=slots),
        masks,
        policy.initial_hidden(envs),
        noise(envs, slots, seed),
    )


@st.composite
def situations(draw, low: int = -2, high: int = 13):
    """Slots, limits, and a declared action per env, in range or not, present or not."""
    slots = draw(slot_states())
    entry = draw(actions(slots, low, high))
    entry[:, Head.OP] = torch.tensor(
        draw(st.lists(st.integers(-1, 6), min_size=len(slots), max_size=len(slots)))
    )
    present = torch.tensor(draw(st.lists(st.booleans(), min_size=len(slots), max_size=len(slots))))
    return slots, draw(limits(slots)), entry, present


@given(situations(), st.integers(0, 99))
def test_a_mask_of_ones_own_narrows_what_is_legal_and_leaves_a_choice(situation, seed):
    slots, allow, _, _ = situation
    masks = action_masks(slots, allow)
    allowed = torch.rand(masks.slot.shape, generator=torch.Generator().manual_seed(seed)) < 0.2
    narrow = narrow_masks(masks, allowed)
    both = masks.slot & allowed
    some = both.flatten(1).any(-1)
    assert torch.equal(narrow.slot[some], both[some])
    assert torch.equal(narrow.slot[~some, Op.WAIT], masks.slot[~some, Op.WAIT])
    assert not narrow.slot[~some, Op.WAIT + 1 :].any()
    assert torch.equal(narrow.op, narrow.slot.any(-1))
    assert narrow.op.any(-1).all()
    assert decode(sampled(narrow, seed).action, slots, allow).valid.all()


@given(situations())
def test_under_a_control_every_env_has_exactly_one_action_left_which_is_valid(situation):
    slots, allow, entry, present = situation
    masks = action_masks(slots, allow)
    narrow, missed = restrict_masks(masks, entry, present)
    for name, leaf in masks.items():
        assert (narrow.get(name) <= leaf).all(), name
    assert (action_count(narrow) == 1).all()
    assert torch.equal(narrow.op, narrow.slot.any(-1))
    out = sampled(narrow)
    assert decode(out.action, slots, allow).valid.all()
    assert out.forced.all()
    assert (out.log_prob == 0).all()
    assert torch.equal(missed, present & ~decode(entry, slots, allow).valid)


@given(situations(0, 6), st.integers(0, 9))
def test_what_is_declared_is_done_and_all_else_is_waited_through(situation, seed):
    slots, allow, entry, present = situation
    narrow, missed = restrict_masks(action_masks(slots, allow), entry, present)
    out = sampled(narrow, seed)
    relevant = torch.tensor(RELEVANT)[entry[:, 0].clamp(0, 5)]
    done = torch.where(relevant, entry, torch.tensor(WAITING))
    expected = torch.where((present & ~missed).unsqueeze(-1), done, torch.tensor(WAITING))
    assert out.action.tolist() == expected.tolist()


@given(slot_states(), st.booleans())
def test_one_entry_may_stand_for_all_envs(slots, present):
    masks = action_masks(slots, make_limits(slots))
    entry, flag = torch.tensor([[Op.GERMINATE, 0, 3, 2, 1, 2, 0, 0]]), torch.tensor([present])
    one_row = restrict_masks(masks, entry, flag)
    rows = restrict_masks(masks, entry.repeat(len(slots), 1), flag.repeat(len(slots)))
    assert trees_equal(one_row[0], rows[0])
    assert torch.equal(one_row[1], rows[1])


@given(situations(), st.booleans(), st.integers(0, 99))
def test_a_choice_is_forced_iff_the_sampler_has_no_entropy(situation, held, seed):
    slots, allow, entry, present = situation
    free = action_masks(slots, allow)
    masks = restrict_masks(free, entry, present)[0] if held else free
    drawn = tables(len(slots), slots=slots.stage.shape[1], seed=seed)
    uncertainty = action_entropy(normalise_tables(drawn, build_support(masks), FLOOR))
    assert torch.equal(uncertainty == 0, action_count(masks) == 1)


def test_what_the_config_takes_out_is_in_no_mask_of_the_run():
    """Settings as they are typed: `--set disabled_ops=...` and `--set blueprints=...`."""
    words = [
        "--set",
        'disabled_ops=["PRUNE", "GERMINATE"]',
        "--set",
        'blueprints=["norm", "depthwise"]',
    ]
    args = main.parse_args(["train", "--preset", "smoke", *words], "0")
    spec = resolve(setting_flags.spec_from_args(args))
    held = {"stage": S.HOLDING, "age": 9, "alpha": 1.0}
    masks = action_masks(make_slots([[{}, held, held]]), limits_of_spec(spec))
    assert [op for op in Op if masks.op[0, op]] == [Op.WAIT, Op.SET_ALPHA_TARGET, Op.FOSSILIZE]
    assert not masks.slot[:, [Op.PRUNE, Op.GERMINATE]].any()
    assert [b.label for b in Blueprint if masks.blueprint[0, b]] == ["norm", "depthwise"]
    world = world_of(tiny_setup(envs=2, disabled_ops=("GERMINATE",)))
    assert all((epoch.after.slots.stage == S.DORMANT).all() for epoch in live(world, "random"))
    grown = live(world_of(tiny_setup(envs=8, blueprints=("depthwise",))), "random")[
        -1
    ].after.slots.blueprint
    assert set(grown.flatten().tolist()) == {-1, int(Blueprint.DEPTHWISE)}
