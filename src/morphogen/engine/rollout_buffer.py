"""The rollout buffer: `[T, E]`, allocated once, row t overwritten whole by epoch t."""

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.engine.epoch import Epoch
from morphogen.state.decision import ActionMasks, Observation
from morphogen.state.tree_ops import unsafe_new
from morphogen.storage.tensor_trees import restore_tree
from morphogen.vocab.action import SIZES, Head
from morphogen.vocab.observation import ENV, INSTANCE, SLOT


class Rollout:
    """Rows of a round for the update."""

    def __init__(self, length: int, *, envs: int, slots: int, device: torch.device | str = "cpu") -> None:
        row = _empty_row(envs, slots).to(device)
        self.rows = row.expand(length, envs).clone()

    def write(self, t: int, epoch: Epoch, reset_before: Tensor) -> None:
        """Overwrite row t.  reset_before bool [E]: the row starts a segment, its hidden state is 0."""
        self.rows[t].update_(_build_row(epoch, reset_before))

    def restore(self, saved: Any, epochs: int, where: str) -> None:
        """Take over the first rows of a buffer like this one; what does not fit is a CheckpointError."""
        rows = self.rows[:epochs]
        rows.update_(restore_tree(saved, rows, where))


def _empty_row(envs: int, slots: int) -> TensorDict:
    """A row of zeros."""
    real, whole, flag = torch.float32, torch.int64, torch.bool

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(envs, *shape, dtype=dtype)

    observation = Observation(
        env=zeros(real, len(ENV)),
        instance=zeros(real, len(INSTANCE)),
        slots=zeros(real, slots, len(SLOT)),
        blueprints=zeros(whole, slots),
        finite=zeros(flag),
        nonfinite=zeros(whole),
        batch_size=[envs],
    )
    heads = {head.name.lower(): zeros(flag, SIZES[head]) for head in Head if head not in (Head.OP, Head.SLOT)}
    ops = SIZES[Head.OP]
    masks = ActionMasks(op=zeros(flag, ops), slot=zeros(flag, ops, slots), **heads, batch_size=[envs])
    row = {
        "observation": observation,
        "masks": masks,
        "action": zeros(whole, len(Head)),
        "log_prob": zeros(real, len(Head)),
        "value": zeros(real),
        "reward": zeros(real),
        "terminated": zeros(flag),
        "truncated": zeros(flag),
        "next_value": zeros(real),
        "reset_before": zeros(flag),
        "forced": zeros(flag),
        "contribution": zeros(real, slots),
        "contribution_valid": zeros(flag, slots),
    }
    return TensorDict(row, batch_size=[envs])


def _build_row(epoch: Epoch, reset_before: Tensor) -> TensorDict:
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
    return unsafe_new(TensorDict, score, **row)
