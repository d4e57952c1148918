"""`make`: an environment from the name of a task, or from a spec."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from morphogen.config.fields import OneOf, check_flag
from morphogen.config.spec import RunSpec, resolve
from morphogen.data.instances import HELD_OUT_INSTANCES, TEST_INSTANCES, TRAINING_INSTANCES
from morphogen.engine.action_control import ActionControl
from morphogen.engine.compile import CompiledUnits
from morphogen.engine.environment import Environment, open_environment
from morphogen.engine.setup import build_setup
from morphogen.errors import ConfigError
from morphogen.rules.rewards.protocol import Builder

SPLITS = {"train": TRAINING_INSTANCES, "held-out": HELD_OUT_INSTANCES, "test": TEST_INSTANCES}


def make(
    task: str | RunSpec = "digits",
    /,
    *,
    envs: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    first: int = 0,
    keys: Tensor | None = None,
    instances: str = "train",
    rule: Builder | None = None,
    control: ActionControl | None = None,
    **fields: Any,
) -> Environment:
    """Build an environment: networks, data, rule of the reward and limits of a task.

    Args:
        task: name of a task, or a RunSpec.
        envs, seed: number of envs and seed of all their random numbers; None: those of the RunSpec.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; None: that of the RunSpec.
        first: number of the first env; env `n` is the same env in every environment of a seed.
        keys: int64 [E, 3], keys of the envs in place of `envs`, `seed` and `first`.
        instances: the stream that tasks are drawn from: `train`, where prices warm up over the first episodes, or
            `held-out` or `test`, which no training has seen.
        rule: builder of the reward rule, in place of the one that the spec names; see `rules.rewards.table`.
        control: narrows every choice.
        fields: further fields of RunSpec, for a task given by name.

    Raises: ConfigError for settings out of range, DataError for missing files, DeviceError for a missing device,
    TypeError for fields beside a RunSpec.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=4, seed=0)
        >>> state, seen = env.reset()
        >>> state, step = env.step(state, mg.actions.random(env, state, seen))
        >>> step.reward.shape, step.masks.op.shape
        (torch.Size([4]), torch.Size([4, 6]))
    """
    check_flag("instances", instances, OneOf(SPLITS))
    if keys is not None:
        if keys.ndim != 2 or keys.shape[1] != 3 or keys.dtype != torch.int64:
            raise ConfigError(f"keys: expected int64 [E, 3], got {keys.dtype} {list(keys.shape)}")
        if envs is not None or seed is not None or first:
            raise TypeError("keys: expected no envs, seed or first beside keys, which replace them")
        envs = len(keys)
    setup = build_setup(_build_spec(task, envs=envs, seed=seed, device=device, **fields), rule=rule)
    compiled = CompiledUnits(setup.spec.engine)
    return open_environment(setup, envs=keys, first=first, split=SPLITS[instances], control=control, compiled=compiled)


def _build_spec(
    task: str | RunSpec, *, envs: int | None, seed: int | None, device: str | None, **fields: Any
) -> RunSpec:
    """Return the resolved spec.  The update of a policy is not part of an env: its minibatches follow the envs."""
    if isinstance(task, RunSpec):
        if fields:
            raise TypeError(f"fields: expected none beside a RunSpec, got {', '.join(fields)}")
        spec = resolve(task)
    else:
        spec = resolve(RunSpec(task=task, **fields))
    given = {name: value for name, value in (("envs", envs), ("seed", seed)) if value is not None}
    if envs is not None and envs % (spec.ppo.minibatches or 1):
        given["ppo"] = replace(spec.ppo, minibatches=math.gcd(envs, spec.ppo.minibatches or 1))
    if device is not None:
        given["engine"] = replace(spec.engine, devices=(device,))
    return replace(spec, **given)
