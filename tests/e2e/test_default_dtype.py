"""A run computes what its declared types say, whatever default dtype and device the program around
it has set.
"""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch
from support.extras import CSV, needs_extra
from support.run_comparison import differences
from support.small_runs import tiny

import morphogen as mg
from morphogen import kernels
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.testing import laws
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import resume, train_ppo_vectorized

DEFAULTS = {
    "float64": lambda: torch.set_default_dtype(torch.float64),
    # a device that the run does not use
    "an accelerator": lambda: torch.set_default_device("meta"),
}


@pytest.fixture(params=DEFAULTS)
def set_default(request):
    """A default as programs around a run set it."""
    before = torch.get_default_dtype()
    yield DEFAULTS[request.param]
    torch.set_default_dtype(before)
    torch.set_default_device(None)


def play(place):
    """A run that is stopped inside its round, resumed, and evaluated at its end."""
    asked = itertools.count(1)
    parts = Parts(hooks=Hooks(should_stop=lambda: next(asked) == 2))
    telemetry = TelemetrySpec(loggers=CSV)
    fields = {"task": "digits_impaired", "rounds": 1, "episode_length": 2, "final_episodes": 2}
    spec = tiny(**fields, telemetry=telemetry)
    assert train_ppo_vectorized(spec, out=place, parts=parts).stopped
    resume(place)
    return place


# default, whether the kernels of the package serve
ROWS = [("float64", True), ("float64", False), ("an accelerator", True)]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The run under the usual default."""
    return play(tmp_path_factory.mktemp("usual") / "run")


@pytest.mark.parametrize(("set_default", "native"), ROWS, indirect=["set_default"])
def test_a_run_under_another_default_has_the_same_bits(usual, tmp_path, set_default, native):
    with mock.patch.object(kernels, "AVAILABLE", kernels.AVAILABLE and native):
        wanted = usual if native else play(tmp_path / "usual")
        set_default()
        assert not list(differences(wanted, play(tmp_path / "other")))


@needs_extra("text")
def test_text_under_another_default_has_the_same_bits(set_default):
    def play_epochs():
        data = {"batch": 4, "minibatches": 2, "val_samples": 16}
        env = mg.make("pydoc", envs=2, seed=0, data=data)
        state, seen = env.reset()
        for _ in range(3):
            state, step = env.step(state, mg.actions.random(env, state, seen))
            seen = step.inputs
        return state

    usual = play_epochs()
    set_default()
    assert trees_equal(usual, play_epochs())


@needs_extra("arrays")
def test_laws_and_data_sets_are_those_of_the_cpu_under_another_default(set_default):
    images = np.arange(60 * 64, dtype=np.uint8).reshape(60, 1, 8, 8)
    usual = mg.from_arrays("mine", images, np.arange(60) % 10).splits
    set_default()
    other = mg.from_arrays("mine", images, np.arange(60) % 10).splits
    assert torch.equal(usual.train.inputs, other.train.inputs)
    laws.check_blueprint(mg.BLUEPRINTS["norm"])
