"""The PPO update: what a round changes, what it must not change, and that it learns."""

import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launch_count import CountLaunches
from support.made_up_rollouts import KEY, masks, observation, play, small, source, turn
from support.profiles import one_in
from tensordict import TensorDict

from morphogen.config.policy_spec import PpoSpec
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.ppo import metrics
from morphogen.ppo.advantage import gae
from morphogen.ppo.coefficients import Coefficients, coefficients_at, linear_schedule
from morphogen.ppo.gradient_stats import gradient_shares
from morphogen.ppo.minibatch import (
    UpdateState,
    _adam_step,
    _where_applied,
    minibatch_step,
    start_state,
)
from morphogen.ppo.minibatch_loss import minibatch_objective
from morphogen.ppo.moments import update_observation_stats
from morphogen.ppo.ppo_state import init_ppo, init_scale, rescale_rewards, return_scale
from morphogen.ppo.prepare import prepare_rows, rescale_critic
from morphogen.ppo.update import minibatch_indices, update_ppo
from morphogen.rules.health import layer_health

POLICY = small()
SPEC = PpoSpec(target_kl=None)
WEIGHTS = Coefficients(lr=1e-2, entropy=0.05, value=0.5)


def whole(epochs: int = 1, envs: int = 4) -> torch.Tensor:
    """One minibatch of all envs per PPO epoch."""
    return torch.arange(envs).expand(epochs, 1, envs)


def learn(rollout, learner=None, *, assignment=None, spec=SPEC, policy=POLICY, weights=WEIGHTS):
    learner = init_ppo(policy, KEY) if learner is None else learner
    return update_ppo(
        learner,
        rollout,
        whole() if assignment is None else assignment,
        weights,
        policy=policy,
        round=turn(spec),
    )


def rollout_of(learner, **more):
    return play(POLICY, learner.params, **more)


def number(found: TensorDict, name: str) -> Any:
    return found[name].item() if found[f"{name}_valid"] else None


def same(a: TensorDict, b: TensorDict) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a.keys(True, True))


LEARNER = init_ppo(POLICY, KEY)
ROLLOUT = rollout_of(LEARNER)


def test_in_the_first_step_of_a_round_nothing_has_moved():
    _, found = learn(ROLLOUT)
    assert number(found, "behaviour_gap") < 1e-5
    assert number(found, "kl") == pytest.approx(0.0, abs=1e-9)
    assert number(found, "ratio_max") == pytest.approx(1.0, abs=1e-5)
    assert number(found, "ratio_min") == pytest.approx(1.0, abs=1e-5)
    assert number(found, "clip_share") == 0.0


@pytest.mark.parametrize("what", ["floor", "masks", "statistics"])
def test_another_view_than_that_of_the_rollout_shows_in_the_behaviour_gap(what):
    policy, learner, rollout = POLICY, LEARNER, ROLLOUT.clone()
    if what == "floor":
        policy = small(floor=(0.05,) * 8)
    elif what == "masks":
        rollout["masks"] = rollout["masks"].replace(
            blueprint=torch.ones(6, 4, 13, dtype=torch.bool)
        )
    else:
        stats = update_observation_stats(learner.params["observation"], observation(20, 4, seed=9))
        learner = learner.replace(params=learner.params.replace(observation=stats))
    _, found = learn(rollout, learner, policy=policy)
    assert number(found, "behaviour_gap") > 1e-4


def test_difference_12_several_epochs_move_the_ratio_away_from_the_stored_behaviour():
    after, found = learn(ROLLOUT, assignment=whole(4))
    assert number(found, "ratio_max") > 1.01
    assert number(found, "kl") > 1e-5
    other = ROLLOUT.clone()
    other["log_prob"] = other["log_prob"] * 0.9
    assert not same(learn(other, assignment=whole(4))[0].params["net"], after.params["net"])


