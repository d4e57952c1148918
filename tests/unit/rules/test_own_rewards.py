"""Core reward rules: shaping that telescopes, a price paid once, irrelevant inputs."""

import math
from dataclasses import asdict
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.groups import RewardSpec
from morphogen.rules.rewards.archetypes import ARCHETYPES, TERMS, archetype_returns
from morphogen.rules.rewards.own import epoch_value, loss_progress, network_value, parameter_cost
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import (
    discounted_return,
    make_reward_inputs,
    play_rule,
)
from morphogen.testing.builders.tree_equality import assert_trees_equal
from morphogen.vocab.action import Op
from morphogen.vocab.reward import CORE_COMPONENTS

GAMMA, BUDGET, STEPS = 0.995, 48_832, 150
OPTIONAL = {
    "clean_improvement": "clean_valid",
    "val_loss": "loss_valid",
    "committed_acc": "committed_valid",
}
# no committed points before the end
late_rules = pytest.mark.parametrize("name", ["sparse", "delta", "rent", "loss"])
every_rule = pytest.mark.parametrize("name", ["sparse", "delta", "value", "rent", "loss"])
shaped_rules = pytest.mark.parametrize("name", ["delta", "value", "rent", "loss"])
# they pay parameters once, at the end
twins_of_sparse = pytest.mark.parametrize("name", ["delta", "loss"])


def rule(name: str, *, gamma: float = GAMMA, budget: int = BUDGET, **spec):
    return build_rule(
        RewardSpec(rule=name, **spec), param_budget=budget, episode_length=STEPS, gamma=gamma
    )


def paid(name: str, *, phi: float = 0.0, spec=None, **fields) -> float:
    """Reward of one step of one env that starts from a potential."""
    own = rule(name, **(spec or {}))
    ledger = own.init(1, 3).apply(lambda leaf: leaf.double() + phi)
    return own(make_reward_inputs(**fields), ledger)[0].item()


@st.composite
def steps(draw, *, last: bool = True, rollbacks: bool = False, max_steps: int = 7):
    """Inputs of consecutive steps of one env; the last one is the horizon."""
    count = draw(st.integers(1, max_steps))
    points, share = st.integers(-400, 400).map(lambda n: n / 8), st.integers(0, 100).map(float)
    rows = []
    for t in range(count):
        rows.append(
            make_reward_inputs(
                horizon=last and t == count - 1,
                rolled_back=rollbacks and draw(st.booleans()),
                op=draw(st.integers(0, 5)),
                op_executed=draw(st.booleans()),
                committed_acc=draw(share),
                committed_valid=draw(st.booleans()),
                clean_improvement=draw(points),
                clean_valid=draw(st.booleans()),
                val_loss=draw(st.sampled_from([0.25, 1.0, 2.5])),
                loss_valid=draw(st.booleans()),
                fossil_params=draw(st.integers(0, 60_000)),
                live_params=draw(st.integers(0, 60_000)),
                param_price=draw(st.sampled_from([0.0, 0.1, 1.0])),
            )
        )
    return rows


def swap(rows, where: int, **fields):
    """The same steps with some fields of one of them changed."""
    new = {
        name: torch.full_like(getattr(rows[where], name), value) for name, value in fields.items()
    }
    return [*rows[:where], rows[where].replace(**new), *rows[where + 1 :]]


# worked numbers


@pytest.mark.parametrize(
    ("name", "phi", "fields", "want"),
    [
        ("delta", 0.0, {"clean_improvement": 3.0}, 0.02985),
        ("delta", 0.08, {"clean_improvement": 8.0}, -0.0004),
        ("delta", 0.08, {"clean_improvement": math.nan, "clean_valid": False}, -0.0004),
        ("delta", -0.04, {"clean_improvement": 0.0}, 0.04),
        (
            "delta",
            0.08,
            {"horizon": True, "committed_acc": 66.0, "fossil_params": 2336},
            0.57521625,
        ),
        (
            "sparse",
            0.0,
            {"horizon": True, "committed_acc": 66.0, "fossil_params": 2336},
            0.65521625,
        ),
        ("delta", 0.08, {"horizon": True, "committed_acc": 58.0}, 0.50),
        ("delta", 0.05, {"rolled_back": True}, -1.05),
        ("sparse", 0.0, {"rolled_back": True}, -1.0),
        ("value", 0.5, {"committed_acc": 66.0, "fossil_params": 2336}, 0.995 * 0.65521625 - 0.5),
        ("rent", 0.0, {"live_params": 2336}, -0.0000318917),
        ("loss", 0.4, {"val_loss": 1.3}, 0.0975),
        ("loss", 0.0, {"val_loss": 2.25}, 0.024875),
    ],
)
def test_worked_numbers(name, phi, fields, want):
    assert paid(name, phi=phi, **fields) == pytest.approx(want, abs=5e-9)


