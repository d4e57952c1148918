"""The environments of Gymnasium: registration, spaces, modes of resets, seeds, wrappers, the single
env.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import (
    DictInfoToList,
    FlattenObservation,
    NormalizeObservation,
    RecordEpisodeStatistics,
    RescaleObservation,
)

import morphogen as mg
from morphogen.config.task import TASKS
from morphogen.extras.gymnasium.env import (
    GymnasiumEnv,
    GymnasiumSingleEnv,
    flatten_seen,
    join_masks,
)
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.action import SIZES, Head, Op, Outcome

NAME = "morphogen/tiny-v0"
WAIT = np.zeros((3, 8), dtype=np.int64)
every_mode = pytest.mark.parametrize("mode", AutoresetMode)


def small(**fields):
    return gymnasium.make_vec(NAME, **{"num_envs": 3, "episode_length": 4, **fields})


def test_every_task_is_registered():
    names = {name for name in gymnasium.registry if name.startswith("morphogen/")}
    assert names == {f"morphogen/{task}-v0" for task in TASKS}
    assert isinstance(
        gymnasium.make_vec(f"morphogen.extras.gymnasium.env:{NAME}", num_envs=2), GymnasiumEnv
    )
    assert isinstance(gymnasium.make(NAME).unwrapped, GymnasiumSingleEnv)


def test_observations_and_actions_lie_in_their_spaces():
    env = small()
    env.action_space.seed(0)
    seen, _ = env.reset(seed=1)
    for _ in range(9):
        assert env.observation_space.contains(seen)
        seen, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert reward.dtype == np.float32
        assert (terminated.dtype, truncated.any()) == (np.bool_, False)
        assert set(info) >= {"outcome", "network_value"}
    env.close()


def test_the_same_step_begins_the_next_episode_and_keeps_the_last_observation():
    env = small(autoreset_mode="SameStep")
    env.reset(seed=0)
    steps = [env.step(WAIT) for _ in range(8)]
    assert [step[2].all() for step in steps] == [False, False, False, True] * 2
    seen, _, _, _, info = steps[3]
    assert info["_final_obs"].all()
    assert all(env.single_observation_space.contains(last) for last in info["final_obs"])
    assert info["final_obs"][0]["observation"][0] == 1.0, (
        "the clock of the last observation is at the horizon"
    )
    assert (seen["observation"][:, 0] == 0.0).all()


def test_the_next_step_begins_the_next_episode_whatever_the_action():
    env = small()
    env.reset(seed=0)
    steps = [env.step(WAIT) for _ in range(4)]
    plans = env.functional.ledger["plan"]
    seen, reward, terminated, _, info = env.step(WAIT + 1)
    assert [step[2].all() for step in steps] == [False, False, False, True]
    assert (steps[3][0]["observation"][:, 0] == 1.0).all()
    assert (seen["observation"][:, 0] == 0.0).all()
    assert (reward.tolist(), terminated.any()) == ([0.0] * 3, False)
    assert (reward.dtype, terminated.dtype) == (np.float32, np.bool_)
    assert info["outcome"].tolist() == [Outcome.ENDED] * 3
    assert info["network_value"].tolist() == [0.0] * 3
    assert env.functional.ledger["plan"] == plans, "no epoch is run"
    assert env.state.clock.episode.tolist() == [1] * 3
    assert env.step(WAIT)[0]["observation"][:, 0].tolist() == [0.25] * 3


def test_the_next_step_begins_an_episode_of_the_envs_that_ended_alone():
    env, same = small(), small(autoreset_mode="SameStep")
    for each in (env, same):
        each.reset(seed=0)
        each.step(WAIT)
        each.reset(options={"reset_mask": np.array([True, False, False])})
        steps = [each.step(WAIT) for _ in range(3)]
    assert steps[-1][2].tolist() == [False, True, True]
    before = env.state
    seen, reward, terminated, _, info = env.step(WAIT)
    assert env.state.clock.epoch.tolist() == [4, 0, 0]
    assert env.state.clock.episode.tolist() == [1, 1, 1]
    assert terminated.tolist() == [True, False, False]
    assert info["outcome"].tolist() == [Outcome.EXECUTED, Outcome.ENDED, Outcome.ENDED]
    assert reward[1:].tolist() == [0.0, 0.0]
    alone, step = env.functional.step(before, mg.actions.wait(env.functional))
    assert trees_equal(env.state[:1], alone[:1])
    assert reward[0] == step.reward[0].item()
    assert trees_equal(env.state[1:], same.state[1:]), "the next episodes belong to the other mode"
    assert (seen["observation"][1:, 0] == 0.0).all()


def test_an_env_that_has_ended_refuses_a_step_until_its_reset():
    env = small(autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    ended = [env.step(WAIT) for _ in range(4)][-1][2]
    state = env.state
    for _ in range(2):
        with pytest.raises(
            gymnasium.error.ResetNeeded,
            match=r"envs \[0, 1, 2\] have ended: call reset before step",
        ):
            env.step(WAIT)
    assert env.state is state
    env.reset(options={"reset_mask": np.array([True, True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"envs \[2\] have ended"):
        env.step(WAIT)
    env.reset(options={"reset_mask": ended})
    assert not env.step(WAIT)[2].any()
    for begin in ({}, {"seed": 4}):
        for _ in range(env.functional.horizon - int(env.state.clock.epoch.max())):
            env.step(WAIT)
        env.reset(**begin)
        env.step(WAIT)


@every_mode
def test_an_env_that_was_rolled_back_goes_on(mode):
    env = GymnasiumEnv(
        2, task="digits", episode_length=6, autoreset_mode=mode, data={"minibatches": 2, "batch": 8}
    )
    env.reset(seed=0)
    wait = np.zeros((2, 8), dtype=np.int64)
    env.step(wait)
    params = env.state.host.params.clone()
    params[1] = torch.nan
    env.state = env.state.replace(host=env.state.host.replace(params=params))
    *_, terminated, _, _ = env.step(wait)
    assert terminated.tolist() == [False, True]
    if mode is AutoresetMode.DISABLED:
        env.reset(options={"reset_mask": terminated})
    assert env.state.clock.epoch.tolist() == [2, 2]
    restored = env.state[1:]
    _, reward, terminated, _, _ = env.step(wait)
    assert not terminated.any()
    if mode is AutoresetMode.NEXT_STEP:  # the step of its reset
        assert trees_equal(env.state[1:], restored)
        assert reward[1] == 0
        env.step(wait)
    assert env.state.clock.epoch.tolist() == [3 + (mode is AutoresetMode.NEXT_STEP), 3]
    assert env.state.clock.episode.tolist() == [0, 0]


def test_a_step_crosses_three_times():
    env = small()
    env.reset(seed=0)
    env.step(np.zeros((3, 8), dtype=np.int64))
    count = {name: number for name, number in env.functional.ledger.items() if number}
    assert count == {"arrays": 2, "plan": 1, "actions": 1}, (
        "one `arrays` each for the reset and the step"
    )


WRAPPERS = {
    "normalise": lambda env: NormalizeObservation(FlattenObservation(env)),
    "rescale": lambda env: RescaleObservation(FlattenObservation(env), -1, 1),
    "list": DictInfoToList,
    "statistics": RecordEpisodeStatistics,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_of_gymnasium_work_with_the_default(name):
    env = WRAPPERS[name](small())
    seen, _ = env.reset(seed=0)
    for _ in range(11):
        assert env.observation_space.contains(seen)
        seen, reward, *_ = env.step(WAIT)
    assert reward.shape == (3,)


def test_the_single_env_passes_the_check_of_gymnasium():
    check_env(gymnasium.make(NAME).unwrapped, skip_render_check=True)


def test_the_single_env_is_a_row_of_the_vector_env():
    env, many = gymnasium.make(NAME, episode_length=4), small(num_envs=1, autoreset_mode="Disabled")
    slots = len(many.functional.net.slots)
    assert env.observation_space.shape == (60 + 60 * slots,)
    (seen, _), (rows, _) = env.reset(seed=3), many.reset(seed=3)
    env.action_space.seed(0)
    for t in range(4):
        assert env.observation_space.contains(seen)
        assert (seen == flatten_seen(rows)[0]).all()
        assert (env.unwrapped.action_masks() == join_masks(rows["mask"])[0]).all()
        action = env.action_space.sample(mask=tuple(_parts(env.unwrapped.action_masks(), slots)))
        seen, reward, terminated, truncated, info = env.step(action)
        rows, *rest, _, infos = many.step(action[None])
        assert (reward, terminated, truncated) == (rest[0][0], rest[1][0], False)
        assert info == {name: leaf[0] for name, leaf in infos.items()}
        assert terminated == (t == 3)
    with pytest.raises(gymnasium.error.ResetNeeded, match="have ended: call reset before step"):
        env.step(action)
    env.reset()
    assert env.unwrapped.vector.state.clock.episode.tolist() == [1]


def _parts(mask, slots):
    """The joined mask of one env, head by head."""
    ends = np.cumsum([SIZES.get(head, slots) for head in Head])
    return [part.astype(np.int8) for part in np.split(mask, ends[:-1])]


def test_columns_of_the_joined_mask_and_of_a_flat_observation():
    env = small()
    seen, _ = env.reset(seed=0)
    op, slot, blueprint, *_ = _parts(join_masks(seen["mask"])[0], 2)
    assert op.tolist() == seen["mask"]["op"][0].tolist()
    assert slot.tolist() == seen["mask"]["slot"][0, Op.GERMINATE].tolist()
    assert blueprint.tolist() == seen["mask"]["blueprint"][0].tolist()
    occupy = mg.actions.build(
        env.functional, "GERMINATE", slot="r1c0", blueprint="conv_heavy"
    ).numpy()
    seen, *_ = env.step(occupy)
    contents = flatten_seen(seen)[:, -28:].reshape(3, 2, 14)
    assert contents.argmax(-1).tolist() == [[0, 1 + mg.Blueprint.CONV_HEAVY]] * 3
    assert (contents.sum(-1) == 1).all()
    mask = {head.label: np.ones((1, SIZES.get(head, 2)), dtype=np.int8) for head in Head}
    mask["slot"] = np.zeros((1, len(Op), 2), dtype=np.int8)
    mask["slot"][:, Op.WAIT] = 1
    assert join_masks(mask).all(), "a policy that draws every head needs a choice in each"


def test_wrong_use_is_named():
    with pytest.raises(ValueError, match="'Never' is not a valid AutoresetMode"):
        small(autoreset_mode="Never")
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before action_masks"):
        gymnasium.make(NAME).unwrapped.action_masks()
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before step"):
        small().step(np.zeros((3, 8), dtype=np.int64))
    env = small()
    env.reset()
    with pytest.raises(TypeError, match="Cannot cast array data"):
        env.step(np.zeros((3, 8)))
    with pytest.raises(
        mg.ConfigError, match=r"action: expected int64 \[3, 8\], got torch.int64 \[2, 8\]"
    ):
        env.step(np.zeros((2, 8), dtype=np.int64))
    with pytest.raises(
        mg.ConfigError, match=r"options.reset_mask: expected bool \[3\], got torch.bool \[1\]"
    ):
        env.reset(options={"reset_mask": np.ones(1, dtype=bool)})
