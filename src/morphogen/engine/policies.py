"""The arm behind a name: the policy that PPO trains, a saved one, a baseline, or a schedule."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.config_files import load_config
from morphogen.config.spec import RunSpec
from morphogen.engine.action_control import Control, control_of, schedule_of
from morphogen.engine.optimum import OPTIMAL, optimal
from morphogen.engine.setup import Setup
from morphogen.errors import CheckpointError, ConfigError
from morphogen.learn import baselines
from morphogen.nets.policy import Policy, RecurrentPolicy
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.storage.checkpoint_files import load_policy
from morphogen.storage.tensor_trees import restored
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.text import show

TRAINED = "trained:"  # before a run directory or a policy file


class Arm(NamedTuple):
    """Who decides, what narrows the choice, and the parameters of who decides."""

    policy: Policy
    control: Control | None  # None = whatever is legal
    params: TensorDict


@dataclass(frozen=True, slots=True)
class Greedy:
    """A policy that always takes its likeliest action."""

    of: Policy

    @property
    def purpose(self) -> Purpose:
        """What its noise would be drawn for."""
        return self.of.purpose

    def init(self, key: Tensor) -> TensorDict:
        """Parameters of the policy."""
        return self.of.init(key)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """The empty memory of the policy, [E]."""
        return self.of.initial_hidden(envs, device=device)

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """The action without noise."""
        return self.of.act(params, obs, masks, hidden, torch.zeros_like(noise))


def arm_of(name: str, setup: Setup) -> Arm:
    """The arm that a spec or a comparison names, for the networks of a run; a policy that learns is as at its start."""
    spec = setup.spec
    if name.startswith(TRAINED):
        return _saved(name.removeprefix(TRAINED), setup)
    if name == "ppo":
        return _fresh(learned(spec), None, setup)
    if name == OPTIMAL:
        return _fresh(optimal(setup), None, setup)
    schedule = setup.schedule if name == spec.policy_name else schedule_of(name, spec)
    if schedule is not None:
        return _fresh(baselines.Random(), control_of(schedule, spec, setup.device), setup)
    own = baselines.make(name, setup.limits, lifecycle=spec.lifecycle, episode_length=spec.episode_length)
    return _fresh(own, None, setup)


def learned(spec: RunSpec) -> RecurrentPolicy:
    """The policy network of a run."""
    return RecurrentPolicy(
        hidden=spec.policy.hidden,
        blueprint_dim=spec.policy.blueprint_dim,
        floor=spec.policy.floor,
        contribution=spec.ppo.contribution_coef > 0,
        op_bias=spec.policy.op_bias,
        full_bias=spec.policy.full_bias,
    )


def _fresh(policy: Policy, control: Control | None, setup: Setup) -> Arm:
    return Arm(policy, control, policy.init(rng.env_keys(setup.spec.seed, 0, 1, setup.device)[0]))


def _saved(place: str, setup: Setup) -> Arm:
    """What a policy file holds, whatever run it is of: a network does not depend on the slots that it looks at."""
    found = load_policy(Path(place))
    name = found["facts"].get("policy")
    if name != "ppo":
        return arm_of(_baseline(name, place), setup)
    try:
        policy = learned(load_config(found["config"]))
    except ConfigError as error:
        raise CheckpointError(f"policy file {place} has a config that cannot be used: {error}") from None
    arm = _fresh(policy, None, setup)
    return arm._replace(params=restored({**found["params"], **found["normalisers"]}, arm.params, place))


def _baseline(name: object, place: str) -> str:
    if not isinstance(name, str) or name.startswith(TRAINED):
        raise CheckpointError(f"policy file {place} is of the policy {show(name)}, which is none")
    return name
