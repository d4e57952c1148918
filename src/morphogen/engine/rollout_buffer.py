"""Rollout buffer [T, E], allocated once; epoch t overwrites row t completely."""

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
        choice, score, worth = epoch.act.choice, epoch.score.step, epoch.score.attribution
        fresh = worth.contribution_valid & ~epoch.score.report.rolled_back.unsqueeze(-1)
        row = {
            "observation": epoch.act.observation,
            "masks": epoch.act.masks,
            "action": choice.action,
            "log_prob": choice.log_prob,
            "value": choice.value,
            "reward": score.reward,
            "terminated": score.terminated,
            "truncated": torch.zeros_like(score.terminated),
            "next_value": torch.zeros_like(score.reward),
            "reset_before": reset_before,
            "forced": choice.forced,
            "contribution": torch.where(fresh, worth.contribution, 0.0),
            "contribution_valid": fresh,
        }
        self.rows[t].update_(unsafe_new(TensorDict, score, **row))

    def restore(self, saved: Any, epochs: int, where: str) -> None:
        """Restore the first rows of a saved buffer.  Raises CheckpointError if the buffers differ in form."""
        rows = self.rows[:epochs]
        rows.update_(restore_tree(saved, rows, where))


def _empty_row(envs: int, slots: int) -> TensorDict:
    """Return a row of zeros."""
    real, integer, flag = torch.float32, torch.int64, torch.bool

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(envs, *shape, dtype=dtype)

    observation = Observation(
        env=zeros(real, len(ENV)),
        instance=zeros(real, len(INSTANCE)),
        slots=zeros(real, slots, len(SLOT)),
        blueprints=zeros(integer, slots),
        finite=zeros(flag),
        nonfinite=zeros(integer),
        batch_size=[envs],
    )
    heads = {head.name.lower(): zeros(flag, SIZES[head]) for head in Head if head not in (Head.OP, Head.SLOT)}
    ops = SIZES[Head.OP]
    masks = ActionMasks(op=zeros(flag, ops), slot=zeros(flag, ops, slots), **heads, batch_size=[envs])
    row = {
        "observation": observation,
        "masks": masks,
        "action": zeros(integer, len(Head)),
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
