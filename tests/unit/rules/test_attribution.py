"""Attribution: laws of the Shapley value, requested coalitions, memory."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_up_measurements import slots_by_stage
from support.profiles import one_in

from morphogen.config.groups import SignalSpec
from morphogen.rules.attribution import (
    attribution,
    coalitions,
    configuration_count,
    is_measured_epoch,
    players,
)
from morphogen.state.measure import Validation
from morphogen.steps.score_step import attribute
from morphogen.testing import oracles
from morphogen.testing.builders import scenes
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.vocab.stage import Stage

BARE = (Stage.DORMANT, Stage.GERMINATED, Stage.TRAINING, Stage.PRUNED, Stage.EMBARGOED)
LIVE = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
UNREAD = 1234.5  # stands where nothing was evaluated: must never be seen


def bits(members) -> int:
    return sum(1 << s for s in members)


def fresh_noise(envs: int, pairs: int, slots: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(envs, pairs, slots, generator=torch.Generator().manual_seed(seed))


def measure(games: torch.Tensor, slots, *, pairs: int = 2, noise=None, full=None):
    """Attribution of envs whose accuracy with coalition M on is `games[e, M]`."""
    envs, count = slots.stage.shape
    noise = fresh_noise(envs, pairs, count) if noise is None else noise
    coalition, evaluated = coalitions(slots, noise, pairs=pairs, full=full)
    accuracy = torch.where(evaluated, games.gather(1, coalition), UNREAD)
    return attribution(accuracy, coalition, evaluated, slots, full=full)


@st.composite
def worlds(draw, max_slots: int = 4, max_envs: int = 3):
    """Slots and a game over them, in float64: (games [E, 2^S], slots)."""
    count, envs = draw(st.integers(1, max_slots)), draw(st.integers(1, max_envs))
    stage = st.sampled_from(BARE[:2] + LIVE)
    stages = draw(
        st.lists(st.lists(stage, min_size=count, max_size=count), min_size=envs, max_size=envs)
    )
    row = st.lists(st.integers(0, 1000), min_size=2**count, max_size=2**count)
    games = draw(st.lists(row, min_size=envs, max_size=envs))
    return torch.tensor(games, dtype=torch.float64) / 10, slots_by_stage(stages)


def close(a, b, room: float = 1e-9):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), rtol=0, atol=room)


# which coalitions are asked


def test_a_player_is_a_blended_slot_that_is_not_at_alpha_zero():
    slots = slots_by_stage([list(Stage)[1:]])
    assert players(slots).tolist() == [[False, False, False, True, True, True, False, False, False]]
    resting = slots_by_stage([[Stage.BLENDING, Stage.BLENDING]], [[0.0, 0.01]])
    assert players(resting).tolist() == [[False, True]]


def test_with_three_slots_column_k_switches_off_the_slots_of_its_bits():
    slots = slots_by_stage(
        [[Stage.HOLDING] * 3, [Stage.HOLDING, Stage.DORMANT, Stage.FOSSILIZED], [Stage.DORMANT] * 3]
    )
    coalition, evaluated = coalitions(slots, fresh_noise(3, 2, 3), pairs=2)
    assert coalition[0].tolist() == [0b111, 0b110, 0b101, 0b100, 0b011, 0b010, 0b001, 0b000]
    assert evaluated[1].nonzero().flatten().tolist() == [0, 1, 4, 5]
    assert coalition[1][evaluated[1]].tolist() == [0b101, 0b100, 0b001, 0b000]
    assert (coalition[1][~evaluated[1]] == 0b101).all()
    assert evaluated.sum(1).tolist() == [8, 4, 1]


@pytest.mark.parametrize(
    ("live", "passes"),
    [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 24), (6, 29), (8, 39), (10, 49)],
)
def test_the_number_of_passes_follows_the_number_of_players(live, passes):
    stages = [Stage.DORMANT] * (10 - live) + [Stage.HOLDING] * live
    slots = slots_by_stage([stages, [Stage.HOLDING] * 10])
    coalition, evaluated = coalitions(slots, fresh_noise(2, 2, 10), pairs=2)
    assert evaluated.sum(1).tolist() == [passes, 49]
    assert coalition.shape[1] == configuration_count(10, 2) == 49
    assert coalition[0, 0] == bits(range(10 - live, 10))


@given(world=worlds(max_slots=6), pairs=st.integers(1, 3))
def test_only_players_are_ever_on_and_every_coalition_is_asked_that_the_regime_needs(world, pairs):
    _, slots = world
    envs, count = slots.stage.shape
    coalition, evaluated = coalitions(slots, fresh_noise(envs, pairs, count), pairs=pairs)
    for e in range(envs):
        members = [s for s in range(count) if slots.stage[e, s] in LIVE]
        everyone = bits(members)
        asked = coalition[e][evaluated[e]].tolist()
        assert coalition[e, 0] == everyone
        assert all(c & ~everyone == 0 for c in asked)
        if len(members) <= 4:
            assert sorted(asked) == sorted(
                bits(c) for n in range(len(members) + 1) for c in itertools.combinations(members, n)
            )
        else:
            assert len(asked) == 3 + len(members) + 2 * pairs * (len(members) - 1)


def test_a_skipped_epoch_asks_for_all_on_and_committed_only():
    slots = slots_by_stage([[Stage.HOLDING, Stage.FOSSILIZED, Stage.BLENDING], [Stage.DORMANT] * 3])
    coalition, evaluated = coalitions(
        slots, fresh_noise(2, 2, 3), pairs=2, full=torch.tensor([False, False])
    )
    assert evaluated.sum(1).tolist() == [2, 1]
    assert coalition[0, :2].tolist() == [0b111, 0b010]


def test_every_nth_epoch_and_the_last_one_are_measured():
    got = is_measured_epoch(torch.arange(8), every=3, episode_length=8)
    assert got is not None
    assert got.tolist() == [False, False, True, False, False, True, False, True]
    assert is_measured_epoch(torch.arange(8), every=1, episode_length=8) is None


# laws of the exact regime


@given(world=worlds())
def test_each_quantity_is_what_its_coalitions_say(world):
    games, slots = world
    got = measure(games, slots)
    for e in range(games.shape[0]):
        value = games[e].tolist()
        members = [s for s in range(slots.stage.shape[1]) if slots.stage[e, s] in LIVE]
        kept = bits(s for s in members if slots.stage[e, s] == Stage.FOSSILIZED)
        everyone = bits(members)
        assert got.val_acc[e] == value[everyone]
        assert got.committed_acc[e] == value[kept]
        assert got.host_acc[e] == value[0]
        close(got.uncommitted_improvement[e], value[everyone] - value[kept])
        close(got.clean_improvement[e], value[everyone] - value[0])
        shares = oracles.shapley(lambda c, v=value: v[c], members)
        for s in range(slots.stage.shape[1]):
            assert got.contribution_valid[e, s] == (s in members)
            close(
                got.contribution[e, s],
                value[everyone] - value[everyone ^ (1 << s)] if s in members else 0.0,
            )
            close(got.shapley[e, s], shares.get(s, 0.0))
        for i, j in itertools.combinations(members, 2):
            both = value[1 << i | 1 << j] - value[1 << i] - value[1 << j] + value[0]
            close(got.interaction[e, i, j], both)
            close(got.interaction[e, j, i], both)
        on = [bits(s for s in members if m >> s & 1) for m in range(len(value))]
        assert got.acc_table[e].tolist() == [value[coalition] for coalition in on]
        close(got.interaction_sum[e], got.interaction[e].sum(1))
        close(got.boost_received[e], got.interaction[e].max(1).values.clamp_min(0))


@given(world=worlds(max_slots=3))
def test_empty_places_in_the_table_change_no_value(world):
    games, slots = world
    count = slots.stage.shape[1]
    wider = slots_by_stage([[*row, *[Stage.DORMANT] * (6 - count)] for row in slots.stage.tolist()])
    wide_games = games.repeat(1, 2 ** (6 - count))
    small, wide = measure(games, slots), measure(wide_games, wider)
    close(wide.shapley[:, :count], small.shapley)
    close(wide.interaction[:, :count, :count], small.interaction)
    assert torch.equal(wide.contribution[:, :count], small.contribution)
    assert torch.equal(wide.forwards, small.forwards)


# the sampled regime


def game_of_five(seed: int = 3) -> torch.Tensor:
    return (
        torch.rand(1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 100
    )


def test_all_permutations_give_the_exact_value():
    games, slots = game_of_five(), slots_by_stage([[Stage.HOLDING] * 3 + [Stage.FOSSILIZED] * 2])
    orders = torch.tensor(list(itertools.permutations(range(5))), dtype=torch.float32) / 5
    got = measure(games, slots, pairs=len(orders), noise=orders.unsqueeze(0))
    shares = oracles.shapley(lambda c: games[0, c].item(), range(5))
    close(got.shapley[0], [shares[s] for s in range(5)])
    close(
        got.contribution[0],
        [games[0, 31].item() - games[0, 31 ^ (1 << s)].item() for s in range(5)],
    )
    close(got.committed_acc, [games[0, 0b11000].item()])
    close(got.host_acc, [games[0, 0].item()])
    assert not got.exact.any()
    assert not got.interaction_valid.any()
    assert (got.interaction == 0).all()


@given(seed=st.integers(0, 50), pairs=st.integers(1, 3))
def test_every_order_is_followed_forwards_and_backwards(seed, pairs):
    """The players that have joined after i steps one way are those that are still missing i steps
    before the end.
    """
    slots = slots_by_stage([[Stage.HOLDING, Stage.DORMANT, *[Stage.BLENDING] * 5]])
    coalition, evaluated = coalitions(slots, fresh_noise(1, pairs, 7, seed), pairs=pairs)
    everyone, prefixes = int(coalition[0, 0]), coalition[0, 10:].view(pairs, 2, 6)
    assert evaluated[0, 10:].view(pairs, 2, 6)[:, :, :5].all()
    assert not evaluated[0, 10:].view(pairs, 2, 6)[:, :, 5].any()
    for forwards, backwards in prefixes[:, :, :5].tolist():
        assert [bin(c).count("1") for c in forwards] == [1, 2, 3, 4, 5]
        assert all(small & ~large == 0 for small, large in itertools.pairwise(forwards))
        assert [everyone ^ c for c in reversed(backwards)] == forwards


@given(seed=st.integers(0, 50), pairs=st.integers(1, 3))
def test_sampled_shares_sum_exactly_and_the_same_noise_gives_the_same(seed, pairs):
    slots = slots_by_stage([[Stage.HOLDING, Stage.DORMANT, *[Stage.BLENDING] * 5]])
    games = torch.rand(1, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    noise = fresh_noise(1, pairs, 7, seed)
    one = measure(games, slots, pairs=pairs, noise=noise)
    close(one.shapley.sum(1), one.clean_improvement, 1e-12)
    assert one.shapley[0, 1] == 0
    assert not differing_leaves(one, measure(games, slots, pairs=pairs, noise=noise))


def test_envs_of_both_regimes_stand_side_by_side():
    stages = [
        [Stage.HOLDING] * 5,
        [Stage.HOLDING, Stage.DORMANT, Stage.FOSSILIZED, Stage.DORMANT, Stage.BLENDING],
    ]
    games = torch.cat((game_of_five(1), game_of_five(2)))
    got = measure(games, slots_by_stage(stages))
    alone = measure(games[1:], slots_by_stage(stages[1:]))
    assert got.exact.tolist() == [False, True]
    assert not differing_leaves(got[1:], alone)


# skipped epochs and what is remembered


def test_a_skipped_epoch_knows_accuracy_and_committed_accuracy_and_nothing_else():
    games = torch.tensor([[10.0, 20.0, 30.0, 60.0]] * 2, dtype=torch.float64)
    slots = slots_by_stage([[Stage.HOLDING, Stage.FOSSILIZED], [Stage.DORMANT] * 2])
    got = measure(games, slots, full=torch.tensor([False, False]))
    assert got.val_acc.tolist() == [60.0, 10.0]
    assert got.committed_acc.tolist() == [30.0, 10.0]
    assert got.measured.tolist() == [False, True]  # without players nothing is skipped
    assert not got.contribution_valid.any()
    for name in (
        "clean_improvement",
        "contribution",
        "shapley",
        "interaction",
        "host_acc",
        "acc_table",
    ):
        assert (getattr(got, name)[0] == 0).all(), name


def validation(games: torch.Tensor, state, *, full=None) -> Validation:
    slots = state.slots
    envs, count = slots.stage.shape
    coalition, evaluated = coalitions(slots, fresh_noise(envs, 2, count), pairs=2, full=full)
    accuracy = torch.where(evaluated, games.gather(1, coalition), 0.0)
    return Validation(
        loss=torch.full((envs,), 1.5),
        accuracy=accuracy,
        coalition=coalition,
        evaluated=evaluated,
        batch_size=[envs],
    )


def epoch(state, games, *, every: int = 1):
    """One epoch of measuring only."""
    full = is_measured_epoch(state.clock.epoch, every=every, episode_length=99)
    state, out = attribute(
        state,
        validation(games, state, full=full),
        every=every,
        episode_length=99,
        signal_spec=SignalSpec(),
    )
    return state.replace(clock=state.clock.replace(epoch=state.clock.epoch + 1)), out


def test_difference_13_velocity_and_freshness_are_measured():
    state = scenes.make_state(slots_by_stage([[Stage.HOLDING, Stage.TRAINING]]), measured=False)
    for points in (4.0, 6.0, 6.0):
        before = state.slots
        state, _ = epoch(state, torch.tensor([[50.0, 50.0 + points, 0.0, 0.0]]))
        assert state.slots.contribution_valid.tolist() == [[True, False]]
        close(state.slots.contribution, [[points, 0.0]], 1e-5)
        assert state.slots.velocity_valid.tolist() == [
            [before.contribution_valid[0, 0].item(), False]
        ]
        assert state.slots.since_measured.tolist() == [[0, 0]]
    close(state.slots.velocity, [[0.3 * 0.7 * 2.0, 0.0]], 1e-5)


def test_difference_13_an_unmeasured_epoch_is_marked_and_keeps_the_last_measurement():
    state = scenes.make_state(slots_by_stage([[Stage.HOLDING, Stage.HOLDING]]), measured=False)
    ages, kept = [], []
    for t in range(6):
        state, _ = epoch(state, torch.tensor([[50.0, 52.0 + t, 50.0, 55.0 + t]]), every=3)
        ages.append(state.slots.since_measured[0, 0].item())
        kept.append(state.slots.contribution[0, 0].item())
        assert state.slots.interaction_valid.all() == ((t + 1) % 3 == 0)
    assert ages == [0, 0, 0, 1, 2, 0]
    assert kept == pytest.approx([0.0, 0.0, 7.0, 7.0, 7.0, 10.0])
    close(state.slots.velocity[:, :1], [[0.3 * 3.0 / 3]], 1e-5)


@settings(max_examples=one_in(2))  # each example makes whole states
@given(world=worlds(max_slots=3), loss=st.sampled_from([0.5, float("nan"), float("inf")]))
def test_attribute_writes_finite_numbers_and_only_its_own_leaves(world, loss):
    games, slots = world
    state = scenes.make_state(slots, measured=False)
    copy = state.clone()
    seen = validation(games.float(), state).replace(loss=torch.full((len(games),), loss))
    after, _ = attribute(state, seen, every=1, episode_length=9, signal_spec=SignalSpec())
    assert not differing_leaves(state, copy)
    own = {"contribution", "contribution_valid", "velocity", "velocity_valid", "since_measured"}
    own |= {"interaction_sum", "boost_received", "interaction_valid"}
    for name, leaf in after.slots.to_dict().items():
        assert leaf.isfinite().all(), name
        assert name in own or torch.equal(leaf, getattr(state.slots, name)), name
    assert all(leaf.isfinite().all() for leaf in after.signals.to_dict().values())
    assert not differing_leaves(after.replace(slots=state.slots, signals=state.signals), state)


@given(
    world=worlds(max_slots=6), size=st.sampled_from([1.0, 1e-30, 1e12, -1e12]), skip=st.booleans()
)
def test_any_finite_accuracies_give_finite_numbers_and_zero_where_invalid(world, size, skip):
    games, slots = world
    full = torch.arange(len(games)) % 2 == 0 if skip else None
    got = measure((games * size).float(), slots, full=full)
    assert all(leaf.isfinite().all() for leaf in got.values())
    for name, valid in (
        ("contribution", got.contribution_valid),
        ("shapley", got.contribution_valid),
        ("interaction_sum", got.interaction_valid),
        ("boost_received", got.interaction_valid),
        ("host_acc", got.measured),
        ("clean_improvement", got.measured),
    ):
        assert not getattr(got, name)[~valid].any(), name
    pairs = got.interaction_valid.unsqueeze(-1) & got.interaction_valid.unsqueeze(-2)
    assert not got.interaction[~pairs].any()
    assert torch.equal(got.interaction, got.interaction.mT)
    assert not got.interaction.diagonal(dim1=1, dim2=2).any()


def test_only_envs_of_more_than_four_slots_need_random_orders():
    four, five = (slots_by_stage([[Stage.HOLDING] * count]) for count in (4, 5))
    assert all(
        map(
            torch.equal,
            coalitions(four, None, pairs=2),
            coalitions(four, fresh_noise(1, 2, 4), pairs=2),
        )
    )
    with pytest.raises(ValueError, match="noise: expected random orders of 5 slots, got None"):
        coalitions(five, None, pairs=2)
