"""The PPO objective: at the clip, and head by head."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import masks, source
from tensordict import TensorDict

from morphogen.config.policy_spec import HeadFactors, PpoSpec
from morphogen.policy.policy import Evaluation
from morphogen.ppo.coefficients import Coefficients
from morphogen.ppo.loss import clipped_surrogate, log_ratios
from morphogen.ppo.minibatch_loss import kl_estimate, objective, ratio_metrics
from morphogen.ppo.row_weights import row_weights

WEIGHTS = Coefficients(lr=1e-3, entropy=0.05, value=0.5)


def made_up(steps=5, envs=4, seed=0, **columns) -> tuple[Evaluation, TensorDict, torch.Tensor]:
    """An evaluation and rows that fit it; every head relevant somewhere."""
    draw = source(seed)
    relevant = torch.rand(steps, envs, 8, generator=draw) < 0.5
    relevant[..., 0] = True
    shape = (steps, envs)
    new = -torch.rand(*shape, 8, generator=draw) * relevant
    old = (new + 0.3 * torch.randn(*shape, 8, generator=draw)) * relevant
    rows = {
        "log_prob": old,
        "advantage": torch.randn(shape, generator=draw),
        "target": torch.randn(shape, generator=draw),
        "free": (torch.rand(shape, generator=draw) < 0.8).float(),
        "known": torch.ones(shape),
        "contribution": torch.zeros(*shape, 3),
        "contribution_valid": torch.zeros(*shape, 3),
    }
    found = Evaluation(
        log_prob=new,
        value=torch.randn(shape, generator=draw),
        entropy=torch.rand(shape, generator=draw),
        diversity=0.5 * torch.rand(*shape, 8, generator=draw),
        reach=torch.ones(*shape, 8),
        contribution=None,
    )
    return found, TensorDict({**rows, **columns}, batch_size=shape), relevant


def policy_gradient(found, rows, relevant, **spec):
    """Gradient of the policy term with respect to the new log-probs."""
    weights = Coefficients(lr=0.0, entropy=0.0, value=0.0)

    def loss(log_prob):
        return objective(
            found._replace(log_prob=log_prob),
            rows,
            row_weights(rows, relevant),
            spec=PpoSpec(**spec),
            weights=weights,
        )[0]

    return torch.func.grad(loss)(found.log_prob)


@given(st.integers(0, 500), st.sampled_from(("head", "joint")))
def test_a_ratio_beyond_the_clip_in_the_good_direction_gets_no_gradient(seed, ratio):
    found, rows, relevant = made_up(seed=seed)
    grad = policy_gradient(found, rows, relevant, ratio=ratio)
    heads, joint = log_ratios(found.log_prob, rows["log_prob"])
    r = heads.exp() if ratio == "head" else joint.exp().unsqueeze(-1).expand_as(heads)
    up = (rows["advantage"] > 0).unsqueeze(-1)
    clipped = torch.where(up, r > 1.2 + 1e-6, r < 0.8 - 1e-6)
    assert (grad[clipped] == 0).all()
    inside = (r > 0.81) & (r < 1.19) & relevant & (rows["free"] > 0).unsqueeze(-1)
    assert (grad[inside] != 0).all()


@given(st.integers(0, 500))
def test_with_one_relevant_head_both_ratios_give_the_same_loss(seed):
    found, rows, relevant = made_up(seed=seed)
    relevant[..., 1:] = False
    rows["log_prob"] = rows["log_prob"] * relevant
    found = found._replace(log_prob=found.log_prob * relevant)
    a, b = (policy_gradient(found, rows, relevant, ratio=ratio) for ratio in ("head", "joint"))
    assert torch.allclose(a[..., 0], b[..., 0], atol=1e-7)


def test_rows_without_a_choice_carry_no_policy_loss_and_full_value_loss():
    found, rows, relevant = made_up(free=torch.zeros(5, 4))
    assert (policy_gradient(found, rows, relevant) == 0).all()
    _, measured = objective(
        found, rows, row_weights(rows, relevant), spec=PpoSpec(), weights=WEIGHTS
    )
    by_hand = 0.5 * (found.value - rows["target"]).square().mean()
    assert measured["value_loss"][0].item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert not measured["kl"][1]
    assert not measured["clip_share"][1]
    assert not measured["entropy"][1]


@given(st.integers(0, 500))
def test_kl_is_never_negative_zero_only_at_ratio_one_and_deaf_to_forced_rows(seed):
    x = torch.randn(50, generator=source(seed))
    assert (kl_estimate(x) >= 0).all()
    assert kl_estimate(torch.zeros(1)).item() == 0
    found, rows, relevant = made_up(seed=seed)
    over = row_weights(rows, relevant)
    moved = rows.clone()
    moved["log_prob"] = torch.where((rows["free"] == 0)[..., None], -5.0, rows["log_prob"])
    a, b = (
        ratio_metrics(found, part, over, clip=0.2, valid=torch.tensor(True))
        for part in (rows, moved)
    )
    assert b.pop("behaviour_gap")[0] > a.pop("behaviour_gap")[0]  # of all known rows
    assert all(torch.equal(a[name][0], b[name][0]) for name in a)


def test_log_ratios_are_clamped_so_that_ratios_stay_finite():
    heads, joint = log_ratios(torch.zeros(1, 8), torch.full((1, 8), -1e4))
    assert heads.max() == joint.max() == 20.0
    assert clipped_surrogate(joint.exp(), torch.ones(1), 0.2).item() == pytest.approx(1.2)


def test_the_contribution_loss_is_half_the_squared_error_over_measured_slots():
    valid = torch.zeros(5, 4, 3)
    valid[0, 0, 1] = 1.0
    found, rows, relevant = made_up(
        contribution=torch.full((5, 4, 3), 2.0) * valid, contribution_valid=valid
    )
    found = found._replace(contribution=torch.zeros(5, 4, 3))
    loss = lambda part: objective(
        found, part, row_weights(part, relevant), spec=PpoSpec(), weights=WEIGHTS
    )[1]
    assert loss(rows)["contribution_loss"][0].item() == pytest.approx(2.0)
    rows["contribution_valid"] = torch.zeros_like(valid)
    value, flag = loss(rows)["contribution_loss"]
    assert value.item() == 0.0
    assert not flag


def test_the_loss_is_the_weighted_sum_of_its_parts():
    valid = torch.ones(5, 4, 3)
    found, rows, relevant = made_up(contribution=2.0 * valid, contribution_valid=valid)
    found = found._replace(contribution=torch.zeros(5, 4, 3))
    factors = torch.arange(8.0)
    spec = PpoSpec(contribution_coef=0.3, entropy_coef_head=HeadFactors(*factors.tolist()))
    loss, reported = objective(
        found,
        rows,
        row_weights(rows, relevant),
        spec=spec,
        weights=Coefficients(0.0, 0.07, 0.4),
    )
    free = rows["free"]
    bonus = ((found.diversity * factors).sum(-1) * free).sum() / free.sum()
    by_hand = (
        reported["policy_loss"][0]
        + 0.4 * reported["value_loss"][0]
        - 0.07 * bonus
        + 0.3 * reported["contribution_loss"][0]
    )
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_imitation_pushes_no_recorded_choice_above_its_limit():
    found, rows, relevant = made_up()
    scores = found.log_prob.clone().requires_grad_()
    weights = WEIGHTS._replace(imitation=1.0)
    spec = PpoSpec(imitation_limit=0.7)
    loss, _ = objective(
        found._replace(log_prob=scores),
        rows,
        row_weights(rows, relevant),
        spec=spec,
        weights=weights,
    )
    (slope,) = torch.autograd.grad(loss, scores)
    counts = relevant & rows["free"].bool().unsqueeze(-1)
    below = counts & (scores.exp() < 0.7)
    assert 0 < below.sum() < counts.sum()
    assert torch.equal(slope < 0, below)
    assert not slope[~below].any()


def test_a_head_that_never_had_a_choice_has_no_entropy():
    found, rows, relevant = made_up()
    reach = found.reach.clone()
    reach[..., 2] = 0.0
    _, measured = objective(
        found._replace(reach=reach),
        rows,
        row_weights(rows, relevant),
        spec=PpoSpec(),
        weights=WEIGHTS,
    )
    assert (measured["reach_head"][0] > 0).tolist() == [
        True,
        True,
        False,
        True,
        True,
        True,
        True,
        True,
    ]
    assert masks(1).op.shape == (1, 6)