@settings(max_examples=one_in(4))
@given(
    st.sampled_from(("reward", "value", "log_prob")),
    st.integers(0, 5),
    st.floats(-1e3, 1e3, width=32),
)
def test_an_env_with_a_number_that_is_not_finite_counts_for_nothing(field, t, other):
    bad = ROLLOUT.clone()
    bad[field][t, 1] = math.nan
    worse = bad.clone()
    for name in ("reward", "value", "log_prob"):
        worse[name][0, 1] = other
    worse[field][t, 1] = math.inf
    (a, found), (b, _) = learn(bad), learn(worse)
    assert same(a.params, b.params)
    assert all(x.isfinite().all() for x in a.params.values(True, True))
    assert number(found, "nonfinite.rollout") == 1
    assert not same(a.params["net"], LEARNER.params["net"])


def carry_of(learner) -> UpdateState:
    return start_state(learner.params["net"], learner.optimiser)


def rows_of(rollout, spec=SPEC):
    return prepare_rows(LEARNER, rollout, policy=POLICY, round=turn(spec))[1]


def step(state, rows, weights=WEIGHTS):
    hidden = POLICY.initial_hidden(4)
    return minibatch_step(state, rows, hidden, weights, policy=POLICY, spec=SPEC)


def test_a_step_that_is_not_finite_changes_nothing_and_is_not_counted():
    rows = rows_of(ROLLOUT)
    bad = rows.clone()
    bad["advantage"][0, 0] = math.nan
    before, _ = step(carry_of(LEARNER), rows)
    after, found = step(before, bad)
    for name in ("net", "m", "v"):
        old, new = getattr(before, name), getattr(after, name)
        assert all(torch.equal(old[key], new[key]) for key in old)
    assert after.step == before.step == 1
    assert found["steps_skipped"][0] == 1
    assert found["nonfinite.loss"][0] == 1
    again, _ = step(after, rows)
    assert again.step == 2
    assert not torch.equal(again.net["op.out.weight"], before.net["op.out.weight"])


def test_a_gradient_that_overflows_under_a_finite_loss_changes_nothing():
    steep = carry_of(LEARNER)
    steep = steep._replace(
        net={**steep.net, "value.out.weight": steep.net["value.out.weight"] * 1e13}
    )
    after, found = step(steep, rows_of(ROLLOUT))
    assert (
        found["nonfinite.loss"][0],
        found["nonfinite.gradient"][0],
        found["steps_skipped"][0],
    ) == (0, 1, 1)
    assert all(torch.equal(steep.net[name], leaf) for name, leaf in after.net.items())
    assert (after.step, found["steps_done"][0]) == (0, 0)


@pytest.mark.parametrize("field", ["reward", "value", "log_prob"])
def test_an_absurd_number_of_one_env_does_not_set_the_units_of_all(field):
    bad, none = ROLLOUT.clone(), ROLLOUT.clone()
    bad[field][2, 1], none[field][2, 1] = 1e30, math.nan
    (a, found), (b, _) = learn(bad), learn(none)
    assert same(a.params, b.params)
    assert number(found, "nonfinite.rollout") == 1
    assert number(found, "return_scale") < 10


@pytest.mark.parametrize("value", [math.nan, 1e30])
def test_an_observation_that_is_no_number_costs_its_env_and_no_other(value):
    """The behaviour of the env was no number either: so it is left out, and reaches neither loss
    nor statistics.
    """
    bad, without = ROLLOUT.clone(), ROLLOUT.clone()
    for name in ("env", "instance", "slots"):
        getattr(bad["observation"], name)[3, 1] = value
    bad["value"][3, 1] = without["value"][3, 1] = math.nan
    (a, found), (b, _) = learn(bad), learn(without)
    assert same(a.params["net"], b.params["net"])
    assert number(found, "steps_skipped") == 0
    assert all(leaf.isfinite().all() for leaf in a.params.values(True, True))


def test_a_round_in_which_no_env_counts_is_no_step():
    bad = ROLLOUT.clone()
    bad["reward"][:] = math.nan
    learner, _ = learn(ROLLOUT)
    after, found = learn(bad, learner, assignment=whole(2))
    assert same(after.params["net"], learner.params["net"])
    assert same(after.optimiser, learner.optimiser)
    assert (number(found, "steps_done"), number(found, "steps_skipped")) == (0, 2)
    assert after.skip_streak == 1


