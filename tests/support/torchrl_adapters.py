"""Adapters to TorchRL: the action distribution as a `torch.distributions` class, a rollout as a batch."""

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.distributions import Distribution

from morphogen.nets import distribution
from morphogen.nets.distribution import NO_FLOOR, FactoredCategorical, Floor, LogitTables, Support
from morphogen.vocab.action import HEADS


class FactoredDistribution(Distribution):
    """The factored distribution over actions: events int64 [8], log-prob of the complete action.

    Shapes: tables op [..., 6], slot [..., 6, S], value [..., S, 10, 13]; masks bool, value [..., 10, 13].
    """

    def __init__(self, tables: LogitTables, masks: Support, floor: Floor = NO_FLOOR) -> None:
        self.factored: FactoredCategorical = distribution.normalise_tables(
            tables, masks, distribution.build_lookups(floor, tables.op.device)
        )
        super().__init__(tables.op.shape[:-1], torch.Size([len(HEADS)]), validate_args=False)

    def sample_with(self, noise: Tensor) -> Tensor:
        """Sample an action from Gumbel noise [..., 38 + S]."""
        return distribution.sample_action(self.factored, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """Joint log-probability.  int64 [..., 8] -> [...]."""
        return distribution.head_log_prob(self.factored, value).sum(-1)

    def entropy(self) -> Tensor:
        """Exact entropy of the complete action, nats."""
        return distribution.action_entropy(self.factored)

    @property
    def mode(self) -> Tensor:
        """The greedy action, int64 [..., 8]."""
        op = self.factored.floored.op
        lanes = distribution.noise_lanes(self.factored.floored.slot.shape[-1])
        return distribution.sample_action(self.factored, op.new_zeros(*op.shape[:-1], lanes))

    @property
    def deterministic_sample(self) -> Tensor:
        """The greedy action."""
        return self.mode


def to_torchrl(rollout: TensorDict) -> TensorDict:
    """Convert a rollout [T, E] to the layout of TorchRL: [E, T], rewards and ends [E, T, 1] under `next`."""
    swapped = rollout.transpose(0, 1)
    column = {
        name: swapped[name].unsqueeze(-1) for name in ("reward", "terminated", "truncated", "value", "reset_before")
    }
    ends = {"terminated": column["terminated"], "done": column["terminated"] | column["truncated"]}
    batch = {
        "observation": swapped["observation"],
        "masks": swapped["masks"],
        "is_init": column["reset_before"],
        "state_value": column["value"],
        "action_index": swapped["action"],
        "action_index_log_prob": swapped["log_prob"].sum(-1),
        "next": {"reward": column["reward"], **ends},
    }
    return TensorDict(batch, batch_size=swapped.batch_size)
