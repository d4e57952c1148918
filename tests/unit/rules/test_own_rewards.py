"""Own reward rules: the sums that are written out by hand, shaping that telescopes, a price paid
once.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import slow_rules

from morphogen.config.groups import RewardSpec
from morphogen.rules.rewards.example_inputs import INPUT_KINDS, make_reward_inputs
from morphogen.rules.rewards.own import epoch_value, loss_progress, network_value, parameter_cost
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.testing.strategies import reward_episodes
from morphogen.vocab.action import Op

GAMMA, BUDGET, STEPS = 0.995, 48_832, 150
OWN = ("sparse", "delta", "value", "rent", "loss", "anytime")
FIELDS = [field for field in INPUT_KINDS if field not in ("epoch", "host_params")]
# they pay parameters once, at the end
twins_of_sparse = pytest.mark.parametrize("name", ["delta", "loss"])


def rule(name: str, *, length: int = STEPS, **spec):
    return build_rule(
        RewardSpec(rule=name, **spec), param_budget=BUDGET, episode_length=length, gamma=GAMMA
    )


def paid(name: str, *, phi: float = 0.0, **fields) -> float:
    """Reward of one step of one env that starts from a potential."""
    own = rule(name)
    ledger = own.init(1, 3).apply(lambda leaf: leaf.double() + phi)
    return own(make_reward_inputs(**fields), ledger)[0].item()


def episodes(*, last: bool = True):
    """Steps of one env that is never rolled back."""
    return reward_episodes(max_envs=1, slots=1, last=last, rollbacks=False)


def swap(rows, where: int, **fields):
    """The same steps with some fields of one of them changed."""
    new = {
        name: torch.full_like(getattr(rows[where], name), value) for name, value in fields.items()
    }
    return [*rows[:where], rows[where].replace(**new), *rows[where + 1 :]]


@pytest.mark.parametrize("name", OWN)
@given(
    steps=reward_episodes(), scale=st.sampled_from([1.0, 0.5]), cost=st.sampled_from([0.0, 0.01])
)
def test_own_rules_pay_what_is_written_out(name, steps, scale, cost):
    knobs = {"potential_scale": scale, "op_cost": cost, "governor_penalty": 2.5}
    rewards, _, _ = play_rule(rule(name, **knobs), steps)
    for e in range(rewards.shape[1]):
        env = [{field: getattr(step, field)[e].item() for field in FIELDS} for step in steps]
        wanted = slow_rules.core_rewards(
            name, env, gamma=GAMMA, budget=BUDGET, length=STEPS, **knobs
        )
        assert rewards[:, e].tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "phi", "fields", "want"),
    [
        ("delta", 0.0, {"clean_improvement": 3.0}, 0.02985),
        ("delta", 0.08, {"clean_improvement": math.nan, "clean_valid": False}, -0.0004),
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
        ("delta", 0.05, {"rolled_back": True}, -1.05),
        ("value", 0.5, {"committed_acc": 66.0, "fossil_params": 2336}, 0.995 * 0.65521625 - 0.5),
        ("rent", 0.0, {"live_params": 2336}, -0.0000318917),
        ("loss", 0.4, {"val_loss": 1.3}, 0.0975),
        ("anytime", 0.0, {"next_val_acc": 60.0, "live_params": 4000}, 0.6 / 150 - 0.0000546089),
    ],
)
def test_worked_numbers(name, phi, fields, want):
    assert paid(name, phi=phi, **fields) == pytest.approx(want, abs=5e-9)


# shaping


@twins_of_sparse
@given(rows=reward_episodes(max_envs=1, slots=1))
def test_difference_08_a_shaped_rule_has_the_return_of_sparse_and_with_scale_zero_its_rewards(
    name, rows
):
    first_end = next(t for t, row in enumerate(rows) if row.horizon | row.rolled_back)
    rows = rows[: first_end + 1]
    sparse, _, _ = play_rule(rule("sparse"), rows)
    shaped, _, _ = play_rule(rule(name), rows)
    flat, _, _ = play_rule(rule(name, potential_scale=0.0), rows)
    torch.testing.assert_close(
        slow_rules.discounted_return(shaped, GAMMA),
        slow_rules.discounted_return(sparse, GAMMA),
        rtol=0,
        atol=1e-9,
    )
    assert torch.equal(flat, sparse)


NOTHING_GAINED = {
    "delta": {"clean_improvement": 0.0, "clean_valid": True},
    "loss": {"val_loss": 2.3, "loss_valid": True},
}


@twins_of_sparse
@given(rows=episodes(last=False), cost=st.sampled_from([0.0, 0.01]))
def test_difference_08_a_loop_back_to_potential_zero_earns_nothing_but_the_fees_of_its_ops(
    name, rows, cost
):
    rows = swap(rows, len(rows) - 1, **NOTHING_GAINED[name])
    earned, _, _ = play_rule(rule(name, op_cost=cost), rows)
    ops = torch.stack([(row.op != Op.WAIT) & row.op_executed for row in rows])
    fees = slow_rules.discounted_return(cost * ops.double(), GAMMA)
    assert slow_rules.discounted_return(earned, GAMMA).item() == pytest.approx(
        -fees.item(), abs=1e-9
    )


# value


@given(
    live=st.integers(0, 10**6), price=st.sampled_from([0.0, 0.1, 2.0]), length=st.integers(1, 200)
)
def test_rent_over_a_whole_episode_is_the_price_that_sparse_charges_once(live, price, length):
    own = rule("rent", length=length)
    row = make_reward_inputs(live_params=live, param_price=price, fossil_params=live)
    _, parts, _ = own(row, own.init(1, 3))
    assert (parts["rent"] * length).item() == pytest.approx(-price * live / BUDGET, rel=1e-12)


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


@pytest.mark.parametrize("name", ["sparse", "delta", "loss"])
@given(rows=episodes(), data=st.data())
def test_difference_06_being_rolled_back_is_worse_than_any_finish_above_zero(name, rows, data):
    at = data.draw(st.integers(0, len(rows) - 1))
    rows = swap(rows, len(rows) - 1, committed_acc=50.0, committed_valid=True, fossil_params=0)
    finished, _, _ = play_rule(rule(name), rows)
    stopped, _, _ = play_rule(rule(name), swap(rows, at, rolled_back=True)[: at + 1])
    assert (
        slow_rules.discounted_return(stopped, GAMMA)
        < slow_rules.discounted_return(finished, GAMMA) - 1e-6
    ).all()


# anytime


@given(rows=episodes())
def test_the_rewards_of_an_episode_without_fees_sum_to_its_anytime_value(rows):
    rewards, _, _ = play_rule(rule("anytime", length=len(rows)), rows)
    worth = torch.stack([epoch_value(row, param_budget=BUDGET) for row in rows])
    assert rewards.sum().item() == pytest.approx(worth.mean().item(), abs=1e-12)
