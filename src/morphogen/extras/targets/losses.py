"""Losses and scores of numbers, and of several labels per sample.

A function takes outputs and targets of samples, float [B, *shape] both, and returns a number for
each sample, float [B].
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.errors import DataError
from morphogen.state.tree_ops import constant_table

NUMBERS = "numbers"  # kinds of targets
MARKS = "labels that are 0 or 1"
_LEAST_RATE = 1e-6  # of a label, where guessing says that it never, or always, holds


def _sample_means(values: Tensor) -> Tensor:
    return values.flatten(1).mean(-1)


@dataclass(frozen=True)
class TargetLoss:
    """Loss of a kind of targets: the mean over the outputs of a sample."""

    elementwise: Callable[..., Tensor]
    kind: str
    usual_score: str
    constant: Callable[[Tensor], Tensor]
    """Mean target [*shape] -> output of a network that only guesses."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the losses of samples."""
        return _sample_means(self.elementwise(output, target, reduction="none"))


def _guess_number(mean: Tensor) -> Tensor:
    return mean


def _guess_rate(mean: Tensor) -> Tensor:
    return torch.logit(mean, eps=_LEAST_RATE)


MSE = TargetLoss(F.mse_loss, NUMBERS, "explained", _guess_number)
HUBER = TargetLoss(F.huber_loss, NUMBERS, "explained", _guess_number)
BCE_WITH_LOGITS = TargetLoss(
    F.binary_cross_entropy_with_logits, MARKS, "label_accuracy", _guess_rate
)


@dataclass(frozen=True)
class LabelAccuracy:
    """Share of the labels of a sample that the signs of its outputs name."""

    kind = MARKS

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the scores of samples."""
        return _sample_means(((output > 0) == (target > 0.5)).to(output.dtype))


@dataclass(frozen=True)
class Explained:
    """1 - squared error over the variance of the training targets, mean over the columns.

    Its mean over samples is the explained share of the variance; below 0 it counts as 0.
    """

    variance: tuple[float, ...] = ()
    """Of each column of the training targets; `fit` sets it."""
    kind = NUMBERS

    def fit(self, targets: Tensor, name: str) -> "Explained":
        """Return the score for training targets [N, *shape].  Raises: DataError for constant ones.

        name: of the targets, for messages.
        """
        columns = targets.double().flatten(1)
        varied = columns.amax(0) > columns.amin(0)
        if not varied.all():
            place = int(varied.int().argmin())
            raise DataError(
                f"{name}: expected targets that vary, as the score explained compares with their "
                f"variance, got one number in all of column {place}: leave the column out"
            )
        return replace(self, variance=tuple(columns.var(0, correction=0).tolist()))

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the scores of samples, at most 1."""
        variance = constant_table(self.variance, output.dtype, output.device)
        return 1 - ((output - target).square().flatten(1) / variance).mean(-1)


LABEL_ACCURACY = LabelAccuracy()
EXPLAINED = Explained()


def kind_of(function: Any) -> str | None:
    """Return the kind of targets of a loss or score; None: a function of a user takes any."""
    return getattr(function, "kind", None)
