"""Twins of built-in parts, handed in from outside: bit for bit the same episodes."""

from dataclasses import replace

import pytest
import torch
from support.own_parts import BlueprintTwin, HostTwin, Shift

import morphogen as mg

SEVEN = mg.TASKS["digits"].host.blueprints


def open_env(task="digits", envs=2, **fields):
    lifecycle = {"min_training_epochs": 1, "auto_forward": ["TRAIN", "BLEND"]}
    sizes = {"episode_length": 8, "data": {"minibatches": 1, "batch": 8, "val_samples": 32}}
    return mg.make(task, envs=envs, lifecycle=lifecycle, **sizes, **fields)


def live(env):
    """Play an episode of random actions -> (state, step) per epoch."""
    state, seen = env.reset()
    for _ in range(env.horizon):
        state, step = env.step(state, mg.actions.random(env, state, seen))
        seen = step.inputs
        yield state, step


def same(one, other):
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def grow_alike(one, other):
    """Play both and compare -> live seeds, counted per epoch."""
    grown = 0
    for (state, step), (state_2, step_2) in zip(live(one), live(other), strict=True):
        assert same(step.score.reward, step_2.score.reward)
        assert same(step.measured.contribution, step_2.measured.contribution)
        assert same(state.host.params, state_2.host.params)
        assert all(
            same(state.seeds[s]["params"], state_2.seeds[s]["params"]) for s in one.net.names
        )
        grown += int((state.slots.blueprint > 0).sum())
    return grown


@pytest.mark.parametrize("name", SEVEN)
def test_a_blueprint_from_outside_grows_like_its_twin(name):
    kinds = name, BlueprintTwin(mg.BLUEPRINTS[name])
    assert grow_alike(*(open_env(blueprints=(kind,)) for kind in kinds)) > 20


def test_a_host_from_outside_is_its_twin():
    task = mg.TASKS["digits"]
    twin = replace(task, name="twin", host=HostTwin(task.host))
    assert grow_alike(open_env(), open_env(twin)) > 20


def test_built_in_and_own_blueprints_grow_in_one_slot():
    own = Shift(), BlueprintTwin(mg.BLUEPRINTS["conv_light"])
    env = open_env(envs=16, blueprints=("norm", "conv_small", *own))
    names = "norm", "conv_small", "shift", "my-conv_light"
    codes = {env.limits.kinds.index(name) for name in names}
    seen = [set() for _ in env.net.slots]
    for state, step in live(env):
        assert step.score.reward.isfinite().all()
        for found, blueprints in zip(seen, state.slots.blueprint.T.tolist(), strict=True):
            found.update(blueprints)
    assert all(found - {-1} == codes for found in seen)
