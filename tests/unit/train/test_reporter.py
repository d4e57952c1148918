"""The reporter in a checkpoint: its columns belong to the position, or are refused by name."""

import pytest
import torch
from support.faulty_sinks import Keep
from support.small_runs import tiny_setup

from morphogen.errors import CheckpointError
from morphogen.train.reporter import Reporter

ENVS = 2


def test_columns_that_are_not_of_this_position_are_refused_by_name():
    one = Reporter(tiny_setup(envs=ENVS, episode_length=5), (Keep(),))
    for shape in ((2, ENVS + 1, 3), (3, ENVS, 3)):
        with pytest.raises(CheckpointError, match=r"^columns\.alpha: expected \[2, 2, ...\], got"):
            one.restore(one.state(), {"alpha": torch.zeros(shape)}, 2)
    one.close()