def test_a_round_without_a_step_leaves_the_units_of_returns_as_they_are():
    learner, _ = learn(ROLLOUT)
    steep = learner.params["net"].clone()
    steep["value.out.weight"] = steep["value.out.weight"] * 1e13
    learner = learner.replace(params=learner.params.replace(net=steep))
    after, found = learn(ROLLOUT, learner)
    assert number(found, "steps_done") == 0
    assert same(after.params["net"], steep)
    assert torch.equal(after.params["value_offset"], learner.params["value_offset"])
    assert same(after.return_scale.to_tensordict(), learner.return_scale.to_tensordict())


@pytest.mark.parametrize(("name", "value"), [("m", math.nan), ("v", math.inf)])
def test_a_step_that_leads_to_no_numbers_is_not_taken(name, value):
    broken = carry_of(LEARNER)
    leaf = getattr(broken, name)["core.bias"].clone()
    leaf[3] = value
    broken = broken._replace(**{name: {**getattr(broken, name), "core.bias": leaf}})
    after, found = step(broken, rows_of(ROLLOUT))
    assert (
        found["nonfinite.loss"][0],
        found["nonfinite.gradient"][0],
        found["nonfinite.step"][0],
    ) == (0, 0, 1)
    assert all(torch.equal(broken.net[key], leaf) for key, leaf in after.net.items())
    assert (after.step, found["steps_done"][0]) == (0, 0)


def test_every_layer_is_judged_before_clipping_and_one_that_is_not_there_is_not():
    steep = WEIGHTS._replace(value=1e12)
    _, found = step(carry_of(LEARNER), rows_of(ROLLOUT), steep)
    score, valid = found["layer_health"]
    named = dict(zip(metrics.LAYER_NAMES, score.tolist(), strict=True))
    assert (named["value.out.weight"], named["value.out.bias"]) == (
        pytest.approx(0.1),
        pytest.approx(0.1),
    )
    assert named["op.out.bias"] > 0.1
    assert dict(zip(metrics.LAYER_NAMES, valid.tolist(), strict=True)) == {
        name: not name.startswith("contribution") for name in metrics.LAYER_NAMES
    }


def test_rounds_without_an_applied_step_are_counted_until_one_is_applied():
    net = LEARNER.params["net"].clone()
    net["mix.in.bias"][0] = math.nan
    learner = LEARNER.replace(params=LEARNER.params.replace(net=net))
    for streak in (1, 2, 3):
        learner, found = learn(ROLLOUT, learner, assignment=whole(2))
        assert learner.skip_streak == streak
        assert number(found, "skip_streak") == streak
        assert number(found, "steps_skipped") == 2
        assert number(found, "steps_done") == 0
        assert number(found, "epochs_done") == 0
    learner = learner.replace(params=learner.params.replace(net=LEARNER.params["net"]))
    assert learn(ROLLOUT, learner)[0].skip_streak == 0


def test_a_kl_stop_keeps_the_parameters_from_before_the_offending_step():
    spec = PpoSpec(target_kl=1e-7)
    after, found = learn(ROLLOUT, spec=spec, assignment=whole(5))
    once, _ = learn(ROLLOUT, spec=spec, assignment=whole(1))
    assert same(after.params["net"], once.params["net"])
    assert same(after.optimiser, once.optimiser)
    assert number(found, "stopped_by_kl") == 1
    assert (
        number(found, "steps_done"),
        number(found, "epochs_done"),
        number(found, "steps_skipped"),
    ) == (1, 1, 0)
    assert after.skip_streak == 0