# shaping


@shaped_rules
@given(
    rows=steps(rollbacks=True),
    scale=st.sampled_from([0.5, 1.0, 2.0]),
    gamma=st.sampled_from([0.9, 0.995, 1.0]),
)
def test_difference_08_shaping_telescopes_over_every_segment(name, rows, scale, gamma):
    own = rule(name, gamma=gamma, potential_scale=scale)
    _, parts, ledger = play_rule(own, rows)
    segment = []
    for row, shaping in zip(rows, parts["shaping"], strict=True):
        segment.append(shaping)
        if row.horizon | row.rolled_back:
            assert abs(discounted_return(torch.stack(segment), gamma).item()) < 1e-9
            segment = []
    assert not segment
    assert ledger["phi"] == 0


@twins_of_sparse
@given(rows=steps(rollbacks=True))
def test_a_shaped_rule_has_the_return_of_sparse_and_with_scale_zero_its_rewards(name, rows):
    first_end = next(t for t, row in enumerate(rows) if row.horizon | row.rolled_back)
    rows = rows[: first_end + 1]
    sparse, _, _ = play_rule(rule("sparse"), rows)
    shaped, _, _ = play_rule(rule(name), rows)
    flat, _, _ = play_rule(rule(name, potential_scale=0.0), rows)
    torch.testing.assert_close(
        discounted_return(shaped, GAMMA), discounted_return(sparse, GAMMA), rtol=0, atol=1e-9
    )
    assert torch.equal(flat, sparse)


NOTHING_GAINED = {
    "delta": {"clean_improvement": 0.0, "clean_valid": True},
    "loss": {"val_loss": 2.3, "loss_valid": True},
}


@twins_of_sparse
@given(rows=steps(last=False), cost=st.sampled_from([0.0, 0.01]))
def test_difference_08_a_loop_back_to_potential_zero_earns_nothing_but_the_fees_of_its_ops(
    name, rows, cost
):
    rows = swap(rows, len(rows) - 1, **NOTHING_GAINED[name])
    earned, parts, _ = play_rule(rule(name, op_cost=cost), rows)
    assert discounted_return(earned, GAMMA).item() == pytest.approx(
        discounted_return(parts["op_cost"], GAMMA).item(), abs=1e-9
    )


@shaped_rules
@given(rows=steps(last=False), cost=st.sampled_from([0.001, 0.01]))
def test_an_op_that_took_effect_costs_its_fee_and_nothing_in_sparse(name, rows, cost):
    free, _, _ = play_rule(rule(name), rows)
    charged, parts, _ = play_rule(rule(name, op_cost=cost), rows)
    ops = torch.stack([(row.op != Op.WAIT) & row.op_executed for row in rows])
    torch.testing.assert_close(free - charged, cost * ops.double())
    assert torch.equal(parts["op_cost"], -cost * ops.double())
    assert (play_rule(rule("sparse", op_cost=cost), rows)[0] == 0).all()


@given(rows=steps(last=False))
def test_an_epoch_that_was_not_measured_pays_as_if_nothing_had_moved(rows):
    start = swap(rows[:1], 0, **NOTHING_GAINED["delta"], **NOTHING_GAINED["loss"])
    for name, field in (("delta", "clean_improvement"), ("loss", "val_loss")):
        known = swap([*start, *rows], len(rows), **{OPTIONAL[field]: False})
        _, parts, ledger = play_rule(rule(name), known)
        _, before, carried = play_rule(rule(name), known[:-1])
        assert torch.equal(ledger["phi"], carried["phi"])
        torch.testing.assert_close(parts["shaping"][-1], (GAMMA - 1) * carried["phi"].double())
        assert torch.equal(parts["shaping"][:-1], before["shaping"])


