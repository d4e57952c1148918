"""Envs show nothing of the parameters that are not observed."""

import pytest
from support.world_checks import shown_parameters

import morphogen as mg
from morphogen.config.instance_spec import INSTANCE_PARAMETERS


@pytest.mark.parametrize("task", ["tiny", "digits"])
@pytest.mark.parametrize("shown", [(), ("param_price",), ("width", "classes"), INSTANCE_PARAMETERS])
def test_an_env_shows_nothing_of_what_is_not_observed(task, shown):
    env = mg.make(task, envs=4, seed=1, observe={"instance": shown}, data={"minibatches": 1})
    assert not shown_parameters(env)


def test_what_is_observed_shows():
    found = shown_parameters(mg.make("tiny", envs=4, seed=1), INSTANCE_PARAMETERS)
    assert found.keys() == {*INSTANCE_PARAMETERS}
    assert all(places & {"observation.env", "observation.instance"} for places in found.values())
