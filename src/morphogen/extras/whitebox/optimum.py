"""Optimum of a white-box task: the policy that reaches it, and the best returns.

In a world that stays as it is the return of an episode is the network value at its end, and the
optimum is above 0 for
every instance: an unchanged host has a positive value and no cost.  In a world with regimes it is
the anytime value, and the optimum is the best that a policy can expect which does not know the
regimes ahead.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.fields import raise_all
from morphogen.config.spec import (
    RunSpec,
    build_limits,
    find_host,
    param_budget,
    pick_slots,
    seed_timeline,
)
from morphogen.config.task import TASKS
from morphogen.data.instance_process import find_process
from morphogen.data.instances import HELD_OUT_EPISODE, draw_instances
from morphogen.device.transfers import Transfers
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.extras.whitebox.formula import optimal_value
from morphogen.extras.whitebox.growth_plan import KINDS, PlanSpec, planned_value
from morphogen.extras.whitebox.optimal_policies import OptimalPolicy, PlannedPolicy
from morphogen.hosts.net import Net
from morphogen.state import rng
from morphogen.vocab.action import Tempo
from morphogen.vocab.limits import Limits
from morphogen.vocab.objective import ANYTIME
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Gate

Array = np.ndarray[Any, Any]
KIND = "whitebox"  # of the tasks with a known optimum
DECISIVE = ("label_noise", "param_price", "width")  # parameters that decide in a constant world
MAX_PLANNED_SLOTS = 2  # a third one has 16 times the configurations


def optimum_faults(spec: RunSpec) -> list[str]:
    """Describe the settings under which the optimum of a white-box task is not known, a line
    each.
    """
    if find_process(spec).changes:
        return _plan_faults(spec)
    shown = spec.observe.instance
    if set(shown) >= set(DECISIVE):
        return []
    expected = ", ".join(DECISIVE)
    got = ", ".join(shown) or "nothing"
    return [f"observe.instance: expected {expected} for the best policy, got {got}"]


def build_optimal(spec: RunSpec, limits: Limits) -> OptimalPolicy | PlannedPolicy:
    """Build the policy that reaches the optimum.

    Raises: ConfigError for a run without a known optimum.
    """
    if TASKS[spec.task].kind != KIND:
        raise ConfigError(f"task: expected whitebox, whose best policy is known, got {spec.task}")
    raise_all(optimum_faults(spec))
    if find_process(spec).changes:
        return PlannedPolicy(_plan_spec(spec))
    return OptimalPolicy(
        _seed_counts(spec, limits), param_budget(spec), spec.episode_length, _last_start(spec)
    )


def optimal_returns(setup: Setup, transfers: Transfers, episodes: int) -> Array:
    """Search the highest return on each held-out instance of an evaluation: float [episodes]."""
    spec = setup.spec
    envs = min(spec.envs, episodes)
    key = rng.env_keys(spec.seed, 0, envs, setup.device)
    values: list[Tensor] = []
    purpose = Purpose.INSTANCE_HELD_OUT
    draw = partial(draw_instances, key, spec=spec, labels=setup.dataset.labels, purpose=purpose)
    for batch in range(-(-episodes // envs)):
        start = torch.zeros_like(key[:, 0])
        episode = start + HELD_OUT_EPISODE + batch
        instance = draw(episode, start)
        if setup.process.changes:
            views = [draw(episode, start + epoch).view_code for epoch in range(spec.episode_length)]
            price = instance.param_price
            values.append(planned_value(price, torch.stack(views), _plan_spec(spec)))
            continue
        best = optimal_value(
            instance,
            counts=setup.net.counts,
            blueprints=setup.limits.allowed_blueprints,
            last=_last_start(spec),
            param_budget=setup.budget,
        )
        values.append(best)
    found = TensorDict({"optimum": torch.cat(values)}, batch_size=[])
    return transfers.read("result", found)["optimum"][:episodes]


def _last_start(spec: RunSpec) -> int:
    return spec.episode_length - 1 - seed_timeline(spec, Tempo.FAST).fossilizing


def _seed_counts(spec: RunSpec, limits: Limits) -> tuple[tuple[int, ...], ...]:
    """Parameters of every blueprint in every slot, [S][13]."""
    return Net(find_host(spec), pick_slots(spec), limits.kinds).counts


def _plan_spec(spec: RunSpec) -> PlanSpec:
    views = tuple(int(view) for view in spec.regime.views.choices)
    counts = _seed_counts(spec, build_limits(spec))
    return PlanSpec(spec.episode_length, spec.regime.hazard, views, counts, param_budget(spec))


def _plan_faults(spec: RunSpec) -> list[str]:
    """Describe the settings of a world with regimes under which its best plan is not known."""
    lifecycle = spec.lifecycle
    slots = len(spec.slots)
    allowed = set(build_limits(spec).allowed_blueprints)
    by_itself = {Gate.TRAIN.name, Gate.HOLD.name}
    anytime = TASKS[spec.task].objective == ANYTIME
    checks = {
        "task": (anytime, "one whose value is the anytime value"),
        "observe.instance": ("param_price" in spec.observe.instance, "param_price"),
        "regime.least": (spec.regime.least == 1, "1"),
        "slots": (slots <= MAX_PLANNED_SLOTS, f"at most {MAX_PLANNED_SLOTS}"),
        "max_seeds": (spec.max_seeds in (0, slots), f"0 or {slots}"),
        "disabled_ops": (not spec.disabled_ops, "none"),
        "blueprints": (set(KINDS) <= allowed, "those that help"),
        "lifecycle.auto_forward": (set(lifecycle.auto_forward) == by_itself, "TRAIN, HOLD"),
        "lifecycle.permissive_gates": (lifecycle.permissive_gates, "true"),
        "lifecycle.min_training_epochs": (lifecycle.min_training_epochs == 1, "1"),
        "lifecycle.min_prune_age": (lifecycle.min_prune_age <= 1, "at most 1"),
        "lifecycle.embargo_epochs": (lifecycle.embargo_epochs == 1, "1"),
        "governor.enabled": (not spec.governor.enabled, "false"),
    }
    return [
        f"{name}: expected {text} for the best policy"
        for name, (ok, text) in checks.items()
        if not ok
    ]