@every_rule
@given(rows=steps(rollbacks=True), op=st.sampled_from(list(Op)))
def test_difference_09_an_op_that_did_not_take_effect_is_paid_like_wait(name, rows, op):
    own = rule(name, op_cost=0.01)
    declined = [
        row.replace(op=torch.full_like(row.op, op), op_executed=row.op_executed & False)
        for row in rows
    ]
    waited = [
        row.replace(op=torch.full_like(row.op, Op.WAIT), op_executed=row.op_executed | True)
        for row in rows
    ]
    assert torch.equal(play_rule(own, declined)[0], play_rule(own, waited)[0])


# value


@given(rows=steps())
def test_sparse_pays_nothing_before_the_end(rows):
    rewards, _, _ = play_rule(rule("sparse"), rows)
    assert (rewards[:-1] == 0).all()


@late_rules
@given(rows=steps(), points=st.integers(1, 30))
def test_a_point_of_committed_accuracy_at_the_horizon_is_worth_a_hundredth_and_nothing_before(
    name, rows, points
):
    rows = swap(rows, len(rows) - 1, committed_acc=60.0, committed_valid=True, fossil_params=100)
    before, _, _ = play_rule(rule(name), rows)
    better, _, _ = play_rule(rule(name), swap(rows, len(rows) - 1, committed_acc=60.0 + points))
    torch.testing.assert_close(
        (better - before)[-1], torch.tensor([points / 100], dtype=torch.float64)
    )
    assert torch.equal(better[:-1], before[:-1])
    if len(rows) > 1:
        assert torch.equal(play_rule(rule(name), swap(rows, 0, committed_acc=99.0))[0], before)


@late_rules
@given(rows=steps(rollbacks=True), extra=st.integers(1, 50_000))
def test_more_fossil_parameters_never_raise_a_reward(name, rows, extra):
    before, _, _ = play_rule(rule(name), rows)
    heavier, _, _ = play_rule(
        rule(name), [row.replace(fossil_params=row.fossil_params + extra) for row in rows]
    )
    assert (heavier <= before + 1e-12).all()
    if name == "rent":
        assert torch.equal(heavier, before)


@every_rule
@given(rows=steps(rollbacks=True), extra=st.integers(1, 50_000))
def test_more_live_parameters_lower_the_reward_of_rent_and_change_nothing_elsewhere(
    name, rows, extra
):
    before, _, _ = play_rule(rule(name), rows)
    busier, _, _ = play_rule(
        rule(name), [row.replace(live_params=row.live_params + extra) for row in rows]
    )
    charged = torch.stack([(row.param_price > 0) & ~row.rolled_back for row in rows])
    assert torch.equal(busier < before, charged if name == "rent" else torch.zeros_like(charged))
    assert (busier <= before).all()


@given(
    live=st.integers(0, 10**6), price=st.sampled_from([0.0, 0.1, 2.0]), length=st.integers(1, 200)
)
def test_rent_over_a_whole_episode_is_the_price_that_sparse_charges_once(live, price, length):
    own = build_rule(
        RewardSpec(rule="rent"), param_budget=BUDGET, episode_length=length, gamma=GAMMA
    )
    row = make_reward_inputs(
        live_params=live, param_price=price, fossil_params=live, committed_acc=50.0
    )
    _, parts, _ = own(row, own.init(1, 3))
    assert (parts["rent"] * length).item() == pytest.approx(-price * live / BUDGET, rel=1e-12)
    final, _, _ = own(row.replace(horizon=~row.horizon), own.init(1, 3))
    assert (final - parts["rent"]).item() == pytest.approx(0.5, abs=1e-12)


@given(rows=steps(), lower=st.floats(0.0, 3.0))
def test_a_lower_loss_never_lowers_the_reward_of_its_step(rows, lower):
    rows = swap(rows, 0, val_loss=3.0, loss_valid=True, horizon=False)
    before, _, _ = play_rule(rule("loss"), rows)
    better, _, _ = play_rule(rule("loss"), swap(rows, 0, val_loss=3.0 - lower))
    assert better[0] >= before[0]


