"""Checks of environments against the promises about their worlds, and about the
observations of a policy.
"""

from collections.abc import Callable, Collection
from typing import Any, cast

import torch
from torch import Tensor

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.env import actions
from morphogen.env.environment import Environment, open_environment
from morphogen.env.phases import PolicyInputs
from morphogen.errors import ConfigError
from morphogen.state import rng
from morphogen.state.env import EnvState, Instance
from morphogen.state.schema import INSTANCE
from morphogen.state.tree_ops import replace
from morphogen.testing.laws.search import BrokenLaw
from morphogen.vocab.observation import FEATURES, INSTANCE_SOURCES

_EPOCHS = 2  # of random actions before the envs are observed


def check_observation(env: Environment, hidden: Collection[str] | None = None) -> None:
    """Check that envs which differ only in hidden parameters, or in the rest of their instances,
    look alike, bit for bit.

    Args:
        env: of `make`; it is reset, and grows for two epochs under random actions.
        hidden: names of the parameters; None: those that `observe.instance` of the env does not
        name.

    Raises: BrokenLaw for the first difference in features or masks, ConfigError for an unknown
    name.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> env = mg.make("tiny", envs=4, seed=0, observe={"instance": ["param_price"]})
        >>> laws.check_observation(env)
        >>> try:
        ...     laws.check_observation(env, hidden=["param_price"])
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        the observation shows param_price, in instance.param_price
    """
    names = tuple(name for name in INSTANCE_PARAMETERS if name not in env.spec.observe.instance)
    names = names if hidden is None else tuple(hidden)
    if unknown := [name for name in names if name not in INSTANCE_PARAMETERS]:
        raise ConfigError(
            f"hidden: expected names out of {', '.join(INSTANCE_PARAMETERS)}, got {unknown[0]!r}"
        )
    state, inputs = env.reset()
    for _ in range(_EPOCHS):
        state, step = env.step(state, actions.random(env, state, inputs))
        inputs = step.inputs
    derived = {
        name: [leaf for leaf, sources in INSTANCE_SOURCES.items() if name in sources]
        for name in names
    }
    worlds = [leaf.name for leaf in INSTANCE if leaf.name not in INSTANCE_SOURCES]
    for name, leaves in {**derived, "the world": worlds}.items():
        other = env.observe(_with_other(state, leaves))
        if place := _first_difference(inputs, other):
            raise BrokenLaw("hides_unobserved", f"the observation shows {name}, in {place}")


def check_worlds(env: Environment) -> None:
    """Check that worlds are the same whatever is done in them, alone and in sibling worlds, bit for
    bit.

    Args:
        env: of `make`; an episode of it is played with WAIT, one with random actions, one by its
            last env alone, and one by siblings.

    Raises: BrokenLaw for the first difference in an instance.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> laws.check_worlds(mg.make("digits", envs=2, episode_length=3, data={"minibatches": 1}))
    """
    keys, tasks, _ = env.host_keys
    expected = _instances(env, _wait)
    _check_same_worlds(expected, _instances(env, actions.random), "after random actions")
    with open_environment(
        env.setup, envs=rng.sibling_keys(keys, 1), tasks=tasks, split=env.split
    ) as siblings:
        _check_same_worlds(expected, _instances(siblings, _wait), "in sibling worlds")
    with open_environment(env.setup, envs=keys[-1:], tasks=tasks[-1:], split=env.split) as last:
        _check_same_worlds(
            [cast(Instance, instance[-1:]) for instance in expected],
            _instances(last, _wait),
            "of the last env alone",
        )


def _wait(env: Environment, state: EnvState, inputs: PolicyInputs) -> Any:
    return actions.wait(env)


def _instances(
    env: Environment, choose: Callable[[Environment, EnvState, PolicyInputs], Any]
) -> list[Instance]:
    """Instances of all epochs of an episode, the last one after its end."""
    state, inputs = env.reset()
    found = [state.instance]
    for _ in range(env.horizon):
        state, step = env.step(state, choose(env, state, inputs))
        inputs = step.inputs
        found.append(state.instance)
    return found


def _check_same_worlds(expected: list[Instance], found: list[Instance], label: str) -> None:
    for epoch, (one, other) in enumerate(zip(expected, found, strict=True)):
        for name, leaf in one.items():
            if not torch.equal(leaf, getattr(other, name)):
                raise BrokenLaw(
                    "same_world", f"instance.{name} of epoch {epoch} is another one {label}"
                )


def _with_other(state: EnvState, leaves: Collection[str]) -> EnvState:
    """The envs with other values of some leaves of the instance."""
    values = {name: _other(getattr(state.instance, name)) for name in leaves}
    instance: Any = state.instance
    return replace(state, instance=instance.replace(values))


def _other(values: Tensor) -> Tensor:
    return 0.5 * values + 0.01 if values.is_floating_point() else values + 1


def _first_difference(inputs: Any, other: Any) -> str:
    """Name of the first feature, or mask, that differs; empty if none does."""
    for leaf, columns in FEATURES.items():
        unlike = getattr(inputs.observation, leaf) != getattr(other.observation, leaf)
        for column, feature in enumerate(columns):
            if unlike[..., column].any():
                return f"{leaf}.{feature.name}"
    for name, mask in inputs.masks.items():
        if not torch.equal(mask, getattr(other.masks, name)):
            return f"masks.{name}"
    return ""
