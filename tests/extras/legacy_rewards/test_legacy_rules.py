"""Legacy rules in a run: payment of every slot, ledgers, rollbacks."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import one_in

from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.extras.legacy_rewards.rules import hindsight_payment, next_scaffold
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.rules.rewards.example_inputs import make_reward_inputs, make_slot_inputs
from morphogen.rules.rewards.table import build_rule
from morphogen.rules.stages import occupied
from morphogen.state.tree_ops import expand_mask
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.testing.strategies import reward_episodes, reward_inputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

GAMMA, LENGTH = 0.995, 8
NAMES = tuple(name for name in RULES if RULES.origin(name) == "legacy_rewards")
every_rule = pytest.mark.parametrize("name", NAMES)
fewer = settings(max_examples=one_in(4))  # each example plays an episode
episodes = reward_episodes(1, 4)


def rule(name: str, *, length: int = LENGTH, **legacy):
    spec = RewardSpec(rule=name, legacy=LegacyRewardSpec(**legacy))
    return build_rule(spec, param_budget=1, episode_length=length, gamma=GAMMA)


def paid(name: str, row, ledger=None, **legacy):
    """Reward and components of one step of one env as numbers, and the next ledger."""
    own = rule(name, **legacy)
    start = own.init(*row.slots.stage.shape) if ledger is None else ledger
    reward, parts, after = own(row, start)
    return reward.item(), {part: amount.item() for part, amount in parts.items()}, after


def one_slot(stage: Stage, op: Op = Op.WAIT, *, places: int = 1, **fields):
    """The slot 0 of an env as given, the others empty."""
    given = {
        "stage": int(stage),
        "op": int(op),
        "epochs_in_stage": 5,
        "age": 9,
        "params": 300,
        "next_stage": int(stage),
    }
    empty = {"stage": int(Stage.DORMANT), "next_stage": int(Stage.DORMANT)}
    rows = {**given, **fields}
    wide = {
        name: [[value] + [empty.get(name, type(value)(0))] * (places - 1)]
        for name, value in rows.items()
    }
    return make_slot_inputs(1, places, **{name: torch.tensor(row) for name, row in wide.items()})


# what holds for every rule


@every_rule
@fewer
@given(steps=episodes, wrong=st.sampled_from((math.nan, math.inf, -math.inf)))
def test_what_is_not_valid_is_not_read(name, steps, wrong):
    def spoiled(row):
        slots = row.slots
        known = {
            "contribution": slots.contribution_valid,
            "next_contribution": slots.next_contribution_valid,
            "accuracy_at_germination": (slots.stage >= Stage.GERMINATED)
            & (slots.stage <= Stage.FOSSILIZED),
        }
        bad = {leaf: torch.where(flag, getattr(slots, leaf), wrong) for leaf, flag in known.items()}
        pairs = torch.where(expand_mask(row.clean_valid, row.interaction), row.interaction, wrong)
        return row.replace(slots=slots.replace(**bad), interaction=pairs)

    got, want = play_rule(rule(name), [spoiled(row) for row in steps]), play_rule(rule(name), steps)
    assert torch.equal(got[0], want[0])
    assert not differing_leaves(got[2], want[2])


@every_rule
@fewer
@given(row=reward_inputs(1, horizon=False), other=reward_inputs(1))
def test_a_rule_reads_the_state_before_the_step_and_the_end_of_an_episode_after_it(
    name, row, other
):
    own = rule(name)
    ledger = own.init(1, 3)
    row = row.replace(rolled_back=torch.zeros_like(row.rolled_back))
    later = {"next_val_acc": row.next_val_acc + 7, "committed_acc": row.committed_acc + 7}
    slots = row.slots.replace(next_contribution=row.slots.next_contribution + 7)
    moved = row.replace(
        **later, slots=slots, live_params=row.live_params + 9, interaction=other.interaction
    )
    assert torch.equal(own(moved, ledger)[0], own(row, ledger)[0])
    end, moved = row.replace(horizon=~row.horizon), moved.replace(horizon=~row.horizon)
    assert (own(moved, ledger)[0] > own(end, ledger)[0]).all()


@every_rule
@fewer
@given(steps=episodes)
def test_difference_06_a_rollback_pays_its_penalty_and_forfeits_and_nothing_else(name, steps):
    rewards, parts, _ = play_rule(rule(name), steps)
    back = torch.stack([row.rolled_back for row in steps])
    forfeit = parts.get("escrow_forfeit", torch.zeros_like(rewards))
    torch.testing.assert_close(rewards[back], forfeit[back] - 10)
    assert torch.equal(parts["governor"] != 0, back)
    others = [
        amount[back] for part, amount in parts.items() if part not in ("governor", "escrow_forfeit")
    ]
    assert all((amount == 0).all() for amount in others)


@every_rule
@fewer
@given(steps=episodes)
def test_no_ledger_outlives_a_termination_but_the_accuracy_of_the_reset(name, steps):
    own = rule(name)
    ledger = own.init(1, 3)
    for row in steps:
        _, _, ledger = own(row, ledger)
        carried = {key: leaf for key, leaf in ledger.items() if (leaf != 0).any()}
        if row.horizon:
            assert not carried
        if row.rolled_back:
            assert carried.keys() <= {"reset_acc"}


# slots and envs


def test_a_jump_of_alpha_is_a_shock_in_the_step_after_it_was_made():
    still, moved = (
        make_reward_inputs(slots=one_slot(Stage.BLENDING, alpha=alpha)) for alpha in (0.25, 1.0)
    )
    _, parts, ledger = paid("shaped", still)
    assert parts["alpha_shock"] == 0
    assert (ledger["prev_alpha"].item(), ledger["prev_params"].item()) == (0.25, 300)
    _, parts, ledger = paid("shaped", moved, ledger)
    assert parts["alpha_shock"] == pytest.approx(-0.1958 * 0.75**2 * 300 / 1000)
    assert paid("shaped", moved, ledger)[1]["alpha_shock"] == 0


def test_progress_counts_from_germination_and_a_stand_in_from_the_entry_into_the_stage():
    marks = {"accuracy_at_germination": 40.0, "accuracy_at_stage_start": 43.0, "contribution": 4.0}
    seen = {"val_acc": 42.0, "stable_val_acc": 41.0, "uncommitted_improvement": 4.0, "epoch": 30}
    measured = make_reward_inputs(
        slots=one_slot(Stage.TRAINING, **marks, contribution_valid=True), **seen
    )
    assert paid("shaped", measured)[1]["attribution"] == pytest.approx(2 * 2 * 4 / (2 + 4))
    assert paid("escrow", measured)[1]["attribution"] == pytest.approx(2.0)  # sqrt(1 * 4)
    seen["val_acc"] = 45.0
    unknown = make_reward_inputs(slots=one_slot(Stage.BLENDING, **marks), **seen)
    assert paid("shaped", unknown)[1]["attribution"] == pytest.approx(0.3 * 2)
    assert paid("escrow", unknown)[1]["attribution"] == 0


# accuracy since the reset


@pytest.mark.parametrize("name", ["basic", "basic_plus"])
@given(accuracies=st.lists(st.integers(0, 100), min_size=3, max_size=6), back=st.booleans())
def test_the_terminal_part_counts_accuracy_from_the_reset_also_after_a_rollback(
    name, accuracies, back
):
    steps = [
        make_reward_inputs(
            epoch=t + 1, val_acc=before, next_val_acc=after, rolled_back=back and t == 0
        )
        for t, (before, after) in enumerate(itertools.pairwise(accuracies))
    ]
    steps[-1] = steps[-1].replace(horizon=~steps[-1].horizon)
    _, parts, ledger = play_rule(rule(name), steps)
    assert (parts["terminal"][:-1] == 0).all()
    assert parts["terminal"][-1].item() == pytest.approx(0.05 * (accuracies[-1] - accuracies[0]))
    assert ledger["reset_acc"] == 0


def test_good_fossils_count_as_they_are_after_the_step():
    kept = one_slot(
        Stage.HOLDING,
        Op.FOSSILIZE,
        next_stage=int(Stage.FOSSILIZED),
        next_contribution=1.0,
        next_contribution_valid=True,
    )
    base = {"horizon": True, "next_val_acc": 50.0}
    assert paid("simplified", make_reward_inputs(slots=kept, **base))[1][
        "terminal"
    ] == pytest.approx(1.5 + 2)
    for worse in (
        {"next_contribution": 0.9},
        {"next_contribution_valid": False},
        {"next_stage": int(Stage.HOLDING)},
    ):
        slots = kept.replace(
            **{leaf: torch.full_like(getattr(kept, leaf), value) for leaf, value in worse.items()}
        )
        assert paid("simplified", make_reward_inputs(slots=slots, **base))[1][
            "terminal"
        ] == pytest.approx(1.5)


# drip


def test_a_bonus_is_dripped_as_long_as_the_fossil_helps():
    helpful = {"contribution": 4.0, "contribution_valid": True}
    kept = one_slot(Stage.HOLDING, Op.FOSSILIZE, places=2, **helpful)
    fossil = one_slot(Stage.FOSSILIZED, places=2, **helpful)
    harmful = one_slot(Stage.FOSSILIZED, places=2, contribution=-40.0, contribution_valid=True)
    unknown = one_slot(Stage.FOSSILIZED, places=2)
    now, later = {"epoch": 3, "uncommitted_improvement": 4.0}, {"epoch": 4}
    _, first, ledger = paid("basic_plus", make_reward_inputs(slots=kept, **now))
    full = 0.3 + 0.5 * 4
    assert first["fossilize_bonus"] == pytest.approx(0.3 * full)
    assert first["drip"] == 0
    assert ledger["drip_scale"].tolist() == [[pytest.approx(0.7 * full / (LENGTH - 3)), 0.0]]
    assert paid("basic_plus", make_reward_inputs(slots=fossil, **later), ledger)[1][
        "drip"
    ] == pytest.approx(0.1)
    assert paid("basic_plus", make_reward_inputs(slots=harmful, **later), ledger)[1][
        "drip"
    ] == pytest.approx(-0.05)
    assert paid("basic_plus", make_reward_inputs(slots=unknown, **later), ledger)[1]["drip"] == 0
    assert torch.equal(
        paid("basic_plus", make_reward_inputs(slots=unknown, **later), ledger)[2]["drip_scale"],
        ledger["drip_scale"],
    )
    assert paid("basic", make_reward_inputs(slots=kept, **now))[1][
        "fossilize_bonus"
    ] == pytest.approx(full)
    assert not paid("basic", make_reward_inputs(slots=kept, **now))[2]["drip_scale"].any()


# escrow

three_balances = st.lists(st.integers(0, 30).map(lambda n: n / 8), min_size=3, max_size=3)


def with_balances(balances):
    """A ledger that holds balances [1, 3]."""
    return rule("escrow").init(1, 3).replace({"escrow_balance": balances})


@given(row=reward_inputs(1), balances=three_balances)
def test_every_balance_ever_credited_is_held_by_a_fossil_or_debited(row, balances):
    slots, back = row.slots, row.rolled_back.item()
    before = torch.where(occupied(slots.stage), torch.tensor([balances]), 0.0)
    _, parts, ledger = rule("escrow")(row, with_balances(before))
    harm = (slots.stage != Stage.FOSSILIZED) & (slots.op != Op.PRUNE) & slots.contribution_valid
    owed = torch.where(harm, slots.contribution, 0.0).clamp(max=0.0)
    # paid nothing, but still booked
    cancelled = (slots.op == Op.FOSSILIZE) & (row.uncommitted_improvement < 0)
    credited = parts["attribution"].sum() - torch.where(cancelled, 0.0, owed).sum()
    after = ledger["escrow_balance"]
    if not cancelled.any() and not row.horizon.item() and not back:
        total = before.sum() + credited + parts["escrow_forfeit"].sum()
        torch.testing.assert_close(total, after.sum().double())
    if back:
        fossils = slots.next_stage == Stage.FOSSILIZED
        forfeited = torch.where(fossils, 0.0, before).sum()
        torch.testing.assert_close(parts["escrow_forfeit"].sum(), -forfeited.double())
    assert (after[~occupied(slots.next_stage)] == 0).all()


@pytest.mark.parametrize("how", ["rolled_back", "horizon"])
@given(balances=three_balances, kept=st.booleans())
def test_the_end_of_a_segment_takes_back_what_no_fossil_holds(how, balances, kept):
    after = [Stage.PRUNED, Stage.FOSSILIZED if kept else Stage.HOLDING, Stage.TRAINING]
    stages = [Stage.TRAINING, Stage.FOSSILIZED if kept else Stage.HOLDING, Stage.TRAINING]
    row = make_reward_inputs(
        slots=make_slot_inputs(
            1, 3, stage=torch.tensor([stages]), next_stage=torch.tensor([after])
        ),
        **{how: True},
    )
    reward, parts, end = paid("escrow", row, with_balances(torch.tensor([balances])))
    assert parts["escrow_forfeit"] == pytest.approx(-sum(balances) + kept * balances[1])
    assert not end["escrow_balance"].any()
    if how == "rolled_back":
        assert reward == pytest.approx(parts["escrow_forfeit"] - 10)


# hindsight


def kept(contribution: float, op: Op = Op.FOSSILIZE):
    return one_slot(Stage.HOLDING, op, places=2, contribution=contribution, contribution_valid=True)


@given(help=st.floats(-5.0, 50.0), contribution=st.floats(-5.0, 50.0))
def test_hindsight_pays_the_scaffold_of_a_seed_that_is_kept_and_at_most_a_fifth(help, contribution):
    scaffold = torch.zeros(1, 2, 2, dtype=torch.float64)
    scaffold[0, 1, 0] = max(help, 0.0)
    got = hindsight_payment(scaffold, kept(contribution)).item()
    assert got == pytest.approx(0.1 * math.tanh(0.1 * max(help, 0.0) * max(contribution, 0.0)))
    assert hindsight_payment(scaffold.mT, kept(contribution)) == 0  # help in the other direction
    assert hindsight_payment(scaffold, kept(contribution, Op.WAIT)) == 0
    unknown = kept(contribution)
    assert (
        hindsight_payment(
            scaffold, unknown.replace(contribution_valid=unknown.contribution_valid & False)
        )
        == 0
    )
    many = torch.full((1, 6, 6), 50.0, dtype=torch.float64)
    six = one_slot(
        Stage.HOLDING, Op.FOSSILIZE, places=6, contribution=50.0, contribution_valid=True
    )
    assert hindsight_payment(many, six) == pytest.approx(0.2)


@given(steps=reward_episodes(1, 2), gamma=st.sampled_from((0.9, 1.0)))
def test_a_scaffold_is_a_decayed_sum_of_what_was_measured(steps, gamma):
    scaffold = torch.zeros(1, 3, 3, dtype=torch.float64)
    for row in steps:
        after = next_scaffold(scaffold, row, gamma=gamma)
        fresh = (row.slots.op == Op.FOSSILIZE) | (row.slots.op == Op.GERMINATE)
        assert (after[:, :, fresh[0]] == 0).all()
        rest = ~fresh[0]
        if not row.clean_valid:
            assert torch.equal(after[:, :, rest], scaffold[:, :, rest])
        else:
            gained = (after - gamma * scaffold)[:, :, rest]
            torch.testing.assert_close(gained, row.interaction.clamp(min=0.0)[:, :, rest])
        scaffold = after
