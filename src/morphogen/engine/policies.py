"""The arm behind a name: the policy that PPO trains, a saved one, a baseline, or a schedule."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.config_files import parse_config
from morphogen.config.spec import RunSpec
from morphogen.engine.action_control import ScheduleControl, build_control, load_schedule
from morphogen.engine.optimum import OPTIMAL, optimal_policy
from morphogen.engine.setup import Setup
from morphogen.errors import CheckpointError, ConfigError
from morphogen.learn import baselines
from morphogen.nets.policy import Policy, RecurrentPolicy
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.storage.checkpoint_files import load_policy
from morphogen.storage.tensor_trees import restore_tree
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.text import format_value

TRAINED_PREFIX = "trained:"  # before a run directory or a policy file


class Arm(NamedTuple):
    """Policy, action control and parameters of an arm."""

    policy: Policy
    control: ScheduleControl | None  # None = whatever is legal
    params: TensorDict


@dataclass(frozen=True, slots=True)
class Greedy:
    """A policy that always takes its likeliest action."""

    policy: Policy

    @property
    def purpose(self) -> Purpose:
        """Purpose of the random stream of the policy."""
        return self.policy.purpose

    def init(self, key: Tensor) -> TensorDict:
        """Parameters of the policy."""
        return self.policy.init(key)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """The empty memory of the policy, [E]."""
        return self.policy.initial_hidden(envs, device=device)

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """The action without noise."""
        return self.policy.act(params, obs, masks, hidden, torch.zeros_like(noise))


def build_arm(name: str, setup: Setup) -> Arm:
    """The arm that a spec or a comparison names, for the networks of a run; a policy that learns is as at its start."""
    spec = setup.spec
    if name.startswith(TRAINED_PREFIX):
        return _load_arm(name.removeprefix(TRAINED_PREFIX), setup)
    if name == "ppo":
        return _init_arm(build_network_policy(spec), None, setup)
    if name == OPTIMAL:
        return _init_arm(optimal_policy(setup), None, setup)
    schedule = setup.schedule if name == spec.policy_name else load_schedule(name, spec)
    if schedule is not None:
        return _init_arm(baselines.RandomPolicy(), build_control(schedule, spec, setup.device), setup)
    own = baselines.make_baseline(name, setup.limits, lifecycle=spec.lifecycle, episode_length=spec.episode_length)
    return _init_arm(own, None, setup)


def build_network_policy(spec: RunSpec) -> RecurrentPolicy:
    """The policy network of a run."""
    return RecurrentPolicy(
        hidden=spec.policy.hidden,
        blueprint_dim=spec.policy.blueprint_dim,
        floor=spec.policy.floor,
        contribution=spec.ppo.contribution_coef > 0,
        op_bias=spec.policy.op_bias,
        full_bias=spec.policy.full_bias,
    )


def _init_arm(policy: Policy, control: ScheduleControl | None, setup: Setup) -> Arm:
    return Arm(policy, control, policy.init(rng.env_keys(setup.spec.seed, 0, 1, setup.device)[0]))


def _load_arm(path: str, setup: Setup) -> Arm:
    """Load a policy file of any run: a network does not depend on the slots that it looks at."""
    found = load_policy(Path(path))
    name = found["facts"].get("policy")
    if name != "ppo":
        return build_arm(_baseline_name(name, path), setup)
    try:
        policy = build_network_policy(parse_config(found["config"]))
    except ConfigError as error:
        raise CheckpointError(f"policy file {path} has a config that cannot be used: {error}") from None
    arm = _init_arm(policy, None, setup)
    return arm._replace(params=restore_tree({**found["params"], **found["normalisers"]}, arm.params, path))


def _baseline_name(name: object, path: str) -> str:
    if not isinstance(name, str) or name.startswith(TRAINED_PREFIX):
        raise CheckpointError(f"policy file {path} is of the policy {format_value(name)}, which is none")
    return name