@given(loss=st.floats(0.0, 1e6), baseline=st.sampled_from([0.5, 2.3, 10.8]))
def test_difference_19_the_loss_counts_from_its_baseline_and_the_first_step_is_finite(
    loss, baseline
):
    first = paid("loss", val_loss=loss, baseline_loss=baseline, target_loss=0.3)
    assert 0.0 <= first <= GAMMA
    assert (first > 0) == (loss < baseline)
    whole = torch.tensor([baseline, 0.3], dtype=torch.float64)
    progress = loss_progress(whole, baseline=whole[0], target=whole[1])
    assert progress.tolist() == [0.0, 1.0]


@given(
    accuracy=st.integers(0, 100),
    params=st.integers(0, 10**6),
    price=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_the_value_of_a_network_is_its_accuracy_less_its_price_inside_one(accuracy, params, price):
    row = make_reward_inputs(committed_acc=float(accuracy), fossil_params=params, param_price=price)
    got = network_value(row, param_budget=BUDGET)
    assert got.item() == pytest.approx(
        max(-1.0, accuracy / 100 - price * params / BUDGET), abs=1e-12
    )
    assert parameter_cost(row, param_budget=BUDGET).item() == pytest.approx(price * params / BUDGET)


def test_a_horizon_without_a_measured_network_pays_no_value():
    assert (
        paid("sparse", horizon=True, committed_acc=math.nan, committed_valid=False, fossil_params=9)
        == 0.0
    )


# rollback


@every_rule
@given(rows=steps(), penalty=st.sampled_from([0.0, 1.0, 2.5]), data=st.data())
def test_difference_06_a_rollback_pays_the_penalty_and_the_potential_back_and_nothing_else(
    name, rows, penalty, data
):
    at = data.draw(st.integers(0, len(rows) - 1))
    own = rule(name, governor_penalty=penalty, op_cost=0.01)
    before, _, ledger = (
        play_rule(own, rows[:at]) if at else (torch.zeros(0, 1), None, own.init(1, 3))
    )
    rewards, parts, after = play_rule(
        own, [*rows[:at], *swap(rows[at : at + 1], 0, rolled_back=True)]
    )
    assert rewards[at].item() == pytest.approx(-penalty - ledger["phi"].item(), abs=1e-12)
    assert torch.equal(rewards[:at], before.to(rewards.dtype))
    assert after["phi"] == 0
    assert all(parts[part][at] == 0 for part in ("value", "rent", "op_cost"))


@pytest.mark.parametrize("name", ["sparse", "delta", "loss"])
@given(rows=steps(), data=st.data())
def test_difference_06_being_rolled_back_is_worse_than_any_finish_above_zero(name, rows, data):
    at = data.draw(st.integers(0, len(rows) - 1))
    rows = swap(rows, len(rows) - 1, committed_acc=50.0, committed_valid=True, fossil_params=0)
    finished, _, _ = play_rule(rule(name), rows)
    stopped, _, _ = play_rule(rule(name), swap(rows, at, rolled_back=True)[: at + 1])
    assert (discounted_return(stopped, GAMMA) < discounted_return(finished, GAMMA) - 1e-6).all()


# anytime


@given(
    rows=steps(),
    accuracies=st.lists(st.integers(0, 800).map(lambda n: n / 8), min_size=7, max_size=7),
)
def test_the_rewards_of_an_episode_without_fees_sum_to_its_anytime_value(rows, accuracies):
    rows = [swap(rows, t, next_val_acc=accuracies[t])[t] for t in range(len(rows))]
    own = build_rule(
        RewardSpec(rule="anytime"), param_budget=BUDGET, episode_length=len(rows), gamma=GAMMA
    )
    rewards, _, _ = play_rule(own, rows)
    worth = torch.stack([epoch_value(row, param_budget=BUDGET) for row in rows])
    assert rewards.sum().item() == pytest.approx(worth.mean().item(), abs=1e-12)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"next_val_acc": 60.0}, 0.6),
        (
            {"next_val_acc": 60.0, "live_params": 4000, "fossil_params": 1000, "param_price": 0.1},
            0.6 - 0.1 * 4000 / BUDGET,
        ),
        ({"next_val_acc": 0.0, "live_params": 10 * BUDGET, "param_price": 2.0}, -20.0),
        ({"next_val_acc": 60.0, "op": 1, "op_executed": True}, 0.6 - 0.01 * STEPS),
        ({"next_val_acc": 60.0, "op": 1, "op_executed": False}, 0.6),
        (
            {
                "next_val_acc": 60.0,
                "live_params": 4000,
                "op": 1,
                "op_executed": True,
                "rolled_back": True,
            },
            -1.0 * STEPS,
        ),
    ],
)
def test_a_step_pays_its_share_of_what_the_network_in_use_is_worth(fields, want):
    assert paid("anytime", spec={"op_cost": 0.01}, **fields) * STEPS == pytest.approx(
        want, abs=1e-9
    )


