"""The plan of the white-box world with regimes: it moves as the environment does, and no plan
is better.
"""

from functools import cache
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import one_in
from support.world_checks import changed_worlds

import morphogen as mg
from morphogen.config.spec import RunSpec
from morphogen.env.policies import build_arm
from morphogen.errors import ConfigError
from morphogen.extras.whitebox import growth_plan
from morphogen.extras.whitebox.growth_plan import (
    CODES,
    KINDS,
    MOVES,
    PlanSpec,
    best_moves,
    epoch_rewards,
    next_codes,
)
from morphogen.extras.whitebox.optimal_policies import PlannedPolicy
from morphogen.extras.whitebox.optimum import optimal_returns
from morphogen.vocab.action import AlphaSpeed, Head, Op, Tempo
from morphogen.vocab.stage import Stage

EPISODES = 48
pytest.importorskip("morphogen.extras.regimes", reason="the plan is of worlds with regimes")
COUNTS = tuple(tuple({1: 150, 4: 60, 7: 300}.get(code, 0) for code in range(13)) for _ in range(2))


@cache
def world(**settings):
    return mg.make("whitebox_regimes", envs=EPISODES, seed=0, instances="held-out", **settings)


@cache
def played(name):
    return mg.play(world(), name)


def earned(name):
    return played(name).network_value


def planned_action(envs, move):
    """The action of a move of a plan, for all envs."""
    action = torch.tensor([[0, 0, 0, 2, 1, 2, 0, 0]]).repeat(envs, 1)
    if move:
        slot, kind = divmod(move - 1, MOVES)
        op = (
            Op.GERMINATE
            if kind < len(KINDS)
            else Op.ADVANCE
            if kind == growth_plan.ADVANCE
            else Op.PRUNE
        )
        action[:, Head.OP], action[:, Head.SLOT] = int(op), slot
        if op is Op.GERMINATE:
            action[:, Head.BLUEPRINT], action[:, Head.TEMPO] = KINDS[kind], int(Tempo.FAST)
        action[:, Head.ALPHA_SPEED] = int(AlphaSpeed.INSTANT)
    return action


@pytest.mark.slow
@settings(max_examples=one_in(8), deadline=None)
@given(st.lists(st.integers(0, 2 * MOVES), min_size=32, max_size=32))
def test_moves_and_rewards_are_those_of_the_environment(wishes):
    env = world().with_seed(3)
    plan = PlannedPolicy(build_arm("optimal", env.setup).policy.plan)
    state, seen = env.reset()
    config, after, rewards = 0, next_codes(2), epoch_rewards(state.instance.param_price, plan.plan)
    for wish in wishes:
        codes = plan.slot_codes(seen.observation)
        assert (codes[:, 0] + CODES * codes[:, 1]).eq(config).all()
        legal = [move for move, code in enumerate(after[config]) if code >= 0]
        for move in range(1 + 2 * MOVES):
            op, slot = planned_action(1, move)[0, :2].tolist()
            assert bool(seen.masks.slot[0, op, slot]) == (move in legal)
        move = legal[wish % len(legal)]
        config, view = after[config][move], state.instance.view_code
        state, step = env.step(state, planned_action(env.envs, move))
        seen = step.inputs
        assert plan.last_view(seen.observation, plan.slot_codes(seen.observation)).equal(view)
        wanted = rewards[torch.arange(env.envs), view, config] / env.horizon
        torch.testing.assert_close(step.reward.double(), wanted, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_the_policy_of_the_plan_earns_what_the_plan_says_in_every_episode():
    most = optimal_returns(world().setup, world().transfers, EPISODES)
    assert earned("optimal") == pytest.approx(most, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wait", "random", "heuristic"])
def test_no_baseline_is_near_it(name):
    assert earned(name).mean() < 0.8 * earned("optimal").mean()


@pytest.mark.slow
def test_the_best_plan_grows_prunes_and_uses_every_kind():
    action = played("optimal").traces.action
    op = action[..., Head.OP]
    kind = action[..., Head.BLUEPRINT]
    assert set(kind[op == int(Op.GERMINATE)].tolist()) == set(KINDS)
    assert (op == int(Op.PRUNE)).any(0).mean() > 0.3
    assert (op[8:] == int(Op.GERMINATE)).any(0).mean() > 0.3


@cache
def rewards_of(price, spec):
    return epoch_rewards(torch.tensor([price]), spec)[0].tolist()


@cache
def best_by_search(price, spec, view, config, epoch):
    """Largest expected sum of rewards, over every move and every course of views."""
    if epoch == spec.horizon:
        return 0.0
    rewards = rewards_of(price, spec)
    shares = [1.0 if other == view else 0.0 for other in range(3)]
    if epoch:
        shares = [(1 - spec.hazard) * share + spec.hazard / 3 for share in shares]
    found = []
    for after in next_codes(len(spec.counts))[config]:
        if after >= 0:
            rest = [best_by_search(price, spec, other, after, epoch + 1) for other in range(3)]
            found.append(sum(p * (rewards[o][after] + rest[o]) for o, p in enumerate(shares)))
    return max(found)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from((0.05, 0.3, 1.0)), st.integers(0, 2), st.sampled_from((0.1, 0.6)))
def test_no_plan_is_better_than_that_of_backward_induction(price, view, hazard):
    """Of one slot and five epochs: all moves along all courses of views, one by one."""
    spec = PlanSpec(horizon=5, hazard=hazard, views=(0, 1, 2), counts=COUNTS[:1], param_budget=300)
    moves = best_moves(torch.tensor([price]), spec)
    rewards, total = rewards_of(price, spec), 0.0
    for course in product(range(3), repeat=spec.horizon - 1):
        views, chance, config, value = (view, *course), 1.0, 0, 0.0
        for before, after in pairwise(views):
            chance *= (1 - hazard) * (before == after) + hazard / 3
        for epoch, now in enumerate(views):
            config = next_codes(1)[config][moves[epoch, 0, views[max(epoch - 1, 0)], config]]
            value += rewards[now][config]
        total += chance * value
    assert total == pytest.approx(best_by_search(price, spec, view, 0, 0), abs=1e-9)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"observe": {"instance": []}}, "observe.instance: expected param_price"),
        ({"regime": {"least": 2}}, "regime.least: expected 1"),
        ({"lifecycle": {"auto_forward": []}}, "lifecycle.auto_forward: expected TRAIN, HOLD"),
        ({"slots": ["r0c0", "r0c1", "r1c0"]}, "slots: expected at most 2"),
        ({"blueprints": ["conv_light"]}, "blueprints: expected those that help"),
    ],
    ids=str,
)
def test_under_other_rules_the_best_plan_is_not_known(change, field):
    env = mg.make("whitebox_regimes", envs=2, seed=0, **change)
    assert env.setup.kind.rivals(env.setup) == ()
    with pytest.raises(ConfigError, match=field):
        build_arm("optimal", env.setup)


