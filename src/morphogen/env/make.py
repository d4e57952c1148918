"""`make`: an environment from the name of a task, or from a spec."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from morphogen.config.fields import Settings, explicit_settings, merge_settings
from morphogen.config.groups import HostSpec
from morphogen.config.host import Host
from morphogen.config.keywords import EnvFields
from morphogen.config.registry import show_part
from morphogen.config.spec import RunSpec, resolve, warn_of_short_episodes
from morphogen.config.task import TaskSpec
from morphogen.data.instances import (
    HELD_OUT_INSTANCES,
    TEST_INSTANCES,
    TRAINING_INSTANCES,
    InstanceSplit,
)
from morphogen.data.splits import Splits
from morphogen.env.action_control import ActionControl
from morphogen.env.action_tensors import check_form
from morphogen.env.environment import Environment, open_environment
from morphogen.env.setup import build_setup
from morphogen.env.units import open_units
from morphogen.errors import ConfigError
from morphogen.rules.rewards.protocol import Builder
from morphogen.state import rng
from morphogen.vocab.plain import read_count, to_plain
from morphogen.vocab.text import format_value

Stream = Literal["train", "held-out", "test"]  # of instances
SPLITS: dict[Stream, InstanceSplit] = {
    "train": TRAINING_INSTANCES,
    "held-out": HELD_OUT_INSTANCES,
    "test": TEST_INSTANCES,
}


class MakeFields(EnvFields, total=False):
    """Keywords of `make` but `envs` and `seed`, for the environments of other libraries."""

    device: str | None
    first: int
    keys: Tensor | None
    instances: Stream
    rule: str | Builder | None
    dataset: str | Callable[[Path], Splits] | None
    host: str | Host | HostSpec | dict[str, Any] | None
    control: ActionControl | None


def make(
    task: str | TaskSpec | RunSpec = "digits",
    /,
    *,
    envs: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    first: int = 0,
    keys: Tensor | None = None,
    instances: Stream = "train",
    rule: str | Builder | None = None,
    dataset: str | Callable[[Path], Splits] | None = None,
    host: str | Host | HostSpec | dict[str, Any] | None = None,
    control: ActionControl | None = None,
    **fields: Unpack[EnvFields],
) -> Environment:
    """Build an environment: networks, data, rule of the reward and limits of a task.

    Args:
        task: a task or its name, or a RunSpec.
        envs, seed: number of envs and seed of all their random numbers; None: as in the RunSpec.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; None: as in the RunSpec.
        first: number of the first env; env `n` is the same env in every environment of a seed.
        keys: int64 [E, 3], keys of the envs in place of `envs`, `seed` and `first`.
        instances: the stream that tasks are drawn from: `train`, where prices warm up over the
            first episodes, or `held-out` or `test`, which no training has seen.
        rule, dataset, host: parts or their names, short for the settings `reward.rule`, `data.name`
            and `host.name` (`config.parts` lists all kinds of parts); `host` may be the group of
            settings as well.
        control: narrows every choice: `MaskControl` of a mask of your own, or the control of an
        arm.
        fields: further fields of RunSpec, such as `blueprints`.

    Warns: in one line, if no seed can be kept within an episode.
    Raises: ConfigError for settings out of range, DataError for missing files, DeviceError for a
    missing device.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=4, seed=0)
        >>> state, inputs = env.reset()
        >>> state, step = env.step(state, mg.actions.random(env, state, inputs))
        >>> step.reward.shape, step.masks.op.shape
        (torch.Size([4]), torch.Size([4, 6]))
    """
    _check_words(instances, control)
    first = read_count("first", first, least=0)
    if keys is not None:
        check_form("keys", keys, torch.int64, ("E", 3))
        if envs is not None or seed is not None or first:
            raise TypeError("keys: expected no envs, seed or first beside keys, which replace them")
        envs = len(keys)
    parts = {"reward": {"rule": rule}, "data": {"name": dataset}, "host": {"name": host}}
    given: Settings = {group: part for group, part in parts.items() if None not in part.values()}
    if isinstance(host, HostSpec | dict):
        given["host"] = host
    settings = merge_settings(explicit_settings(dict(fields)), explicit_settings(given))
    setup = build_setup(_build_spec(task, settings, envs=envs, seed=seed, device=device))
    warn_of_short_episodes(setup.spec)
    if keys is None:
        keys = rng.env_keys(setup.spec.seed, first, setup.spec.envs)
    env = open_environment(setup, envs=keys, split=SPLITS[instances], control=control)
    return replace(env, compiled=open_units(setup.spec.engine, setup.device))


def _check_words(instances: str, control: object) -> None:
    """Raise ConfigError for an unknown stream or control."""
    if instances not in SPLITS:
        raise ConfigError(
            f"instances: expected one of {', '.join(SPLITS)}, a stream of tasks, got "
            f"{format_value(instances)}; "
            'whether tasks vary is a setting: make(RunSpec(instances="single"))'
        )
    if not isinstance(control, ActionControl | None):
        raise ConfigError(
            "control: expected a control, such as morphogen.MaskControl(mask), got "
            f"{show_part(control)}"
        )


def _build_spec(
    task: str | TaskSpec | RunSpec,
    settings: Settings,
    *,
    envs: int | None,
    seed: int | None,
    device: str | None,
) -> RunSpec:
    """Return the resolved spec.  The update of a policy is not part of an env: its minibatches
    follow the envs.
    """
    spec = task if isinstance(task, RunSpec) else RunSpec(task=task)
    spec = resolve(spec.with_settings(**settings))
    envs, seed = to_plain((envs, seed))
    given: Settings = {
        name: value for name, value in (("envs", envs), ("seed", seed)) if value is not None
    }
    if isinstance(envs, int) and envs % (spec.ppo.minibatches or 1):
        given["ppo"] = replace(spec.ppo, minibatches=math.gcd(envs, spec.ppo.minibatches or 1))
    if device is not None:
        given["engine"] = replace(spec.engine, devices=(device,))
    return replace(spec, **given)
