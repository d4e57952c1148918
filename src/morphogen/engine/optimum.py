"""Optimum of a task with a known one: the policy that reaches it, and the best returns.

The return of an episode is the undiscounted network value at its end.  The optimum is above 0 for every instance: an
unchanged host has a positive value and no cost.
"""

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.config.task import ANALYTIC, epochs_to_fossilize
from morphogen.data.instances import HELD_OUT_EPISODE, draw_instances
from morphogen.device.transfers import Transfers
from morphogen.engine.setup import Setup
from morphogen.errors import ConfigError
from morphogen.learn.baselines import OptimalPolicy
from morphogen.rules.whitebox import optimal_value
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

Array = np.ndarray[Any, Any]
OPTIMAL = "optimal"  # the name of the arm
DECISIVE = {"width", "label_noise", "param_price"}  # parameters of an instance on which the optimum depends
SHARE_TITLE = "share of the optimal return: mean network value over that of the best possible policy"


def is_known(setup: Setup) -> bool:
    """Return True if the optimum of the task is known: all that it depends on is observed."""
    return setup.task.kind == ANALYTIC and set(setup.spec.observe.instance) >= DECISIVE


def optimal_policy(setup: Setup) -> OptimalPolicy:
    """Return the policy that reaches the optimum.  Raises ConfigError for a run without a known optimum."""
    if setup.task.kind != ANALYTIC:
        raise ConfigError(f"task: expected whitebox, whose best policy is known, got {setup.task.name}")
    if not is_known(setup):
        shown = ", ".join(setup.spec.observe.instance) or "nothing"
        raise ConfigError(f"observe.instance: expected {', '.join(sorted(DECISIVE))} for the best policy, got {shown}")
    return OptimalPolicy(setup.net.counts, setup.budget, setup.spec.episode_length, _last_start(setup))


def optimal_returns(setup: Setup, transfers: Transfers, episodes: int) -> Array:
    """Search the highest return on each held-out instance of an evaluation: float [episodes]."""
    spec = setup.spec
    envs = min(spec.envs, episodes)
    key = rng.env_keys(spec.seed, 0, envs, setup.device)
    values = []
    for batch in range(-(-episodes // envs)):
        instance = draw_instances(
            key,
            torch.full_like(key[:, 0], HELD_OUT_EPISODE + batch),
            torch.zeros_like(key[:, 0]),
            spec=spec,
            labels=setup.dataset.labels,
            purpose=Purpose.INSTANCE_HELD_OUT,
        )
        sizes = {"counts": setup.net.counts, "last": _last_start(setup), "param_budget": setup.budget}
        values.append(optimal_value(instance, blueprints=setup.limits.allowed_blueprints, **sizes))
    return transfers.read("result", TensorDict({"optimum": torch.cat(values)}, batch_size=[]))["optimum"][:episodes]


def _last_start(setup: Setup) -> int:
    return setup.spec.episode_length - 1 - epochs_to_fossilize(setup.spec.lifecycle)
