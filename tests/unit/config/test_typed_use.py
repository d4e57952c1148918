"""Type checkers accept what users write; pyright checks this file strictly."""

# pyright: strict

from typing import assert_type

import torch

import morphogen as mg


def test_a_spec_takes_dicts_for_groups_lists_for_tuples_and_none_for_what_the_task_decides() -> None:
    reward = mg.RewardSpec(rule="value", governor_penalty=None)
    spec = mg.RunSpec(task="whitebox", rounds=3, slots=["r0c0"], episode_length=None, ppo={"clip": 0.1}, reward=reward)
    assert_type(spec.ppo, mg.PpoSpec)
    assert_type(spec.slots, tuple[str, ...])
    assert_type(mg.resolve(spec).episode_length, int)
    assert (spec.ppo.clip, spec.slots, mg.resolve(spec).episode_length) == (0.1, ("r0c0",), 8)


def test_a_spec_takes_parts_for_their_names() -> None:
    host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
    task = mg.TaskSpec(name="typed_use", dataset="digits", host=host, slots=("r0c0",))
    spec = mg.RunSpec(task=task, host={"norm": "batch"}, engine=mg.EngineSpec(devices=["cpu"], threads=None))
    assert_type(spec.task, str)
    assert spec.task == "typed_use"


def test_an_epoch_of_an_environment_is_typed_to_the_leaves() -> None:
    env = mg.make("whitebox", envs=2, seed=0)
    state, seen = env.reset()
    after, step = env.step(state, mg.actions.random(env, state, seen))
    assert_type(after, mg.EnvState)
    assert_type(after.clock.epoch, torch.Tensor)
    assert_type(step.reward, torch.Tensor)
    assert_type(step.masks, mg.ActionMasks)
    result = mg.play(env, mg.build_arm("wait", env.setup))
    assert_type(result, mg.ArmResult)
    assert step.reward.shape == (2,)
