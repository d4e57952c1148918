"""Policies that do not learn: the parts that they share, and random choices."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.policy import distribution
from morphogen.rules.legality import action_count
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import choose, constant_table
from morphogen.vocab.action import HEADS, PLACEHOLDER, Head, Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.purpose import Purpose

_OP_PRIORITY = {Op.FOSSILIZE: 0, Op.PRUNE: 1, Op.ADVANCE: 2}  # the op that an env executes


class ParameterFree:
    """Base of policies without parameters and, by default, without memory."""

    purpose: ClassVar[Purpose] = Purpose.BASELINE

    def init(self, key: Tensor) -> TensorDict:
        """Return an empty tree of parameters."""
        return TensorDict({}, batch_size=[], device=key.device)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return an empty memory."""
        return TensorDict({}, batch_size=[envs], device=device)


def most_urgent_op(requested: Tensor, masks: ActionMasks) -> tuple[Tensor, Tensor]:
    """Most urgent legal op of each env, else WAIT, and its slot, the lowest of equals.  [E, S] ->
    int64 [E] each.
    """
    slots = requested.shape[1]
    legal = masks.slot.gather(1, requested.unsqueeze(1)).squeeze(1) & (requested != int(Op.WAIT))
    priorities = tuple(_OP_PRIORITY.get(op, len(_OP_PRIORITY)) for op in Op)
    priority = constant_table(priorities, torch.int64, requested.device)
    order = priority[requested] * slots + torch.arange(slots, device=requested.device)
    key = choose(legal, order, len(Op) * slots)
    slot = key.argmin(-1)  # the first of equals, where none is legal
    op = choose(legal, requested, int(Op.WAIT)).gather(1, slot.unsqueeze(1)).squeeze(1)
    return op, slot


def action_of_heads(columns: dict[Head, Tensor]) -> Tensor:
    """Build actions from the columns of some heads, int64 [E]; placeholders in the others.  ->
    int64 [E, 8].
    """
    op = columns[Head.OP]
    action = constant_table(PLACEHOLDER, torch.int64, op.device).repeat(op.shape[0], 1)
    return torch.stack([columns.get(head, action[:, head]) for head in Head], dim=-1)


def deterministic_output(action: Tensor, masks: ActionMasks, hidden: TensorDict) -> ActOutput:
    """Build the output of a policy without probabilities.  action int64 [E, 8]."""
    count = action_count(masks)
    nothing = torch.zeros(action.shape[0], len(HEADS), dtype=torch.float32, device=action.device)
    return ActOutput(
        action=action,
        log_prob=nothing,
        value=nothing[:, 0],
        hidden=hidden,
        op_prob=F.one_hot(action[:, 0], masks.op.shape[-1]).float(),
        entropy=nothing,
        choices=count,
        forced=count == 1,
        batch_size=masks.batch_size,
    )


@dataclass(frozen=True)
class RandomPolicy(ParameterFree):
    """Policy that is uniform over the legal ops, then over their legal slots, then over the values.

    Under a control, which leaves one legal action, it acts as declared.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> _, inputs = mg.make("tiny", envs=1, seed=0).reset()
        >>> policy, noise = mg.policy.RandomPolicy(), torch.zeros(1, 38 + 2)
        >>> out = policy.act(
        ...     policy.init(noise),
        ...     inputs.observation,
        ...     inputs.masks,
        ...     policy.initial_hidden(1),
        ...     noise,
        ... )
        >>> out.op_prob  # WAIT and GERMINATE are legal
        tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]])
    """

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """Sample a legal action.  noise float32 [E, 38 + S], standard Gumbel."""
        legal = distribution.build_support(masks)
        values = legal.value.unsqueeze(-3).expand(-1, legal.slot.shape[-1], -1, -1)
        masks_of_tables = legal.op, legal.slot, values
        even = [torch.zeros_like(mask, dtype=torch.float32) for mask in masks_of_tables]
        tables = distribution.LogitTables(*even)
        dist = distribution.normalise_tables(tables, legal, distribution.NO_FLOOR)
        action, entropy = distribution.sample_action(dist, noise)
        out: Any = deterministic_output(action, masks, hidden)
        return out.replace(op_prob=dist.floored.op.exp(), entropy=entropy)


def build_random(spec: RunSpec, limits: Limits) -> RandomPolicy:
    """Build the policy of uniform legal choices."""
    del spec, limits
    return RandomPolicy()
