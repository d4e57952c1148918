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
from morphogen.rules.rewards.example_inputs import INPUT_FIELDS, make_reward_inputs
from morphogen.rules.rewards.own import epoch_value, loss_progress
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.testing.strategies import reward_episodes

GAMMA, BUDGET, STEPS = 0.995, 48_832, 150
OWN = ("sparse", "delta", "value", "rent", "loss", "anytime")
FIELDS = [field for field in INPUT_FIELDS if field not in ("epoch", "host_params")]
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


@pytest.mark.slow
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


# value


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


# anytime


@given(rows=reward_episodes(max_envs=1, slots=1))
def test_the_rewards_of_an_episode_without_fees_sum_to_its_anytime_value(rows):
    rows = [row.replace(rolled_back=torch.zeros_like(row.rolled_back)) for row in rows]
    rewards, _, _ = play_rule(rule("anytime", length=len(rows)), rows)
    worth = torch.stack([epoch_value(row, param_budget=BUDGET) for row in rows])
    assert rewards.sum().item() == pytest.approx(worth.mean().item(), abs=1e-12)
