"""Replays of the episodes of a policy: the same actions, and hosts of the size that it grew."""

from dataclasses import fields

import numpy as np
import pytest
from support.small_runs import QUICK, tiny

import morphogen as mg
from morphogen.evaluation.arms import PlayContext
from morphogen.extras.search.replays import nearest_widths


@pytest.fixture(scope="module")
def played():
    rules = mg.HeuristicSpec(first_epoch=0, min_plateau=0, min_worth=-100.0, max_cost=1.0)
    spec = tiny(envs=3, episode_length=10, lifecycle=QUICK, heuristic=rules)
    env = mg.make(spec, envs=3, seed=0, instances="held-out")
    first = {"heuristic": mg.play(env, "heuristic", episodes=4)}
    return env, mg.play_arms(env, ("schedule", "static-params"), first, episodes=4)


@pytest.mark.slow
def test_the_same_actions_give_the_same_episodes_bit_for_bit(played):
    _, results = played
    before, again = results["heuristic"].traces, results["schedule"].traces
    assert (before.action[..., 0] > 0).any()
    for name in (
        "action",
        "accuracy",
        "network_value",
        "committed_acc",
        "trained_params",
        "fossil_blueprint",
    ):
        assert np.array_equal(getattr(before, name), getattr(again, name)), name


@pytest.mark.slow
def test_wider_hosts_have_the_size_of_what_was_grown_and_grow_nothing(played):
    env, results = played
    grown, wide = results["heuristic"], results["static-params"]
    assert (grown.traces.fossil_params > 0).any()
    assert (wide.traces.fossil_params == 0).all()
    assert wide.traces.accuracy.shape == grown.traces.accuracy.shape
    widths = nearest_widths(PlayContext(env.setup, env.transfers), grown.traces.fossil_params)
    assert (widths >= env.spec.host.width).all()
    # No host that is a channel wider or narrower comes closer.
    for shift in (-1, 1):
        others = np.maximum(widths + shift, env.spec.host.width)
        for place, other in enumerate(others):
            spec = env.spec.with_settings(host={"width": int(other)}, episode_length=1)
            near = mg.play(mg.make(spec, envs=3, seed=0, instances="held-out"), "wait", episodes=4)
            gap = abs(near.params[place] - grown.params[place])
            assert abs(wide.params[place] - grown.params[place]) <= gap


def test_where_nothing_grew_the_hosts_are_those_of_the_run():
    env = mg.make(
        tiny(envs=3, episode_length=3, lifecycle=QUICK), envs=3, seed=0, instances="held-out"
    )
    results = mg.play_arms(env, ("static-params", "schedule"), {"wait": mg.play(env, "wait")})
    for name in ("static-params", "schedule"):
        assert np.array_equal(results[name].traces.accuracy, results["wait"].traces.accuracy)


def test_a_host_without_a_width_is_refused():
    task = mg.TASKS["digits"]
    fixed = type("FixedCnn", (type(task.host),), {"configured": lambda self, **_: self})
    host = fixed(
        **{field.name: getattr(task.host, field.name) for field in fields(task.host) if field.init}
    )
    env = mg.make(
        tiny(envs=2, episode_length=3, host=mg.HostSpec(name=host)),
        envs=2,
        seed=0,
        instances="held-out",
    )
    with pytest.raises(
        mg.ConfigError, match="static-params: expected a host whose width can be set, got FixedCnn"
    ):
        mg.play_arms(env, ("static-params",), {"wait": mg.play(env, "wait")})
