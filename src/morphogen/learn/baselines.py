"""Policies without learning, run like the learned policy: same observations, masks, decoding, noise, memory."""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import LifecycleSpec
from morphogen.errors import ConfigError
from morphogen.learn.heuristic import HeuristicPolicy, ParameterFree, blueprint_rotation, deterministic_output
from morphogen.nets.distribution import (
    NO_FLOOR,
    ROWS,
    WIDTH,
    LogitTables,
    build_lookups,
    build_support,
    head_entropy,
    normalise_tables,
    sample_action,
)
from morphogen.nets.policy import Policy
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.vocab.limits import Limits

BASELINES = ("random", "heuristic")


@dataclass(frozen=True)
class RandomPolicy(ParameterFree):
    """Uniform over the legal ops, then over their legal slots, then over the values.  Under a control: as declared."""

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """Sample a legal action.  noise float32 [E, 38 + S], standard Gumbel."""
        legal = build_support(masks)
        shape = (*legal.slot.shape[:-2], legal.slot.shape[-1], len(ROWS), WIDTH)
        even = LogitTables(
            *(torch.zeros(part, device=noise.device) for part in (legal.op.shape, legal.slot.shape, shape))
        )
        dist = normalise_tables(even, legal, build_lookups(NO_FLOOR, noise.device))
        action = sample_action(dist, noise)
        out = deterministic_output(action, masks, hidden)
        return out.replace(op_prob=dist.floored.op.exp(), entropy=head_entropy(dist, action))


def make_baseline(name: str, limits: Limits, *, lifecycle: LifecycleSpec, episode_length: int) -> Policy:
    """Build a baseline by name.  Raises ConfigError for an unknown name."""
    if name == "heuristic":
        least = 0.5 if lifecycle.permissive_gates else max(0.5, lifecycle.min_contribution)
        return HeuristicPolicy(
            rotation=blueprint_rotation(limits),
            episode_length=episode_length,
            min_training_epochs=lifecycle.min_training_epochs,
            min_contribution=least,
        )
    if name not in BASELINES:
        raise ConfigError(f"policy_name: expected one of {', '.join(BASELINES)}, got {name!r}")
    return RandomPolicy()
