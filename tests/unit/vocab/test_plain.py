"""Numbers of NumPy and torch as settings: stored as numbers of Python, where they are of the right
kind.
"""

import json

import numpy as np
import pytest
import torch

import morphogen as mg

SETTINGS = {
    "integers of NumPy": (
        {"rounds": np.int64(2), "seed": np.uint32(3), "envs": np.int8(4)},
        [2, 3, 4],
    ),
    "arrays and tensors of one number": (
        {"rounds": np.array(2), "seed": torch.tensor(3), "envs": 4},
        [2, 3, 4],
    ),
}


@pytest.mark.parametrize(("settings", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_numbers_are_stored_as_numbers_of_python(settings, expected):
    spec = mg.RunSpec(preset="smoke", **settings)
    assert [spec.rounds, spec.seed, spec.envs] == expected
    assert {type(spec.rounds), type(spec.seed), type(spec.envs)} == {int}
    assert mg.parse_config(mg.dump_config(spec)) == spec


def test_numbers_in_groups_pairs_and_tuples_are_stored_as_numbers_of_python():
    fields = {
        "ppo": {"lr": np.float32(0.5), "minibatches": np.int16(2)},
        "evaluation": mg.EvaluationSpec(greedy=np.bool_(True)),
        "instance": {"width": np.array([0.5, 1.0]), "classes": [np.int64(4), np.int64(6)]},
        "policy": {"floor": {"op": np.float64(0.01)}},
    }
    plain = {
        "ppo": {"lr": 0.5, "minibatches": 2},
        "evaluation": {"greedy": True},
        "instance": {"width": [0.5, 1.0], "classes": [4, 6]},
        "policy": {"floor": {"op": 0.01}},
    }
    spec = mg.RunSpec(preset="smoke").with_settings(**fields)
    assert mg.dump_config(spec) == mg.dump_config(mg.RunSpec(preset="smoke", **plain))
    assert type(spec.ppo.lr) is float


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": np.True_}, "rounds: expected a valid integer, got true"),
        ({"rounds": np.float64(3)}, "rounds: expected a valid integer, got 3.0"),
        (
            {"rounds": np.array([1, 2])},
            r"rounds: expected a valid integer, got \[1, 2\]",
        ),
        (
            {"rounds": torch.zeros((), device="meta")},
            "rounds: expected a valid integer, got tensor",
        ),
        (
            {"seed": np.uint64(2**63)},
            "seed: expected a number less than 9223372036854775808, got 9223372036854775808",
        ),
        (
            {"evaluation": {"greedy": np.int64(1)}},
            "evaluation.greedy: expected a valid boolean, got 1",
        ),
        ({"ppo": {"lr": np.float32("nan")}}, "ppo.lr: expected a finite number, got NaN"),
    ],
)
def test_numbers_of_another_kind_are_refused(settings, said):
    with pytest.raises(mg.ConfigError, match=said):
        mg.RunSpec(**settings)


def test_tasks_and_hosts_take_numbers_of_numpy():
    numbers = {
        "base": 4,
        "blocks": 2,
        "kernel": 3,
        "pools": 1,
        "channels_in": 1,
        "size": 8,
        "classes": 10,
    }
    host = mg.CnnSpec(**{name: np.int64(value) for name, value in numbers.items()})
    assert json.dumps(host.numbers()) == json.dumps(mg.CnnSpec(**numbers).numbers())
    task = mg.TaskSpec(
        name="numbers", dataset="digits", host=host, shift=np.int64(1), scale=np.float32(0.5)
    )
    assert (type(task.shift), type(task.scale)) == (int, float)
    with pytest.raises(mg.ConfigError, match="shift: expected a valid integer, got true"):
        mg.TaskSpec(name="numbers", dataset="digits", host=host, shift=True)
    assert type(mg.SlotSpec("r0c0", channels=np.int64(4), size=np.array([2, 2])).channels) is int


def test_environments_and_evaluations_take_numbers_of_numpy():
    env = mg.make(
        "tiny", envs=np.int64(2), seed=np.uint8(3), first=np.int64(1), instances="held-out"
    )
    assert torch.equal(env.keys, mg.make("tiny", envs=2, seed=3, first=1).keys)
    assert torch.equal(env.with_seed(np.int64(5)).keys, env.with_seed(5).keys)
    assert len(mg.play(env, "wait", episodes=np.int64(3)).network_value) == 3


@pytest.mark.parametrize("episodes", [0, True, 2.5])
def test_a_number_of_episodes_is_an_integer_from_1_on(episodes):
    env = mg.make("tiny", envs=2, seed=0, instances="held-out")
    with pytest.raises(mg.ConfigError, match="episodes: expected an integer >= 1, got"):
        mg.play(env, "wait", episodes=episodes)


@pytest.mark.parametrize("first", [-1, "a"])
def test_the_number_of_the_first_env_is_an_integer_from_0_on(first):
    with pytest.raises(mg.ConfigError, match="first: expected an integer >= 0, got"):
        mg.make("tiny", envs=2, seed=0, first=first)
