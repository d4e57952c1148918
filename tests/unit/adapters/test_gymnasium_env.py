"""The vector environment of Gymnasium: registration, spaces, both modes of resets, seeds, wrappers."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.utils.performance import benchmark_vector_step
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import FlattenObservation, RecordEpisodeStatistics

import morphogen as mg
from morphogen.adapters.gymnasium_env import GymnasiumEnv
from morphogen.config.task import TASKS

NAME = "morphogen/whitebox-v0"


def small(**fields):
    return gymnasium.make_vec(NAME, **{"num_envs": 3, "episode_length": 4, **fields})


def test_every_task_is_registered():
    names = {name for name in gymnasium.registry if name.startswith("morphogen/")}
    assert names == {f"morphogen/{task}-v0" for task in TASKS}
    assert isinstance(gymnasium.make_vec(f"morphogen.adapters.gymnasium_env:{NAME}", num_envs=2), GymnasiumEnv)


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


def test_equal_seeds_and_actions_give_equal_episodes():
    runs = []
    for seed in (5, 5, 6):
        env = small()
        env.action_space.seed(3)
        start = env.reset(seed=seed)
        runs.append([start, *(env.step(env.action_space.sample()) for _ in range(6))])
    assert data_equivalence(runs[0], runs[1])
    assert not data_equivalence(runs[0], runs[2])


def test_what_a_step_returned_is_not_written_to_later():
    env = small()
    env.reset(seed=0)
    first = env.step(env.action_space.sample())
    kept = [part.copy() for part in (*first[0].values(), first[1], first[2]) if isinstance(part, np.ndarray)]
    env.step(env.action_space.sample())
    now = [part for part in (*first[0].values(), first[1], first[2]) if isinstance(part, np.ndarray)]
    assert all((one == other).all() for one, other in zip(kept, now, strict=True))


def test_the_same_step_begins_the_next_episode_and_keeps_the_last_observation():
    env = small()
    env.reset(seed=0)
    wait = np.zeros((3, 8), dtype=np.int64)
    steps = [env.step(wait) for _ in range(8)]
    assert [step[2].all() for step in steps] == [False, False, False, True] * 2
    seen, _, _, _, info = steps[3]
    assert info["_final_obs"].all()
    assert env.observation_space.contains(info["final_obs"])
    assert info["final_obs"]["observation"][0, 0] == 1.0, "the clock of the last observation is at the horizon"
    assert (seen["observation"][:, 0] == 0.0).all()


def test_without_resets_of_its_own_a_mask_selects_the_envs_that_begin_anew():
    env = small(autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    wait = np.zeros((3, 8), dtype=np.int64)
    before = [env.step(wait) for _ in range(2)][-1][0]
    after, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert after["observation"][:, 0].tolist() == [0.0, 0.5, 0.5]
    assert (after["observation"][1:] == before["observation"][1:]).all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_an_env_that_was_rolled_back_goes_on(mode):
    env = GymnasiumEnv(2, task="digits", episode_length=6, autoreset_mode=mode, data={"minibatches": 2, "batch": 8})
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
    assert env.state.clock.episode.tolist() == [0, 0]


def test_a_step_crosses_three_times():
    env = small()
    env.reset(seed=0)
    env.step(np.zeros((3, 8), dtype=np.int64))
    count = {name: number for name, number in env.functional.ledger.items() if number}
    assert count == {"arrays": 2, "plan": 1, "actions": 1}, "one `arrays` each for the reset and the step"


def test_wrappers_of_gymnasium_work():
    env = RecordEpisodeStatistics(FlattenObservation(small(autoreset_mode=AutoresetMode.DISABLED)))
    env.reset(seed=0)
    infos = [env.step(np.zeros((3, 8), dtype=np.int64))[-1] for _ in range(4)]
    assert infos[-1]["episode"]["l"].tolist() == [4, 4, 4]
    assert benchmark_vector_step(small(), target_duration=1) > 0


def test_wrong_use_is_named():
    with pytest.raises(mg.ConfigError, match="autoreset_mode: expected SAME_STEP or DISABLED"):
        small(autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before step"):
        small().step(np.zeros((3, 8), dtype=np.int64))
    env = small()
    env.reset()
    with pytest.raises(mg.ConfigError, match=r"actions: expected integers \[3, 8\], got float64"):
        env.step(np.zeros((3, 8)))
    with pytest.raises(mg.ConfigError, match=r"action: expected int64 \[3, 8\], got torch.int64 \[2, 8\]"):
        env.step(np.zeros((2, 8), dtype=np.int64))
    with pytest.raises(mg.ConfigError, match='options: expected reset_mask, got "mask"'):
        env.reset(options={"mask": np.ones(3, dtype=bool)})
    with pytest.raises(mg.ConfigError, match=r"options.reset_mask: expected bool \[3\], got bool \[1\]"):
        env.reset(options={"reset_mask": np.ones(1, dtype=bool)})