def test_after_a_kl_stop_no_minibatch_of_the_round_is_applied_however_close_it_is():
    rollout = ROLLOUT.clone()
    # two envs say that they were far less likely to do what they did
    rollout["log_prob"][:, :2, 0] -= 1.0
    far_first = torch.tensor([[[0, 1], [2, 3]], [[0, 1], [2, 3]]])
    after, found = learn(rollout, spec=PpoSpec(target_kl=0.01), assignment=far_first)
    assert same(after.params["net"], init_ppo(POLICY, KEY).params["net"])
    assert (number(found, "steps_done"), number(found, "stopped_by_kl")) == (0, 1)
    close_first = {"spec": PpoSpec(target_kl=0.01), "weights": WEIGHTS._replace(lr=1e-4)}
    two_epochs, found = learn(rollout, assignment=far_first.flip(1), **close_first)
    assert number(found, "steps_done") == 1
    assert not same(two_epochs.params["net"], after.params["net"])
    assert same(
        two_epochs.params["net"],
        learn(rollout, assignment=far_first.flip(1)[:1], **close_first)[0].params["net"],
    )


@given(st.floats(-5, 5), st.floats(0.1, 10), st.integers(0, 50))
def test_a_change_of_unit_and_offset_changes_no_value_in_reward_units(level, size, seed):
    scale = init_scale()
    end = torch.zeros(6, 4, dtype=torch.bool)
    end[-1] = True
    ok = torch.ones(4, dtype=torch.bool)
    first, _, _ = rescale_rewards(scale, torch.randn(6, 4, generator=source(seed)), end, 0.99, ok)
    offset = torch.tensor(0.37)
    params = LEARNER.params.replace(value_offset=offset)
    learner = LEARNER.replace(params=params, return_scale=first)
    reward = level + size * torch.randn(6, 4, generator=source(seed + 1))
    second, _, factor = rescale_rewards(first, reward, end, 0.99, ok)
    units, shift = rescale_critic(learner, factor, second, layer="value.out")
    assert shift == 0
    before = POLICY.evaluate(params, ROLLOUT).value.double() * return_scale(first)
    moved = params.replace(net=units.net, value_offset=units.offset)
    after = POLICY.evaluate(moved, ROLLOUT).value.double() * return_scale(second)
    assert torch.allclose(before, after, rtol=1e-5, atol=1e-5 * (1 + abs(level)))


def test_targets_are_returns_in_the_unit_of_this_round_less_the_offset():
    learner, _ = learn(ROLLOUT)
    rollout = rollout_of(learner, seed=1)
    rollout["reward"] = 10 * rollout["reward"]
    _, rows, _ = prepare_rows(learner, rollout, policy=POLICY, round=turn(SPEC))
    ends = (rollout["terminated"], rollout["truncated"])
    everyone = torch.ones(4, dtype=torch.bool)
    scale, reward, factor = rescale_rewards(
        learner.return_scale, rollout["reward"], ends[0], SPEC.gamma, everyone
    )
    critic, shift = rescale_critic(learner, factor, scale, layer="value.out")
    value, following = (rollout[name] * factor + shift for name in ("value", "next_value"))
    sizes = {"gamma": SPEC.gamma, "gae_lambda": SPEC.gae_lambda}
    _, returns = gae(reward, value, following, *ends, **sizes)
    assert factor < 0.9
    assert critic.offset.abs() > 1e-3
    torch.testing.assert_close(rows["target"], returns - critic.offset)


def test_in_the_first_round_the_offset_appears_and_is_added_to_what_was_predicted():
    after, found = learn(ROLLOUT, weights=WEIGHTS._replace(lr=0.0))
    assert after.params["value_offset"] != 0
    assert same(after.params["net"], LEARNER.params["net"])
    unit = number(found, "return_scale")
    expected = (ROLLOUT["value"].mean() + after.params["value_offset"]) * unit
    assert number(found, "value_mean") == pytest.approx(expected.item(), rel=1e-5)


