"""The optimum of a task where it is known: the policy that reaches it, and what share of it others reach.

The return of an episode is the network value of what is delivered at its end, not discounted; the optimum is above 0
for every instance, since a host that is left alone is worth something and costs nothing.
"""

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.config.task import ANALYTIC
from morphogen.config.whitebox_spec import epochs_to_fossilize
from morphogen.data.instances import HELD_OUT_EPISODE, draw_instances
from morphogen.device.transfers import Transfers
from morphogen.engine.setup import Setup
from morphogen.errors import ConfigError
from morphogen.learn.whitebox_policy import OptimalPolicy
from morphogen.rules.whitebox import optimal_value
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

Array = np.ndarray[Any, Any]
OPTIMAL = "optimal"  # the name of the arm
SHARE_TITLE = "share of the optimal return: mean network value over that of the best policy there is"


def is_known(setup: Setup) -> bool:
    """Return whether the optimum of the task is known."""
    return setup.task.kind == ANALYTIC


def optimal_policy(setup: Setup) -> OptimalPolicy:
    """The policy that reaches the optimum; a ConfigError where none is known."""
    if not is_known(setup):
        raise ConfigError(f"the best policy of the task {setup.task.name} is not known; want the task whitebox")
    return OptimalPolicy(setup.net.counts, setup.budget, setup.spec.episode_length, _last_start(setup))


def optimal_returns(setup: Setup, transfers: Transfers, episodes: int) -> Array:
    """The most that any policy reaches on the held-out instances of an evaluation: float [episodes], by search."""
    spec = setup.spec
    envs = min(spec.envs, episodes)
    key = rng.env_keys(spec.seed, 0, envs, setup.device)
    found = []
    for batch in range(-(-episodes // envs)):
        instance = draw_instances(
            key,
            torch.full_like(key[:, 0], HELD_OUT_EPISODE + batch),
            task=setup.task,
            spec=spec,
            labels=setup.dataset.labels,
            purpose=Purpose.INSTANCE_HELD_OUT,
        )
        knobs = {"counts": setup.net.counts, "last": _last_start(setup), "param_budget": setup.budget}
        found.append(optimal_value(instance, blueprints=setup.limits.allowed_blueprints, **knobs))
    crossing = TensorDict({"optimum": torch.cat(found)}, batch_size=[])
    return transfers.read("result", crossing)["optimum"][:episodes]


def _last_start(setup: Setup) -> int:
    return setup.spec.episode_length - 1 - epochs_to_fossilize(setup.spec.lifecycle)
