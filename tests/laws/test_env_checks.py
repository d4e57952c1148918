"""The checks of environments: they pass for what the package hides, and find what shows."""

import pytest

import morphogen as mg
from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.testing import laws


@pytest.mark.parametrize("task", ["tiny", "digits"])
@pytest.mark.parametrize("shown", [(), ("param_price",), ("width", "classes"), INSTANCE_PARAMETERS])
def test_an_env_shows_nothing_of_what_is_not_observed(task, shown):
    laws.check_observation(
        mg.make(task, envs=4, seed=1, observe={"instance": shown}, data={"minibatches": 1})
    )


@pytest.mark.parametrize("name", INSTANCE_PARAMETERS)
def test_what_shows_is_found_and_named(name):
    env = mg.make("tiny", envs=4, seed=1)
    with pytest.raises(
        laws.BrokenLaw, match=rf"the observation shows {name}, in observation.(env|instance)"
    ) as caught:
        laws.check_observation(env, hidden=[name])
    assert caught.value.law == "hides_unobserved"


def test_an_unknown_parameter_is_refused():
    with pytest.raises(
        mg.ConfigError, match=r"hidden: expected names out of width, .*, got 'colour'"
    ):
        laws.check_observation(mg.make("tiny", envs=2), hidden=["colour"])