def test_forced_rows_teach_the_value_only():
    legal = masks(6, 4, share=0.0)
    rollout = ROLLOUT.clone()
    rollout["masks"], rollout["forced"] = legal, torch.ones(6, 4, dtype=torch.bool)
    rollout["log_prob"] = torch.zeros(6, 4, 8)
    rollout["action"] = torch.tensor([0, 0, 0, 2, 1, 2, 0, 0]).expand(6, 4, 8).clone()
    after, found = learn(rollout, assignment=whole(3))
    old, new = LEARNER.params["net"], after.params["net"]
    for name in old.keys():  # noqa: SIM118
        if name.startswith(("op.", "leaf.", "context.")):
            assert torch.equal(old[name], new[name])
        if name.startswith("value."):
            assert not torch.equal(old[name], new[name])
    assert number(found, "policy_loss") is None
    assert number(found, "kl") is None
    assert number(found, "free_steps") == 0
    assert number(found, "forced_share") == 1
    assert number(found, "advantage_mean") is None


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_every_env_is_in_exactly_one_minibatch_per_epoch_and_every_block_is_dealt_out(
    epochs, n, blocks, seed
):
    dealt = minibatch_indices(torch.rand(epochs, blocks, n, generator=source(seed)))
    assert dealt.shape == (epochs, n, blocks)
    for epoch in dealt:
        assert sorted(epoch.flatten().tolist()) == list(range(n * blocks))
        assert all(
            sorted(epoch[:, b].tolist()) == list(range(b * n, b * n + n)) for b in range(blocks)
        )


def test_this_round_is_normalised_by_the_statistics_it_was_played_with():
    after, _ = learn(ROLLOUT)
    assert after.params["observation", "env", "count"].max() == 24
    assert LEARNER.params["observation", "env", "count"].max() == 0
    assert after.rounds == 1
    again, found = learn(rollout_of(after, seed=1), after)
    assert number(found, "behaviour_gap") < 1e-5
    assert again.params["observation", "env", "count"].max() == 48


def test_every_metric_is_there_has_a_reduction_and_is_finite():
    _, found = learn(
        ROLLOUT, assignment=minibatch_indices(torch.rand(3, 2, 2, generator=source(0)))
    )
    names = {str(name) for name in set(found.keys()) if not str(name).endswith("_valid")}
    assert set(found.keys()) == names | {f"{name}_valid" for name in names}
    assert all(found[name].shape == () and found[name].isfinite() for name in names)
    measured = {name.split(".")[0] for name in names}
    assert {one.name for one in fields(PpoUpdated)} == measured | {"update_s"}
    assert number(found, "free_steps") + 24 * number(found, "forced_share") == 24
    assert number(found, "steps_done") == 6
    assert number(found, "epochs_done") == 3
    assert number(found, "contribution_loss") is None
    assert number(found, "learning_rate") == 1e-2


def test_reductions_see_the_counted_steps_only():
    size = len(metrics.STEP_NAMES)
    values = torch.tensor([1.0, 5.0, 100.0]).unsqueeze(-1).expand(3, size).double()
    valid = torch.ones(3, size, dtype=torch.bool)
    found = metrics.reduce_metrics(values, valid, torch.tensor([True, True, False]))
    assert found["policy_loss"][0] == 3.0
    assert found["ratio_max"][0] == 5.0
    assert found["ratio_min"][0] == 1.0
    assert found["behaviour_gap"][0] == 1.0
    assert found["steps_done"][0] == 6.0
    nothing = metrics.reduce_metrics(values, ~valid, torch.tensor([True, True, True]))
    assert not any(flag for _, flag in nothing.values())


def test_a_rollback_counts_and_the_horizon_does_not():
    ends = torch.zeros(6, 4, dtype=torch.bool)
    ends[2, 1] = ends[4, 3] = True
    _, found = learn(rollout_of(LEARNER, ends=ends))
    assert number(found, "rollback_rows") == 2


