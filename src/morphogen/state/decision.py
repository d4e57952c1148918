"""Interface of a decision: observation, masks, output of a policy, decoded action, outcome.
batch_size [E].
"""

import torch
from torch import Tensor

from morphogen.state.tree_ops import FrozenTree, TensorDictField
from morphogen.vocab.observation import ENV, INSTANCE, SLOT
from morphogen.vocab.text import short_repr


@short_repr
class Observation(FrozenTree):
    """Raw features of the envs, all finite; tables of the features in `vocab.observation`."""

    env: Tensor
    """float32 [E, 52]."""
    instance: Tensor
    """float32 [E, 8]."""
    slots: Tensor
    """float32 [E, S, 46]."""
    blueprints: Tensor
    """int64 [E, S], a `Blueprint`; -1 without a seed."""
    finite: Tensor
    """bool [E], no raw feature was replaced."""
    nonfinite: Tensor
    """int64 [E], raw features that were replaced."""


def join_vectors(env: Tensor, instance: Tensor, slots: Tensor) -> Tensor:
    """Join the vectors of an observation, and a 1: the flag of features without one
    (`vocab.observation`).

    Shapes: env [..., 52], instance [..., 8], slots [..., S, 46] -> [..., 60 + 46 S + 1].
    """
    return torch.cat((env, instance, slots.flatten(-2), torch.ones_like(instance[..., :1])), dim=-1)


def split_vectors(row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split a row of `join_vectors` into views of env, instance and slots."""
    width = len(ENV) + len(INSTANCE)
    slots = torch.unflatten(row[..., width:-1], -1, (-1, len(SLOT)))
    return row[..., : len(ENV)], row[..., len(ENV) : width], slots


@short_repr
class ActionMasks(FrozenTree):
    """Legal choices of every head; True = allowed."""

    op: Tensor
    """bool [E, 6]."""
    slot: Tensor
    """bool [E, 6, S], legal slots of every op."""
    blueprint: Tensor
    """bool [E, 13]."""
    style: Tensor
    """bool [E, 4]."""
    tempo: Tensor
    """bool [E, 3]."""
    alpha_target: Tensor
    """bool [E, 3]."""
    alpha_speed: Tensor
    """bool [E, 4]."""
    alpha_curve: Tensor
    """bool [E, 5]."""


@short_repr
class ActionSpec(FrozenTree):
    """A decoded action, valid by construction: an invalid request becomes WAIT with a reason."""

    requested_op: Tensor
    """int64 [E], column 0 of the action, clamped to 0..5."""
    op: Tensor
    """int64 [E], op to execute."""
    slot: Tensor
    """int64 [E]."""
    target: Tensor
    """bool [E, S], one-hot of `slot`; all False where the op has none."""
    blueprint: Tensor
    """int64 [E], -1 not used."""
    algorithm: Tensor
    """int64 [E], 0 not used."""
    tempo: Tensor
    """int64 [E], epochs, 0 not used."""
    alpha_target: Tensor
    """float32 [E], 0 not used."""
    alpha_steps: Tensor
    """int64 [E], ticks, 0 not used."""
    curve: Tensor
    """int64 [E], 0 not used."""
    steepness: Tensor
    """float32 [E], 12 not used."""
    valid: Tensor
    """bool [E]."""
    reason: Tensor
    """int64 [E], a `Reason`; 0 where valid."""


@short_repr
class ActionOutcome(FrozenTree):
    """Result of an action."""

    outcome: Tensor
    """int64 [E], an `Outcome`."""
    executed: Tensor
    """bool [E]."""
    effective_op: Tensor
    """int64 [E], WAIT for INVALID, VETOED and ENDED, else the op."""
    reason: Tensor
    """int64 [E], a `Reason`."""
    gate: Tensor
    """int64 [E], gate that was checked; 0 = no gate."""
    gate_failed: Tensor
    """int64 [E], bit `1 << check` for every `Check` that failed."""
    target: Tensor
    """bool [E, S], as in `ActionSpec`."""


@short_repr
class ActOutput(FrozenTree):
    """Decision of a policy.  Heads that the op does not use have log-prob and entropy 0; a
    baseline's values are 0.
    """

    action: Tensor
    """int64 [E, 8], one value per head."""
    log_prob: Tensor
    """float32 [E, 8], nats."""
    value: Tensor
    """float32 [E], return units."""
    hidden: TensorDictField
    """[E], memory after this step."""
    op_prob: Tensor
    """float32 [E, 6]."""
    entropy: Tensor
    """float32 [E, 8], nats, of the distribution that each head was drawn from."""
    choices: Tensor
    """int64 [E], distinct complete actions."""
    forced: Tensor
    """bool [E], only one choice."""
