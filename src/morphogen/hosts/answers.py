"""Losses and scores of networks, by default on class labels: one of a sample, or several answers to
every sample.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.state.env import Instance
from morphogen.state.tree_ops import choose
from morphogen.vocab.objective import ACCURACY

NO_LABEL = -1  # of a sample or answer that counts for nothing
Ends = tuple[Tensor, Tensor]
"""Env of every row after the last slot, int64 [R]; row of every env as it is, int64 [E]."""


def answer_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Losses in nats, 0 where nothing counts.  logits float [..., classes]; labels int64 [...]."""
    nats = F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=NO_LABEL
    )
    return nats.view(labels.shape)


def right_answers(logits: Tensor, labels: Tensor) -> Tensor:
    """Mark right answers by 1.  logits float [..., classes]; labels int64 [...] -> float [...]."""
    return (logits.argmax(-1) == labels).to(logits.dtype)


def count_labels(labels: Tensor) -> Tensor:
    """Count the labels that are not -1.  int64 [R, B, ...] -> int64 [R]."""
    return (labels >= 0).flatten(1).sum(-1)


@dataclass(frozen=True)
class Criterion:
    """Loss and score of networks: cross-entropy and accuracy of class labels.

    The criteria of other targets derive from it.
    """

    score: str = ACCURACY
    """Name of the score, whose percentage is the accuracy of an env."""
    labelled: bool = True
    """Targets are class labels, among which instances choose."""

    def targets_of(self, instance: Instance, targets: Tensor) -> Tensor:
        """Return the labels of each env, those in use; -1 counts for nothing.

        Shapes: instance [E]; targets int64 [N, ...] -> int64 [E, N, ...].
        """
        known = targets.clamp(min=0).flatten()
        mapped = instance.class_of.index_select(1, known).view(-1, *targets.shape)
        return choose(targets >= 0, mapped, NO_LABEL)

    def average(self, output: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Average loss and score: over samples, all of which count, or over the answers that do.

        Shapes: output float [R, B, ..., classes]; targets int64 [R, B, ...] -> float [R] each, the
        score without gradient.
        """
        nats = answer_losses(output, targets)
        right = right_answers(output.detach(), targets)
        if targets.dim() == 2:
            return nats.mean(-1), right.mean(-1)
        counted = count_labels(targets).clamp(min=1)
        return nats.flatten(1).sum(-1) / counted, right.flatten(1).sum(-1) / counted

    def count(
        self, output: Tensor, targets: Tensor, rows: Ends | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Counts of some samples.

        Shapes: output [R, B, ..., classes]; targets [E, B, ...], -1 not in use; rows None: a row is
        an env -> sum of the scores [R] in the dtype of `no_scores`, sum of the losses of the env as
        it is, float [E], answers that count, int64 [E].
        """
        expected, current = (
            (targets, output) if rows is None else (targets[rows[0]], output[rows[1]])
        )
        finite = torch.isfinite(output.sum(-1))
        right = ((expected == output.argmax(-1)) & finite).flatten(1).sum(-1)
        return right, answer_losses(current, targets).flatten(1).sum(-1), count_labels(targets)

    def no_scores(self, rows: int, like: Tensor) -> Tensor:
        """Sums of the scores of no samples.  like: a tensor of the parameters -> int64 [R]."""
        return torch.zeros(rows, dtype=torch.int64, device=like.device)

    def percent(self, scores: Tensor, losses: Tensor, total: Tensor) -> Tensor:
        """Return the mean score in percent.  Counts of `count` -> in the dtype of the losses."""
        return 100.0 * scores.to(losses.dtype) / total

    def guessing(self, classes: int) -> tuple[float, ...]:
        """Return the loss of guessing by the number of classes, 0 .. classes."""
        return tuple(math.log(max(n, 1)) for n in range(classes + 1))


CLASS_LABELS = Criterion()
