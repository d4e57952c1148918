"""A run computes what its declared types say, whatever default dtype the program around it has set."""

import itertools
from unittest import mock

import pytest
import torch
from support.run_comparison import differences
from support.small_runs import tiny

from morphogen.config.groups import RewardSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.engine.scheduler import Hooks, Parts
from morphogen.kernels import native
from morphogen.run.train import resume, train_ppo_vectorized

CASES = {
    "the task of digits": {"task": "digits_impaired", "telemetry": TelemetrySpec(level="debug", loggers=("csv",))},
    "the white box with a legacy reward": {"task": "whitebox", "reward": RewardSpec(rule="basic")},
    "a baseline": {"task": "whitebox", "policy_name": "heuristic"},
}


@pytest.fixture
def double():
    """Float64 as the default dtype, as programs of numerics set it."""
    before = torch.get_default_dtype()
    yield lambda: torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(before)


def play(place, **fields):
    """A run that is stopped inside its first round, resumed, and evaluated at its end."""
    asked = itertools.count(1)
    parts = Parts(hooks=Hooks(should_stop=lambda: next(asked) == 3))
    spec = tiny(rounds=2, episode_length=4, final_episodes=2, **fields)
    assert train_ppo_vectorized(spec, out=place, parts=parts).stopped
    resume(place)
    return place


@pytest.mark.parametrize("kernels", [True, False], ids=["with kernels", "in plain torch"])
@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_a_run_under_float64_as_the_default_dtype_has_the_same_bits(tmp_path, double, fields, kernels):
    with mock.patch.object(native, "AVAILABLE", native.AVAILABLE and kernels):
        single = play(tmp_path / "single", **fields)
        double()
        assert not list(differences(single, play(tmp_path / "double", **fields)))
