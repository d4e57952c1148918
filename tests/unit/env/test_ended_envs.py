"""Envs at their horizon: a step leaves them as they are, pays nothing, and changes no other env."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from support.extras import rows_of_extra
from support.small_runs import tiny_setup, world_of

import morphogen as mg
from morphogen.config.groups import DataSpec
from morphogen.data.dataset import open_dataset
from morphogen.data.feed import ResidentFeed
from morphogen.env import actions
from morphogen.env.environment import open_environment
from morphogen.testing.builders.tree_equality import differing_leaves, leaves, trees_equal
from morphogen.vocab.action import Op, Outcome, Reason

HORIZON = 4
ENVS = 4
ROWS = torch.tensor([True, False, False, True])
META = torch.device("meta")
SMALL = DataSpec(batch=8, minibatches=2, val_samples=32)
TINY = {"minibatches": 2, "batch": 8, "val_samples": 30}
REGIMES = {"hazard": 1.0, "least": 1, "views": {"plain": 1, "half": 1}}
SIZES = {"envs": ENVS, "episode_length": HORIZON}
WORLDS = {
    "resident": lambda: world_of(tiny_setup(episode_length=HORIZON)),
    **rows_of_extra(
        "streaming",
        lambda: {
            "streamed": lambda: world_of(
                tiny_setup(episode_length=HORIZON, data=replace(SMALL, placement="streamed"))
            )
        },
    ),
    **rows_of_extra(
        "regimes",
        lambda: {"regimes": partial(mg.make, "digits", regime=REGIMES, data=TINY, **SIZES)},
    ),
}
every_world = pytest.mark.parametrize("world", WORLDS)


def play(env, *, epochs=HORIZON, change=lambda t, state: state):
    """States before each epoch and after the last one, random actions, and steps."""
    state, seen = env.reset()
    states, acts, steps = [state], [], []
    for t in range(epochs):
        states[-1] = change(t, states[-1])
        acts.append(actions.random(env, states[-1], seen))
        state, step = env.step(states[-1], acts[-1])
        states, steps, seen = [*states, state], [*steps, step], step.inputs
    return states, acts, steps


@cache
def played(world):
    env = WORLDS[world]()
    return env, *play(env)


@pytest.mark.slow
@every_world
def test_a_step_past_the_horizon_changes_nothing_and_pays_nothing(world):
    env, states, acts, steps = played(world)
    state, seen = states[-1], steps[-1].inputs
    for action in (acts[0], acts[-1], torch.full_like(acts[0], 99)):
        plan = env.plan(state, action)
        after, step = env.step(state, action)
        assert not differing_leaves(after, state)
        assert not differing_leaves(step.inputs, seen)
        for part in (step.acted, step.ticked, step.governed):
            assert trees_equal(part, state)
        assert (step.outcome.outcome == int(Outcome.ENDED)).all()
        assert (step.outcome.reason == int(Reason.ENDED)).all()
        assert not step.outcome.executed.any()
        assert step.terminated.all()
        assert not step.reward.any()
        assert not step.components.any()
        assert not step.report.rolled_back.any()
        assert trees_equal(env.advance(state, action, facts=seen.facts, plan=plan), (after, step))


@every_world
def test_an_env_that_has_ended_may_only_wait(world):
    env, states, _, steps = played(world)
    masks = steps[-1].masks
    assert [row.nonzero().flatten().tolist() for row in masks.op] == [[int(Op.WAIT)]] * ENVS
    assert torch.equal(masks.op, masks.slot.any(-1))
    assert not actions.random(env, states[-1], steps[-1].inputs)[:, 0].any()
    assert any(step.masks.op[:, 1:].any() for step in steps[:-1]), (
        "before its horizon an env has more choices"
    )


@every_world
def test_ended_envs_change_no_bit_of_the_others(world):
    env, states, acts, _ = played(world)
    mixed, _ = env.restart(states[-1], ROWS)
    for action in acts[:2]:
        plan = env.plan(mixed, action)
        assert plan.ended
        free_state, free = env.advance(mixed, action, plan=plan._replace(ended=False))
        after, step = env.advance(mixed, action, plan=plan)
        assert trees_equal(after[~ROWS], states[-1][~ROWS])
        assert trees_equal(after[ROWS], free_state[ROWS])
        expected = leaves(free)
        for name, leaf in leaves(step._replace(inputs=step.inputs._replace(facts=None))).items():
            assert torch.equal(leaf[ROWS], expected[name][ROWS]), name
        mixed = after
    assert mixed.clock.epoch.tolist() == [2, HORIZON, HORIZON, 2]


@every_world
def test_a_restart_goes_on_as_if_no_step_had_been_too_many(world):
    env, states, acts, _ = played(world)
    over = states[-1]
    for _ in range(3):
        over, _ = env.step(over, acts[0])
    revived, seen = env.restart(over, ROWS)
    expected, other = env.restart(states[-1], ROWS)
    assert trees_equal(revived, expected)
    assert trees_equal(seen, other)
    whole, _ = env.restart(over, torch.ones_like(ROWS))
    assert trees_equal(whole, env.reset(1)[0])


def test_the_plan_alone_says_whether_an_env_has_ended():
    """So a step of an episode has no operator more, and no other graph."""
    env, states, acts, _ = played("resident")
    assert [env.plan(state, acts[0]).ended for state in states] == [False] * HORIZON + [True]


def test_a_step_of_ended_envs_reads_no_value():
    """On the device `meta` a tensor has no values, so that a read would fail."""
    env, states, acts, _ = played("resident")
    setup, state, action = env.setup, states[-1], acts[0]
    assert setup.feed is not None
    dataset = open_dataset(setup.task, setup.spec.data, setup.net.host, META)
    feed = ResidentFeed(dataset, setup.spec)
    bare = open_environment(replace(setup, device=META, dataset=dataset, feed=feed))
    after, _ = bare.advance(state.to(META), action.to(META), plan=env.plan(state, action))
    assert {name: leaf.shape for name, leaf in leaves(after).items()} == {
        name: leaf.shape for name, leaf in leaves(state).items()
    }
