"""Small runs whose loops are recorded by graphs, or run as they are."""

import torch
from support.small_runs import tiny

from morphogen.config.groups import DataSpec, GovernorSpec, HostSpec
from morphogen.env.capture import Capture
from morphogen.env.setup import build_setup
from morphogen.testing.builders.tree_equality import copy_tree
from morphogen.train.loop import Hooks, Parts, Scheduler

MINIBATCHES = 6
# Hosts that are rolled back now and then.
RESTLESS = {
    "host": HostSpec(lr=0.5),
    "governor": GovernorSpec(
        sensitivity=0.1, multiplier=1.0, min_samples=2, panics=1, snapshot_every=1
    ),
}


def spec_of(**fields):
    data = {"batch": 8, "minibatches": MINIBATCHES, "val_samples": 300} | fields.pop("data", {})
    return tiny(**{"data": DataSpec(**data), "seed": 3, **fields})


def run(graphs, **fields):
    """A run; its scheduler, its summaries and the states at the ends of its rounds."""
    states = []
    hooks = Hooks(
        on_round=lambda _, scheduler: states.append(copy_tree((scheduler.state, scheduler.params)))
    )
    scheduler = Scheduler(
        build_setup(spec_of(**fields)), Parts(capture=Capture(graphs), hooks=hooks)
    )
    with torch.no_grad():
        return scheduler, scheduler.run(), states
