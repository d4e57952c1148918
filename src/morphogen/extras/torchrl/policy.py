"""Policies in both directions: ours as a TorchRL actor, a TorchRL actor as ours; the distribution
over actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase  # pyright: ignore[reportMissingTypeStubs]
from torch import Tensor
from torch.distributions import Distribution, constraints
from torchrl.data import Composite, Unbounded  # pyright: ignore[reportMissingTypeStubs]
from torchrl.envs import (  # pyright: ignore[reportMissingTypeStubs]
    ExplorationType,
    TensorDictPrimer,
    exploration_type,
    set_exploration_type,
)

from morphogen.env import actions
from morphogen.env.flat_inputs import flatten_inputs
from morphogen.env.phases import PolicyInputs
from morphogen.env.policies import Arm
from morphogen.errors import ConfigError
from morphogen.policy import distribution
from morphogen.policy.baselines import ParameterFree, deterministic_output
from morphogen.policy.distribution import NO_FLOOR, FactoredCategorical, Floor, LogitTables, Support
from morphogen.policy.policy import get_branch
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import choose, expand_mask, get_leaf, get_leaves
from morphogen.vocab.action import HEADS
from morphogen.vocab.observation import ENV, SLOT
from morphogen.vocab.purpose import Purpose

IN_KEYS = ("observation", "instance", "blueprints", *(("mask", head) for head in HEADS))


class FactoredDistribution(Distribution):
    """Distribution over complete actions: op, then its slot, then the values that the op uses.

    Events int64 [8] in the order of `vocab.action.Head`; every sample is legal, and heads that the
    op does not use count in no probability.

    Args:
        op, slot, value: logits float32 [..., 6], [..., 6, S], [..., S, 10, 13]
        (`policy.distribution.LogitTables`).
        mask: legal choices: `ActionMasks`, the `mask` of `MorphogenEnv`, or
        `policy.distribution.Support`.
        floor: smallest probability of a legal choice, per head.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> start = mg.make_env("tiny", envs=2, seed=0).reset()
        >>> logits = torch.zeros(2, 6), torch.zeros(2, 6, 2), torch.zeros(2, 2, 10, 13)
        >>> actions = mg.FactoredDistribution(*logits, mask=start["mask"])
        >>> actions.mode.shape, actions.log_prob(actions.mode).shape, actions.entropy().shape
        (torch.Size([2, 8]), torch.Size([2]), torch.Size([2]))
    """

    def __init__(
        self,
        op: Tensor,
        slot: Tensor,
        value: Tensor,
        mask: ActionMasks | TensorDictBase | Support,
        floor: Floor = NO_FLOOR,
    ) -> None:
        if isinstance(mask, TensorDictBase):
            mask = _masks(mask)
        legal = mask if isinstance(mask, Support) else distribution.build_support(mask)
        tables = LogitTables(op, slot, value)
        self.factored: FactoredCategorical = distribution.normalise_tables(tables, legal, floor)
        super().__init__(op.shape[:-1], torch.Size([len(HEADS)]), validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """No constraints: logits are free."""
        return {}

    def sample_with(self, noise: Tensor) -> Tensor:
        """Sample an action int64 [..., 8] from Gumbel noise float32 [..., 38 + S]; zeros give the
        greedy action.
        """
        return distribution.sample_action(self.factored, noise)[0]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Sample actions with the default generator of torch, int64 [*sample_shape, ..., 8]."""
        op, slot, _ = self.factored.floored
        size = torch.Size(sample_shape)
        noise = gumbel_noise((size.numel(), *op.shape[:-1]), slot.shape[-1], op.device)
        return torch.stack([self.sample_with(row) for row in noise]).view(
            *size, *op.shape[:-1], len(HEADS)
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Joint log-probability in nats.  int64 [..., 8] -> float32 [...]."""
        return distribution.head_log_prob(self.factored, value).sum(-1)

    def entropy(self) -> Tensor:
        """Exact entropy of the complete action in nats, float32 [...]."""
        return distribution.action_entropy(self.factored)

    @property
    def mode(self) -> Tensor:
        """The greedy action, int64 [..., 8]."""
        op = self.factored.floored.op
        lanes = distribution.noise_lanes(self.factored.floored.slot.shape[-1])
        return self.sample_with(op.new_zeros(*op.shape[:-1], lanes))

    @property
    def deterministic_sample(self) -> Tensor:
        """The greedy action."""
        return self.mode


def gumbel_noise(shape: Sequence[int], slots: int, device: torch.device) -> Tensor:
    """Draw Gumbel noise for actions with the default generator of torch, float32 [*shape, 38 +
    S].
    """
    uniform = torch.rand(
        *shape, distribution.noise_lanes(slots), dtype=torch.float32, device=device
    )
    tiny = torch.finfo(uniform.dtype).tiny
    return -torch.log((-torch.log(uniform.clamp(min=tiny))).clamp(min=tiny))


class PolicyActor(TensorDictModuleBase):
    """An arm of this package as a TorchRL actor, with fixed parameters.

    Reads the keys of `MorphogenEnv`, `is_init` of the transform `InitTracker`, which marks the
    starts of segments, and `memory`, for which an environment needs the transform
    `make_tensordict_primer`, as for TorchRL's `LSTMModule`. Writes `action`, `state_value`,
    `action_log_prob` (joint, nats) and the next `memory`.  Samples with the default generator of
    torch, or takes the likeliest action under `ExplorationType.DETERMINISTIC`.  A `Collector` with
    `auto_register_policy_transforms=True` adds both transforms by itself.

    Args:
        arm: of `build_arm`, or `TrainResult.arm`.  The control of an arm belongs to the
            environment: `make_env(..., control=arm.control)` with the actor of
            `arm._replace(control=None)`.

    Raises: ConfigError for an arm with a control.

    Source: A. Bou et al., TorchRL: A data-driven decision-making library for PyTorch (2023).

    Example:
        >>> import morphogen as mg
        >>> from torchrl.envs import Compose, InitTracker, TransformedEnv
        >>> env = mg.make_env("tiny", envs=2, seed=0)
        >>> actor = mg.PolicyActor(mg.build_arm("ppo", env.functional.setup))
        >>> env = TransformedEnv(env, Compose(InitTracker(), actor.make_tensordict_primer()))
        >>> env.rollout(3, actor)["next", "reward"].shape
        torch.Size([2, 3, 1])
    """

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        if arm.control is not None:
            raise ConfigError(
                f"arm: {arm.name} has a control: make the environment with it, "
                "control=arm.control, and hand in "
                "arm._replace(control=None)"
            )
        self.policy = arm.policy
        self.params = arm.params
        memory = [("memory", name) for name in arm.policy.initial_hidden(1).sorted_keys]
        keys = cast(Any, self)  # TorchRL declares flat keys only
        keys.in_keys = [*IN_KEYS, *(["is_init", *memory] if memory else [])]
        keys.out_keys = [*(("action", head) for head in HEADS), "state_value", "action_log_prob"]

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """Return the transform that carries the memory of the policy from step to step."""
        leaves = get_leaves(self.policy.initial_hidden(1))
        specs = {name: Unbounded(leaf.shape[1:], dtype=leaf.dtype) for name, leaf in leaves.items()}
        return TensorDictPrimer({"memory": Composite(specs)} if specs else {}, expand_specs=True)

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every env.  tensordict [E].

        Raises: ConfigError for an environment without the transforms that carry the memory.
        """
        inputs = restore_inputs(tensordict)
        envs = tensordict.shape[0]
        slots = inputs.masks.slot.shape[-1]
        device = inputs.observation.env.device
        memory = self.policy.initial_hidden(envs, device=device)
        if not memory.is_empty():
            missing = {"is_init", "memory"} - {*cast(Any, tensordict).keys()}
            if missing:
                raise ConfigError(
                    f"{', '.join(sorted(missing))}: expected keys of the environment, got "
                    "none: the memory of a policy "
                    "needs the transforms InitTracker() and actor.make_tensordict_primer()"
                )
            start = get_leaf(tensordict, "is_init").view(-1)
            before = get_leaves(get_branch(tensordict, "memory"))
            cleared = {
                name: choose(expand_mask(start, leaf), 0, leaf) for name, leaf in before.items()
            }
            memory = TensorDict(cleared, batch_size=[envs])
        greedy = exploration_type() in (ExplorationType.DETERMINISTIC, ExplorationType.MODE)
        noise = gumbel_noise((envs,), slots, device)
        choice = self.policy.act(
            self.params,
            inputs.observation,
            inputs.masks,
            memory,
            torch.zeros_like(noise) if greedy else noise,
        )
        tensordict["action"] = actions.to_heads(choice.action)
        tensordict["state_value"] = choice.value.unsqueeze(-1)
        tensordict["action_log_prob"] = choice.log_prob.sum(-1)
        if not choice.hidden.is_empty():
            # unlocked, for the keys that a step adds
            tensordict["next", "memory"] = choice.hidden.copy()
        return tensordict


@dataclass(frozen=True)
class ActorPolicy(ParameterFree):
    """A TorchRL actor without memory as a policy of this package: it takes its deterministic
    action.

    The actor reads keys of `MorphogenEnv` and writes `action`, int64 [E] per head.  Its module
    holds the parameters.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0, instances="held-out")
        >>> actor = mg.PolicyActor(mg.build_arm("random", env.setup))
        >>> mg.play(env, mg.ActorPolicy(actor)).network_value.shape
        (2,)
    """

    actor: TensorDictModuleBase

    purpose: ClassVar[Purpose] = Purpose.ACTION

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Return the action that the actor takes.  All [E]; params and noise have no effect."""
        leaves = flatten_inputs(PolicyInputs(obs, masks, ~obs.finite))
        tensordict = TensorDict(leaves, obs.batch_size, device=noise.device)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            action = actions.to_tensor(self.actor(tensordict)["action"])
        return deterministic_output(action, masks, hidden)


def restore_inputs(tensordict: TensorDictBase) -> PolicyInputs:
    """Return tensors by name, [...], as the inputs of a policy, the inverse of `flatten_inputs`."""
    features = get_leaf(tensordict, "observation")
    shape = tensordict.batch_size
    slots = torch.unflatten(features[..., len(ENV) :], -1, (-1, len(SLOT)))
    good = torch.ones(shape, dtype=torch.bool, device=features.device)
    observation = Observation(
        env=features[..., : len(ENV)],
        instance=tensordict["instance"],
        slots=slots,
        blueprints=tensordict["blueprints"],
        finite=good,
        nonfinite=torch.zeros_like(good, dtype=torch.int64),
        batch_size=shape,
    )
    masks = _masks(get_branch(tensordict, "mask"))
    return PolicyInputs(observation, masks, ~good)


def _masks(tensordict: Any) -> ActionMasks:
    """Return the masks of a tensordict."""
    kind: Any = ActionMasks
    return kind.from_tensordict(tensordict)
