"""Advantages, their normalisation, and the unit of returns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchrl.objectives.value.functional import generalized_advantage_estimate

from morphogen.ppo.advantage import gae, standardise, subtract_group_mean
from morphogen.ppo.ppo_state import (
    MIN_SCALE,
    init_scale,
    rescale_rewards,
    return_scale,
    running_mean,
)

GAMMA, LAMBDA = 0.9, 0.8
grid = st.integers(-64, 64).map(lambda n: n / 8)


@st.composite
def rollouts(draw, max_steps: int = 6, max_envs: int = 3):
    """Reward, value, next value and both flags, all [T, E] in float64."""
    steps, envs = draw(st.integers(1, max_steps)), draw(st.integers(1, max_envs))

    def table(element, kind):
        row = st.lists(element, min_size=envs, max_size=envs)
        return torch.tensor(draw(st.lists(row, min_size=steps, max_size=steps)), dtype=kind)

    reals = [table(grid, torch.float64) for _ in range(3)]
    return *reals, *(table(st.booleans(), torch.bool) for _ in range(2))


def by_hand(reward, value, following, terminated, truncated, gamma, lam):
    """One env, one row at a time: the discounted sum of later errors up to the end of the
    segment.
    """
    steps = len(reward)

    def error(t):
        if terminated[t]:
            behind = 0.0
        elif truncated[t] or t == steps - 1:
            behind = following[t]
        else:
            behind = value[t + 1]
        return reward[t] + gamma * behind - value[t]

    out = []
    for start in range(steps):
        total, weight = 0.0, 1.0
        for t in range(start, steps):
            total += weight * error(t)
            if terminated[t] or truncated[t]:
                break
            weight *= gamma * lam
        out.append(total)
    return out


def advantages(rollout, gamma=GAMMA, lam=LAMBDA):
    return gae(*rollout, gamma=gamma, gae_lambda=lam)[0]


@given(rollout=rollouts(), lam=st.sampled_from([0.0, 0.8, 1.0]))
def test_an_advantage_is_the_discounted_sum_of_later_errors(rollout, lam):
    got, returns = gae(*rollout, gamma=GAMMA, gae_lambda=lam)
    for e in range(got.shape[1]):
        want = by_hand(*(x[:, e].tolist() for x in rollout), GAMMA, lam)
        assert got[:, e].tolist() == pytest.approx(want, abs=1e-9)
    torch.testing.assert_close(returns, got + rollout[1])


@given(rollout=rollouts())
def test_it_equals_the_estimate_of_torchrl(rollout):
    reward, value, following, terminated, truncated = rollout
    behind = torch.where(
        truncated | (torch.arange(len(value)) == len(value) - 1)[:, None], following, 0.0
    )
    behind = torch.where(truncated, following, torch.cat((value[1:], behind[-1:])))
    # its gamma is rounded to the default dtype, so the default has to be float64 here
    torch.set_default_dtype(torch.float64)
    try:
        wide = [
            x.T.unsqueeze(-1) for x in (value, behind, reward, terminated | truncated, terminated)
        ]
        want, _ = generalized_advantage_estimate(GAMMA, LAMBDA, *wide)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(advantages(rollout), want.squeeze(-1).T, rtol=0, atol=1e-9)


def test_difference_10_the_horizon_is_worth_nothing_behind_it():
    reward, value = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [0.25]])
    following, no = torch.full((2, 1), 100.0), torch.zeros(2, 1, dtype=torch.bool)
    end = torch.tensor([[False], [True]])
    horizon = advantages((reward, value, following, end, no))
    assert horizon[1].item() == pytest.approx(0.75)
    # a terminal wins over a cut
    assert advantages((reward, value, following, end, end)).equal(horizon)
    assert advantages((reward, value, following, no, end))[1].item() == pytest.approx(
        0.75 + GAMMA * 100.0
    )


@given(rollout=rollouts(), seed=st.integers(0, 9))
def test_normalised_advantages_have_mean_zero_and_at_most_unit_spread_over_free_rows(rollout, seed):
    x = advantages(rollout)
    free = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    out = standardise(x, free)
    assert out.isfinite().all()
    if free.any():
        assert out[free].mean().abs() < 1e-6
        spread = x[free].std(correction=0)
        torch.testing.assert_close(out[free].std(correction=0), spread / max(spread.item(), 0.1))
    else:
        torch.testing.assert_close(out, x / 0.1)
    shifted = standardise(torch.where(free, x, x + 100.0), free)
    assert torch.equal(shifted[free], out[free])


def others_mean(column, known, group, env):
    """Mean of the known others in the group of an env, 0 without any."""
    first = env // group * group
    others = [
        x for i, x in enumerate(column[first : first + group], first) if i != env and known[i]
    ]
    return sum(others) / len(others) if others else 0.0


@given(st.data(), st.integers(1, 9), st.integers(1, 5))
def test_the_mean_of_the_others_is_taken_off_in_every_group(data, envs, group):
    column = data.draw(st.lists(grid, min_size=envs, max_size=envs))
    known = data.draw(st.lists(st.booleans(), min_size=envs, max_size=envs))
    x = torch.tensor([column, column[::-1]], dtype=torch.float64)
    flags = torch.tensor([known, known[::-1]])
    found = subtract_group_mean(torch.where(flags, x, torch.nan), flags, group)
    for env in range(envs):
        if known[env]:
            assert found[0, env].item() == pytest.approx(
                column[env] - others_mean(column, known, group, env)
            )
    assert found.isnan().equal(~flags)


# the unit of returns


def counted(reward):
    return torch.ones(reward.shape[1], dtype=torch.bool)


def play_rounds(rounds, gamma=GAMMA):
    state = init_scale()
    for reward, terminated in rounds:
        state, scaled, factor = rescale_rewards(state, reward, terminated, gamma, counted(reward))
    return state, scaled, factor


@given(rounds=st.lists(rollouts(), min_size=1, max_size=3))
def test_the_scale_is_the_decayed_deviation_of_the_returns(rounds):
    rounds = [(reward, terminated) for reward, _, _, terminated, _ in rounds]
    mean = second = 0.0
    for reward, terminated in rounds:
        seen = []
        for e in range(reward.shape[1]):
            later = 0.0
            for t in reversed(range(len(reward))):
                later = reward[t, e].item() + (0.0 if terminated[t, e] else GAMMA * later)
                seen.append(later)
        mean = 0.9 * mean + 0.1 * sum(seen) / len(seen)
        second = 0.9 * second + 0.1 * sum(g * g for g in seen) / len(seen)
    weight = 1 - 0.9 ** len(rounds)
    want = max(0.05, max(0.0, second / weight - (mean / weight) ** 2) ** 0.5)
    state, scaled, _ = play_rounds(rounds)
    assert return_scale(state).item() == pytest.approx(want, rel=1e-9, abs=1e-9)
    assert running_mean(state).item() == pytest.approx(mean / weight, abs=1e-9)
    torch.testing.assert_close(scaled, rounds[-1][0] / want)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_rewards_without_spread_keep_a_finite_scale(level):
    reward, end = torch.full((1, 4), level), torch.ones(1, 4, dtype=torch.bool)
    state, scaled, _ = play_rounds([(reward, end)])
    assert return_scale(state) == pytest.approx(MIN_SCALE)
    assert scaled.isfinite().all()


def test_the_value_factor_turns_old_units_into_new_ones():
    end = torch.ones(1, 2, dtype=torch.bool)
    state, _, _ = rescale_rewards(
        init_scale(), torch.tensor([[-1.0, 1.0]]), end, GAMMA, torch.ones(2, dtype=torch.bool)
    )
    old = return_scale(state)
    state, _, factor = rescale_rewards(
        state, torch.tensor([[-4.0, 4.0]]), end, GAMMA, torch.ones(2, dtype=torch.bool)
    )
    torch.testing.assert_close(factor.double(), old / return_scale(state), rtol=1e-6, atol=0)


@given(rollout=rollouts(max_envs=2), wrong=st.sampled_from([float("nan"), float("inf"), 1e30]))
def test_an_env_that_does_not_count_teaches_nothing_whatever_it_holds(rollout, wrong):
    reward, _, _, terminated, _ = rollout
    extra = torch.full_like(reward[:, :1], wrong)
    end = torch.zeros_like(terminated[:, :1])
    executed = torch.ones(reward.shape[1] + 1, dtype=torch.bool)
    executed[-1] = False
    wide, scaled, _ = rescale_rewards(
        init_scale(),
        torch.cat((reward, extra), 1),
        torch.cat((terminated, end), 1),
        GAMMA,
        executed,
    )
    alone, _, _ = play_rounds([(reward, terminated)])
    torch.testing.assert_close(return_scale(wide), return_scale(alone))
    assert scaled.isfinite().all()
    none, _, factor = rescale_rewards(
        alone, reward, terminated, GAMMA, torch.zeros(reward.shape[1], dtype=torch.bool)
    )
    assert torch.equal(none.rounds, alone.rounds)
    assert torch.equal(none.second, alone.second)
    assert factor == 1


def test_a_fixed_scale_is_the_identity():
    reward, end = torch.tensor([[3.0, -2.0]]), torch.ones(1, 2, dtype=torch.bool)
    state, scaled, factor = rescale_rewards(
        init_scale(), reward, end, GAMMA, torch.ones(2, dtype=torch.bool), kind="fixed"
    )
    assert torch.equal(scaled, reward)
    assert (state.rounds, factor, return_scale(state), running_mean(state)) == (0, 1, 1, 0)
