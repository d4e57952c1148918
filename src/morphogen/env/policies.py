"""Arm behind a name: the policy that PPO trains, a saved policy, a baseline, or one of a file."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config import files
from morphogen.config.config_files import parse_config
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.parts import FILE_POLICIES, LEARNERS, NETWORKS, POLICIES
from morphogen.config.registry import error_line, show_part
from morphogen.config.spec import RunSpec
from morphogen.env.action_control import ActionControl
from morphogen.env.part_check import raise_fault
from morphogen.env.policy_check import policy_fault
from morphogen.env.setup import Setup
from morphogen.errors import CheckpointError, ConfigError
from morphogen.policy.heuristic import HeuristicPolicy, build_heuristic
from morphogen.policy.policy import NetworkPolicy, Policy
from morphogen.policy.policy_files import load_policy
from morphogen.policy.policy_network import PolicyNetwork
from morphogen.ppo.learner import Learner
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tensor_trees import restore_tree
from morphogen.vocab.limits import Limits
from morphogen.vocab.paths import expand_path
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.text import format_value, short_repr, suggest

TRAINED_PREFIX = "trained:"  # before a run directory or a policy file


@short_repr
class Arm(NamedTuple):
    """A policy to play: its parameters, and the control that narrows its choices, if any.

    `build_arm` builds it by name.  `TrainResult.arm` is the policy of a run.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> arm = mg.build_arm("random", env.setup)
        >>> mg.play(env, mg.Arm(arm.policy, None, arm.params, name="mine")).policy
        'mine'
    """

    policy: Policy
    control: ActionControl | None
    """None: every legal action."""
    # Any, because pyright loses the type of an attribute that is declared as a TensorDict.
    params: Any
    """TensorDict without batch size."""
    name: str = "policy"


@dataclass(frozen=True, slots=True)
class Greedy:
    """A policy restricted to its likeliest action."""

    policy: Policy

    @property
    def purpose(self) -> Purpose:
        """Purpose of the random stream of the policy."""
        return self.policy.purpose

    def init(self, key: Tensor) -> TensorDict:
        """Parameters of the policy."""
        return self.policy.init(key)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Initial memory of the policy, [E]."""
        return self.policy.initial_hidden(envs, device=device)

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Choose the action without noise."""
        return self.policy.act(params, obs, masks, hidden, torch.zeros_like(noise))


def greedy_arm(arm: Arm) -> Arm:
    """Return an arm whose policy takes its likeliest actions."""
    return arm._replace(policy=Greedy(arm.policy))


def build_arm(name: str, setup: Setup) -> Arm:
    """Build the arm of a name for the networks of a run; a trainable policy has its initial
    parameters.

    Args:
        name: `ppo` or another learner, a baseline or registered policy, `trained:PATH` for the
            policy of a run directory or of a policy file, or a registered policy of a file, such
            as `reactive:FILE` for the heuristic with the thresholds of a file.
        setup: of an environment or a scheduler.

    Raises: ConfigError for an unknown name, CheckpointError for a policy file that is damaged.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> arm = mg.build_arm("heuristic", env.setup)
        >>> type(arm.policy).__name__, arm.control, arm.name
        ('HeuristicPolicy', None, 'heuristic')
    """
    spec = setup.spec
    if name.startswith(TRAINED_PREFIX):
        return _load_arm(name.removeprefix(TRAINED_PREFIX), setup)
    if name in LEARNERS:
        return _init_arm(name, build_network_policy(spec), setup)
    return _init_arm(name, _build_policy(name, setup), setup)


def load_heuristic(path: str, spec: RunSpec, limits: Limits) -> HeuristicPolicy:
    """Build the heuristic with the thresholds of a file, as `morphogen tune --family reactive`
    writes them.

    Raises: ConfigError for a file that cannot be read or has other contents.
    """
    place = expand_path(path)
    try:
        settings = files.parse_json(files.read_bytes(place))
        if not isinstance(settings.get("heuristic"), dict):
            raise ConfigError(f"expected settings heuristic.*, got {format_value(settings)}")
        thresholds = HeuristicSpec(**settings["heuristic"])
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place} cannot be used: {error_line(error)}") from None
    return build_heuristic(replace(spec, heuristic=thresholds), limits)


def build_network_policy(spec: RunSpec) -> NetworkPolicy:
    """Build the trained policy of a run, around the network that the spec names."""
    name = spec.policy.network
    part = NETWORKS[name]
    network = part if hasattr(part, "unroll") else NETWORKS.call(name, spec)
    if not isinstance(network, PolicyNetwork):
        raise ConfigError(
            f"{NETWORKS.source(name)}: expected a PolicyNetwork, got {show_part(network)}"
        )
    return NetworkPolicy(network, spec.policy.floor)


def build_learner(spec: RunSpec) -> Learner | None:
    """Build the learner of a run; None for a policy that is not trained."""
    return LEARNERS.get(spec.policy_name)


def check_policy(setup: Setup) -> None:
    """Build the policy of a run, and let a network from outside act once.

    Raises: ConfigError for a policy that cannot be built, or whose results have another form.
    """
    spec = setup.spec
    policy = build_arm(spec.policy_name, setup).policy
    if isinstance(policy, NetworkPolicy) and spec.policy.network not in NETWORKS.builtin():
        raise_fault(NETWORKS.source(spec.policy.network), policy_fault, policy, setup)


def _build_policy(name: str, setup: Setup) -> Policy:
    """Build a policy that is not trained."""
    kind, _, path = name.partition(":")
    if kind in FILE_POLICIES and path:
        return FILE_POLICIES.call(kind, path, setup.spec, setup.limits)
    if name not in POLICIES:
        known = [*LEARNERS, *POLICIES]
        from_files = "".join(f"{each}:FILE, " for each in FILE_POLICIES)
        raise ConfigError(
            f"arm: expected one of {', '.join(known)}, {from_files}or {TRAINED_PREFIX}PATH, "
            f"got {name!r}{suggest(name, known)}"
        )
    part = POLICIES[name]
    policy = part if hasattr(part, "act") else POLICIES.call(name, setup.spec, setup.limits)
    if not all(hasattr(policy, method) for method in ("init", "initial_hidden", "act")):
        raise ConfigError(
            f"{POLICIES.source(name)}: expected an object with init, initial_hidden and act, got "
            f"{show_part(policy)}"
        )
    return policy


def _init_arm(name: str, policy: Policy, setup: Setup) -> Arm:
    params = policy.init(rng.env_keys(setup.spec.seed, 0, 1, setup.device)[0])
    build_control = getattr(policy, "control", None)
    control = None if build_control is None else build_control(setup.device)
    return Arm(policy, control, params, name)


def _load_arm(path: str, setup: Setup) -> Arm:
    """Load a policy file of any run: a network does not depend on the slots of its run."""
    saved = load_policy(path)
    name = saved["facts"].get("policy")
    if not isinstance(name, str) or name.startswith(TRAINED_PREFIX):
        raise CheckpointError(
            f"policy file {path}: policy: expected the name of a policy, got {format_value(name)}"
        )
    if name not in LEARNERS:
        return build_arm(name, setup)
    try:
        policy = build_network_policy(parse_config(saved["config"]))
    except ConfigError as error:
        raise CheckpointError(f"policy file {path}: config: {error}") from None
    arm = _init_arm(name, policy, setup)
    return arm._replace(
        params=restore_tree(saved["params"] | saved["normalisers"], arm.params, path)
    )
