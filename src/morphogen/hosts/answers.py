"""Losses and right answers of networks on labels of samples, or on several answers to every
sample.
"""

import torch.nn.functional as F
from torch import Tensor

NO_LABEL = -1  # of a sample or answer that counts for nothing


def answer_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Losses in nats, 0 where nothing counts.  logits float [R, B, ..., classes]; labels int64 [R,
    B, ...].
    """
    nats = F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=NO_LABEL
    )
    return nats.view(labels.shape)


def count_labels(labels: Tensor) -> Tensor:
    """Count the labels that are not -1.  int64 [R, B, ...] -> int64 [R]."""
    return (labels >= 0).flatten(1).sum(-1)


def average_answers(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Average loss and share of right answers: over samples, all of which count, or over the
    answers that do.

    Shapes: logits float [R, B, ..., classes]; labels int64 [R, B, ...] -> float [R] each, the share
    without gradient.
    """
    nats = answer_losses(logits, labels)
    right = (logits.detach().argmax(-1) == labels).to(nats.dtype)
    if labels.dim() == 2:
        return nats.mean(-1), right.mean(-1)
    counted = count_labels(labels).clamp(min=1)
    return nats.flatten(1).sum(-1) / counted, right.flatten(1).sum(-1) / counted
