"""The tasks of Fashion-MNIST, against numbers written out by hand."""

import pytest
from support.task_sizes import task_sizes

from morphogen.config.task import TASKS

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
