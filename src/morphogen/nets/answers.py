"""Losses and right answers of networks on labels of samples, or on the next tokens of every sample."""

import torch.nn.functional as F
from torch import Tensor

NO_LABEL = -1  # of a sample or token that counts for nothing


def sum_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the losses of the labels that count.

    Shapes: logits float [R, B, ..., classes]; labels int64 [R, B, ...], -1 counts for nothing -> sums in nats,
    float [R], and numbers of labels that count, int64 [R].
    """
    nats = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=NO_LABEL)
    rows = labels.shape[0]
    return nats.view(rows, -1).sum(-1), (labels >= 0).view(rows, -1).sum(-1)


def count_answers(answers: Tensor) -> Tensor:
    """Count the right answers.  bool [R, B, ...] -> int64 [R]."""
    return answers.flatten(1).sum(-1)
