"""Sizes of a task, for tables that are written out by hand."""

from typing import NamedTuple

from morphogen.config.spec import RunSpec, find_host, resolve


class TaskSizes(NamedTuple):
    """Parameters of the host, names of the default slots, batch and length of an episode."""

    params: int
    slots: str
    batch: int
    epochs: int


def task_sizes(name: str) -> TaskSizes:
    spec = resolve(RunSpec(task=name))
    slots = " ".join(spec.slots)
    return TaskSizes(find_host(spec).params(), slots, spec.data.batch, spec.episode_length)
