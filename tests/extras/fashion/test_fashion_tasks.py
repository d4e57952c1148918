"""The tasks of Fashion-MNIST, against numbers written out by hand."""

from dataclasses import replace

import pytest
from support.extras import needs_extra
from support.task_sizes import task_sizes

import morphogen as mg
from morphogen.config.task import TASKS
from morphogen.env.setup import build_setup
from morphogen.train.held_out_plays import task_rivals

# task: host parameters, default slots, batch, episode length
ROWS = {
    "fashion": (1_090, "r0c1 r1c0 r1c1", 16, 12),
    "fashion_full": (1_702, "r0c0 r0c1 r0c2", 64, 40),
}


def test_every_task_of_the_table_is_there_and_no_other():
    assert {name for name in TASKS if TASKS.origin(name) == "fashion"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_host_slots_and_sizes_are_those_of_the_table(name):
    assert task_sizes(name) == ROWS[name]


@needs_extra("schedules")
def test_the_best_schedule_is_a_rival_where_its_actions_exist():
    spec = mg.RunSpec(preset="fashion", envs=2)
    assert task_rivals(build_setup(mg.resolve(spec))) == ["fashion_schedule"]
    narrow = replace(spec, slots=("r1c1",), episode_length=4)
    assert task_rivals(build_setup(mg.resolve(narrow))) == []


def test_a_rival_that_no_one_knows_is_refused():
    with pytest.raises(
        mg.ConfigError, match=r'rivals: expected names out of .*wait.*, got .*"wiat"'
    ):
        replace(TASKS["fashion"], name="mine", rivals=("wiat",))
