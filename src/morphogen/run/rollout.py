"""The rollout buffer: `[T, E]`, allocated once, row t overwritten whole by epoch t."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.run.world import Epoch


class Rollout:
    """What the update reads of a round."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rows: TensorDict | None = None

    def write(self, t: int, epoch: Epoch, reset_before: Tensor) -> None:
        """Overwrite row t.  reset_before bool [E]: the row starts a segment, its hidden state is 0."""
        row = _row(epoch, reset_before)
        rows = self.rows = row.expand(self.length, *row.batch_size).clone() if self.rows is None else self.rows
        rows[t].update_(row)

    def whole(self) -> TensorDict:
        """All rows, [T, E]."""
        if self.rows is None:
            raise ValueError("no epoch was written to this rollout")
        return self.rows


def _row(epoch: Epoch, reset_before: Tensor) -> TensorDict:
    choice, score, worth = epoch.choice, epoch.score, epoch.attribution
    fresh = worth.contribution_valid & ~epoch.report.rolled_back.unsqueeze(-1)
    nothing = torch.zeros_like(score.reward)
    row = {
        "observation": epoch.observation,
        "masks": epoch.masks,
        "action": choice.action,
        "log_prob": choice.log_prob,
        "value": choice.value,
        "reward": score.reward,
        "terminated": score.terminated,
        "truncated": torch.zeros_like(score.terminated),
        "next_value": nothing,
        "reset_before": reset_before,
        "forced": choice.forced,
        "contribution": torch.where(fresh, worth.contribution, 0.0),
        "contribution_valid": fresh,
    }
    return TensorDict(row, batch_size=score.batch_size, device=score.device)
