"""The exchange of one process: it has all envs and all episodes, and changes nothing."""

import numpy as np
import pytest
import torch

from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.ppo.exchange import ALONE
from morphogen.ppo.update import PPO


def test_one_process_has_everything():
    assert ALONE.own(5) == range(5)
    assert ALONE.places(3).tolist() == [0, 1, 2]
    assert (ALONE.first, ALONE.place, ALONE.facts("a")) == (True, 0, ["a"])
    assert ALONE.of_updates(RunSpec(), PPO) is ALONE


def test_what_one_process_exchanges_comes_back_as_it_is():
    rows, tree = {"x": np.zeros((2, 3))}, {"state": {"x": torch.ones(2)}}
    assert ALONE.join("rollout", rows, axis=1)["x"] is rows["x"]
    assert ALONE.join_episodes(rows, [2])["x"] is rows["x"]
    assert ALONE.join_envs(tree) is ALONE.take_envs(tree) is tree
    total = torch.tensor(2.0)
    assert ALONE.sum([total])[0] is total


def test_one_process_raises_its_own_error():
    cause = ConfigError("x" * 9_999)

    def act():
        raise cause

    for run in (ALONE.together, ALONE.on_first):
        with pytest.raises(ConfigError) as caught:
            run(act)
        assert caught.value is cause
