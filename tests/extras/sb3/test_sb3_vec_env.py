"""The environment of Stable-Baselines3: its check, rows of the vector env, masks, and training."""

import gymnasium
import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

import morphogen as mg
from morphogen.extras.gymnasium.env import GymnasiumEnv, flatten_seen, join_masks
from morphogen.extras.sb3.vec_env import MorphogenVecEnv

NAME = "morphogen/tiny-v0"


def small(**fields):
    return MorphogenVecEnv(3, task="tiny", episode_length=4, **fields)


def test_the_single_env_passes_the_check():
    check_env(gymnasium.make(NAME))


def test_it_shows_rows_of_the_vector_env():
    env = small(seed=2)
    same = GymnasiumEnv(3, task="tiny", episode_length=4, seed=2, autoreset_mode="SameStep")
    seen, (rows, _) = env.reset(), same.reset()
    env.action_space.seed(0)
    for t in range(8):
        assert env.observation_space.shape == seen.shape[1:]
        assert all(env.observation_space.contains(row) for row in seen)
        assert (seen == flatten_seen(rows)).all()
        assert (get_action_masks(env) == join_masks(rows["mask"])).all()
        actions = np.stack([env.action_space.sample() for _ in range(3)])
        seen, reward, ended, infos = env.step(actions)
        rows, paid, terminated, _, results = same.step(actions)
        assert (reward == paid).all()
        assert (ended == terminated).all()
        assert [info["outcome"] for info in infos] == results["outcome"].tolist()
        assert ended.all() == (t % 4 == 3)
        assert all(
            ("terminal_observation" in info) == end for info, end in zip(infos, ended, strict=True)
        )
        if ended.any():
            assert [info["terminal_observation"][0] for info in infos] == [1.0] * 3, (
                "the clock is at the horizon"
            )
            assert (seen[:, 0] == 0).all()


def test_a_seed_begins_its_first_episode_and_a_reset_the_next():
    env = small()
    env.seed(7)
    first = env.reset()
    env.reset()
    assert env.vector.state.clock.episode.tolist() == [1] * 3
    env.seed(7)
    assert (env.reset() == first).all()
    assert env.vector.state.clock.episode.tolist() == [0] * 3


def test_wrong_use_is_named():
    env = small()
    assert is_masking_supported(env)
    assert env.env_is_wrapped(VecMonitor) == [False] * 3
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before action_masks"):
        env.action_masks()
    with pytest.raises(RuntimeError, match="call step_async before step_wait"):
        env.step_wait()
    env.reset()
    assert len(env.env_method("action_masks", indices=[0, 2])) == 2
    with pytest.raises(mg.ConfigError, match='env_method: expected action_masks, got "render"'):
        env.env_method("render")
    with pytest.raises(
        mg.ConfigError, match='set_attr: expected no attribute of a single env, got "horizon"'
    ):
        env.set_attr("horizon", 3)
    with pytest.raises(AttributeError):
        env.get_attr("no_such_attribute")


@pytest.mark.slow
def test_an_algorithm_trains_and_its_model_plays_the_single_env():
    env = VecMonitor(MorphogenVecEnv(8, task="tiny", seed=0))
    model = MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=32, seed=0, device="cpu")
    model.learn(128)
    assert model.num_timesteps == 128
    assert [episode["l"] for episode in model.ep_info_buffer or ()] == [8] * 16
    returns, lengths = evaluate_policy(
        model, gymnasium.make(NAME), n_eval_episodes=2, warn=False, return_episode_rewards=True
    )
    assert lengths == [8, 8]
    assert np.isfinite(returns).all()
    env.close()