def test_keeping_a_seed_that_is_not_needed_costs_and_what_helps_pays_before_it_is_delivered():
    own = build_rule(RewardSpec(rule="anytime"), **asdict(TERMS))
    earned = dict(
        zip(ARCHETYPES, archetype_returns(own, list(ARCHETYPES.values())).tolist(), strict=True)
    )
    assert earned["good, never fossilized"] == pytest.approx(earned["good"])
    ranks = (
        "three good",
        "good",
        "wait only",
        "farm loop",
        "useless, held",
        "harmful, held",
        "good, rolled back",
    )
    assert all(earned[better] > earned[worse] + 5e-4 for better, worse in pairwise(ranks))


# what holds for every rule


@every_rule
@given(rows=steps(rollbacks=True), scale=st.sampled_from([0.5, 2.0]))
def test_components_sum_to_the_reward_and_stay_in_bounds(name, rows, scale):
    own = rule(name, potential_scale=scale, op_cost=0.01)
    rewards, parts, _ = play_rule(own, rows)
    assert tuple(parts) == own.components == CORE_COMPONENTS
    torch.testing.assert_close(sum(parts.values()), rewards, rtol=0, atol=1e-12)
    dearest = torch.stack([row.param_price * row.live_params / (BUDGET * STEPS) for row in rows])
    assert (parts["value"].abs() <= 1).all()
    assert (parts["shaping"].abs() <= (1 + GAMMA) * scale).all()
    assert ((-dearest * (1 + 1e-12) <= parts["rent"]) & (parts["rent"] <= 0)).all()
    assert ((parts["op_cost"] >= -0.01) & (parts["op_cost"] <= 0)).all()
    kept = ~torch.stack([row.rolled_back for row in rows])
    assert torch.equal(parts["governor"], -1.0 * ~kept)
    assert (rewards.abs() <= 1 + (1 + GAMMA) * scale + 0.01 + parts["rent"].abs())[kept].all()


@every_rule
@given(rows=steps(rollbacks=True), wrong=st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_not_valid_is_not_read(name, rows, wrong):
    garbage = []
    for row in rows:
        spoiled = {
            value: torch.where(getattr(row, flag), getattr(row, value), wrong)
            for value, flag in OPTIONAL.items()
        }
        garbage.append(row.replace(**spoiled))
    rewards, _, _ = play_rule(rule(name), garbage)
    assert rewards.isfinite().all()
    assert torch.equal(rewards, play_rule(rule(name), rows)[0])


@every_rule
@given(one=steps(rollbacks=True, max_steps=3), other=steps(rollbacks=True, max_steps=3))
def test_other_envs_never_matter(name, one, other):
    length = min(len(one), len(other))
    pairs = [torch.cat((a, b)) for a, b in zip(one[:length], other[:length], strict=True)]
    together, _, _ = play_rule(rule(name, op_cost=0.01), pairs)
    alone, _, _ = play_rule(rule(name, op_cost=0.01), one[:length])
    assert torch.equal(together[:, :1], alone)


@every_rule
def test_a_rule_does_not_write_to_its_arguments_and_keeps_shape_and_dtype(name):
    own, row = rule(name), make_reward_inputs(2, dtype=torch.float32, clean_improvement=5.0)
    ledger = own.init(2, 3)
    copies = row.clone(), ledger.clone()
    reward, parts, after = own(row, ledger)
    assert_trees_equal(row, copies[0])
    assert_trees_equal(ledger, copies[1])
    assert after.keys() == ledger.keys()
    for value in (reward, *parts.values(), after["phi"]):
        assert (value.shape, value.dtype) == ((2,), torch.float32)