def test_the_update_is_that_of_torch_optim_on_the_same_losses():
    """The twin: backward, clip_grad_norm_ and AdamW, with decay on the value matrices."""
    spec = PpoSpec(target_kl=None, weight_decay=0.1)
    units, rows, _ = prepare_rows(LEARNER, ROLLOUT, policy=POLICY, round=turn(spec))
    net = {name: leaf.clone().requires_grad_() for name, leaf in units.net.items()}
    decayed = [leaf for name, leaf in net.items() if name.startswith("value.") and leaf.dim() == 2]
    others = [leaf for leaf in net.values() if not any(leaf is x for x in decayed)]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-5)
    for _ in range(5):
        optimiser.zero_grad()
        loss, _ = minibatch_objective(
            net,
            rows,
            POLICY.initial_hidden(4),
            policy=POLICY,
            spec=spec,
            weights=WEIGHTS,
        )
        loss.backward()
        for leaf in net.values():
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.nn.utils.clip_grad_norm_(list(net.values()), 1.0)
        optimiser.step()
    ours = learn(ROLLOUT, spec=spec, assignment=whole(5))[0].params["net"]
    assert all(torch.allclose(ours[name], net[name], atol=2e-5) for name in net)


def test_luck_that_a_group_shares_moves_nothing():
    """A reward that all envs of a world receive: known advantages alone, and none of one group in
    another.
    """
    own = play(POLICY, LEARNER.params, envs=8, seed=2)
    lucky = own.clone()
    lucky["reward"][2] += torch.tensor([[3.0], [-1.0]]).expand(2, 4).flatten()

    def advantage(rollout, siblings):
        round = turn(SPEC, "fixed", siblings=siblings)
        return prepare_rows(LEARNER, rollout, policy=POLICY, round=round)[1]["advantage"]

    a, b, alone = advantage(own, 4), advantage(lucky, 4), advantage(lucky, 1)
    free = ~own["forced"]
    torch.testing.assert_close(a[free], b[free], atol=1e-5, rtol=1e-5)
    assert a.abs().amax() <= 3.0
    assert not torch.allclose(alone, b)


def test_schedules_start_end_and_do_not_care_how_long_the_run_is():
    assert linear_schedule(1.0, 0.0, 4, 0) == 1.0
    assert linear_schedule(1.0, 0.0, 4, 1) == 0.75
    assert linear_schedule(1.0, 0.0, 4, 4) == linear_schedule(1.0, 0.0, 4, 99) == 0.0
    assert linear_schedule(1.0, 0.0, 0, 0) == 0.0
    spec = PpoSpec(value_warmup_rounds=10)
    assert coefficients_at(spec, 0) == pytest.approx((1e-3, 0.05, 0.05, 0.0))
    assert coefficients_at(spec, 40) == pytest.approx((1e-3, 0.01, 0.5, 0.0))
    assert coefficients_at(PpoSpec(entropy_coef_end=None), 1000).entropy == 0.05
    imitating = PpoSpec(imitation_rounds=3)
    assert [coefficients_at(imitating, index).imitation for index in (0, 2, 3)] == [1.0, 1.0, 0.0]
    assert [coefficients_at(imitating, index).entropy for index in (0, 2, 3)] == pytest.approx(
        [0.0, 0.0, 0.047]
    )


def test_an_optimiser_step_takes_at_most_five_launches_a_leaf():
    net = dict(LEARNER.params["net"].items())
    state = start_state(LEARNER.params["net"], LEARNER.optimiser)
    with CountLaunches() as launches:
        new = _adam_step(
            state, net, torch.ones(()), lr=1e-3, spec=SPEC, decayed=POLICY.network.decayed
        )
        _where_applied(torch.tensor(True), new, state)
    assert len(net) < launches.count <= 5 * len(net)  # one by one, they were 27 a leaf


def test_a_layer_is_judged_by_its_zeros_and_its_large_elements():
    gradient = torch.tensor([0.0, 0.0, 0.0, 20.0, 1.0, -11.0, 10.0, -10.0])
    zero, large, finite = gradient_shares([gradient])
    assert (zero.item(), large.item(), finite.item()) == (3 / 8, 2 / 8, True)
    broken = gradient_shares([torch.tensor([1.0, math.nan])])
    assert layer_health(*broken)[0].item() == 0.0