def test_the_best_plan_is_not_known_for_the_value_of_a_delivered_network():
    rules = RunSpec(task="whitebox_regimes")
    kept = {name: getattr(rules, name) for name in ("lifecycle", "governor", "blueprints")}
    free = {
        "disabled_ops": [],
        "max_seeds": 0,
        "regime": {"hazard": 0.1},
        "observe": {"instance": ["param_price"]},
    }
    env = mg.make("whitebox", envs=2, seed=0, **kept, **free)
    assert env.setup.kind.rivals(env.setup) == ()
    with pytest.raises(
        ConfigError,
        match=r"task: expected one whose value is the anytime value for the best policy$",
    ):
        build_arm("optimal", env.setup)


@pytest.mark.parametrize(
    ("regime", "field"),
    [
        (
            {"views": {"noisy": 1}},
            "regime.views: expected plain, inverted, turned alone .* got noisy",
        ),
        ({"classes": [2, 3]}, "regime.classes: expected null"),
        ({"hazard": 0.0}, "regime.views: expected plain alone .* regime.hazard is 0"),
    ],
    ids=str,
)
def test_regimes_that_the_formula_does_not_know_are_refused(regime, field):
    with pytest.raises(ConfigError, match=field):
        mg.make("whitebox_regimes", envs=2, regime=regime)


def test_worlds_of_a_formula_follow_their_regimes_whatever_is_done_in_them():
    assert not changed_worlds(mg.make("whitebox_regimes", envs=4, seed=0, episode_length=9))


def test_a_seed_helps_in_its_own_view_and_from_full_alpha_on():
    state, _ = mg.make("whitebox_regimes", envs=3, seed=0).reset()
    slots = replace_leaves(
        state.slots,
        stage=[Stage.HOLDING, Stage.BLENDING],
        alpha=[1.0, 0.9],
        kind=[KINDS[1], KINDS[0]],
    )
    instance = state.instance.replace(view_code=torch.arange(3))
    points = growth_plan.view_accuracy(instance, slots, torch.tensor([[0, 1, 2, 3]] * 3))
    assert points.tolist() == [[20, 20, 20, 20], [25, 85, 25, 85], [30, 30, 30, 30]]


def replace_leaves(slots, *, stage, alpha, kind):
    rows = {"stage": [int(one) for one in stage], "alpha": alpha, "blueprint": kind}
    return slots.replace(
        **{name: torch.tensor([row] * len(slots.stage)) for name, row in rows.items()}
    )
