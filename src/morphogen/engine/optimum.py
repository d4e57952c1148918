"""Optimum of a task with a known one: the policy that reaches it, and the best returns.

Without phases the return of an episode is the network value at its end, and the optimum is above 0 for every instance:
an unchanged host has a positive value and no cost.  With phases it is the anytime value, and the optimum is the best
that a policy can expect which does not know the phases ahead.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.fields import raise_all
from morphogen.config.task import ANALYTIC, epochs_to_fossilize
from morphogen.data.instances import HELD_OUT_EPISODE, draw_instances
from morphogen.device.transfers import Transfers
from morphogen.engine.setup import Setup
from morphogen.errors import ConfigError
from morphogen.learn.optimal_policies import OptimalPolicy, PlannedPolicy
from morphogen.rules.whitebox import optimal_value
from morphogen.rules.whitebox_plan import KINDS, PlanSpec, planned_value
from morphogen.state import rng
from morphogen.vocab.objective import ANYTIME
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Gate

Array = np.ndarray[Any, Any]
OPTIMAL = "optimal"  # the name of the arm
DECISIVE = {"width", "label_noise", "param_price"}  # parameters of an instance on which the optimum depends
MAX_PLANNED_SLOTS = 2  # a third one has 16 times the configurations
SHARE_TITLE = "share of the optimal return: mean value over that of the best possible policy"


def is_known(setup: Setup) -> bool:
    """Return True if the optimum of the task is known: all that it depends on is observed."""
    if setup.spec.phase.hazard:
        return setup.task.kind == ANALYTIC and not _plan_faults(setup)
    return setup.task.kind == ANALYTIC and set(setup.spec.observe.instance) >= DECISIVE


def optimal_policy(setup: Setup) -> OptimalPolicy | PlannedPolicy:
    """Return the policy that reaches the optimum.  Raises ConfigError for a run without a known optimum."""
    if setup.task.kind != ANALYTIC:
        raise ConfigError(f"task: expected whitebox, whose best policy is known, got {setup.task.name}")
    if setup.spec.phase.hazard:
        raise_all(_plan_faults(setup))
        return PlannedPolicy(_plan_spec(setup))
    if not is_known(setup):
        shown = ", ".join(setup.spec.observe.instance) or "nothing"
        raise ConfigError(f"observe.instance: expected {', '.join(sorted(DECISIVE))} for the best policy, got {shown}")
    return OptimalPolicy(setup.net.counts, setup.budget, setup.spec.episode_length, _last_start(setup))


def optimal_returns(setup: Setup, transfers: Transfers, episodes: int) -> Array:
    """Search the highest return on each held-out instance of an evaluation: float [episodes]."""
    spec = setup.spec
    envs = min(spec.envs, episodes)
    key = rng.env_keys(spec.seed, 0, envs, setup.device)
    values: list[Tensor] = []
    draw = partial(draw_instances, key, spec=spec, labels=setup.dataset.labels, purpose=Purpose.INSTANCE_HELD_OUT)
    for batch in range(-(-episodes // envs)):
        start = torch.zeros_like(key[:, 0])
        episode = start + HELD_OUT_EPISODE + batch
        instance = draw(episode, start)
        if spec.phase.hazard:
            views = [draw(episode, start + epoch).image_view for epoch in range(spec.episode_length)]
            values.append(planned_value(instance.param_price, torch.stack(views), _plan_spec(setup)))
            continue
        sizes = {"counts": setup.net.counts, "last": _last_start(setup), "param_budget": setup.budget}
        values.append(optimal_value(instance, blueprints=setup.limits.allowed_blueprints, **sizes))
    return transfers.read("result", TensorDict({"optimum": torch.cat(values)}, batch_size=[]))["optimum"][:episodes]


def _last_start(setup: Setup) -> int:
    return setup.spec.episode_length - 1 - epochs_to_fossilize(setup.spec.lifecycle)


def _plan_spec(setup: Setup) -> PlanSpec:
    spec = setup.spec
    views = tuple(int(view) for view in spec.phase.views.choices)
    return PlanSpec(spec.episode_length, spec.phase.hazard, views, setup.net.counts, setup.budget)


def _plan_faults(setup: Setup) -> list[str]:
    """Describe the settings of a world with phases under which its best plan is not known, a line each."""
    spec, limits = setup.spec, setup.limits
    lifecycle, slots = spec.lifecycle, len(setup.net.slots)
    checks = {
        "task": (setup.task.objective == ANYTIME, "one whose value is the anytime value"),
        "observe.instance": ("param_price" in spec.observe.instance, "param_price"),
        "phase.least": (spec.phase.least == 1, "1"),
        "slots": (slots <= MAX_PLANNED_SLOTS, f"at most {MAX_PLANNED_SLOTS}"),
        "max_seeds": (spec.max_seeds in (0, slots), f"0 or {slots}"),
        "disabled_ops": (not spec.disabled_ops, "none"),
        "blueprints": (set(KINDS) <= set(limits.allowed_blueprints), "those that help"),
        "lifecycle.auto_forward": (set(lifecycle.auto_forward) == {Gate.TRAIN.name, Gate.HOLD.name}, "TRAIN, HOLD"),
        "lifecycle.permissive_gates": (lifecycle.permissive_gates, "true"),
        "lifecycle.min_training_epochs": (lifecycle.min_training_epochs == 1, "1"),
        "lifecycle.min_prune_age": (lifecycle.min_prune_age <= 1, "at most 1"),
        "lifecycle.embargo_epochs": (lifecycle.embargo_epochs == 1, "1"),
        "governor.enabled": (not spec.governor.enabled, "false"),
    }
    return [f"{name}: expected {text} for the best policy" for name, (ok, text) in checks.items() if not ok]
