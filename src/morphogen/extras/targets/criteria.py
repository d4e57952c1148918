"""The criterion of a task: its loss and its score, bound to the data."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from morphogen.config.host import Host
from morphogen.config.parts import LOSSES, SCORES
from morphogen.config.registry import Registry, error_line
from morphogen.config.task import TaskSpec
from morphogen.data.splits import Samples, Splits, check_tensor
from morphogen.errors import ConfigError, DataError
from morphogen.extras.targets.losses import MARKS, kind_of
from morphogen.hosts.answers import Criterion, Ends, count_labels
from morphogen.state.env import Instance
from morphogen.vocab.objective import ACCURACY, CROSS_ENTROPY

Function = Callable[[Tensor, Tensor], Tensor]
PROBED = 3  # samples on which a function is tried
CHUNK = 1024  # samples of which the loss of guessing is measured at once
TOLERANCE = 1e-4  # of a sample by itself and among others


@dataclass(frozen=True)
class FunctionCriterion(Criterion):
    """Loss and score that are functions of outputs and targets."""

    loss_function: Any = None
    score_function: Any = None
    baseline: float = 1.0
    """Loss of guessing."""

    def targets_of(self, instance: Instance, targets: Tensor) -> Tensor:
        """Return the targets of each env: labels in use, or all as they are.

        Shapes: instance [E]; targets [N, ...] -> [E, N, ...].
        """
        if self.labelled:
            return super().targets_of(instance, targets)
        return targets.expand(len(instance.class_of), *targets.shape)

    def average(self, output: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Average loss and score over samples; the score is kept within 0 .. 1.

        Shapes: output float [R, B, *output]; targets [R, B, ...] -> float [R] each, the score
        without gradient.
        """
        loss = _call(self.loss_function, output, targets).mean(-1)
        loss = loss.masked_fill(loss == -math.inf, math.nan)  # the step of this env is not taken
        score = _finite(_call(self.score_function, output.detach(), targets)).mean(-1)
        return loss, score.clamp(0.0, 1.0)

    def count(
        self, output: Tensor, targets: Tensor, rows: Ends | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Counts of some samples; scores and outputs that are not finite count 0.

        Shapes: as of `Criterion.count` -> float [R], float [E], int64 [E].
        """
        expected, current = (
            (targets, output) if rows is None else (targets[rows[0]], output[rows[1]])
        )
        scores = _finite(self._counted(self.score_function, output, expected))
        scores = scores.masked_fill(~output.flatten(2).sum(-1).isfinite(), 0.0)
        losses = self._counted(self.loss_function, current, targets)
        envs, samples = targets.shape[:2]
        total = (
            count_labels(targets)
            if self.labelled
            else torch.full((envs,), samples, dtype=torch.int64, device=targets.device)
        )
        return scores.sum(-1), losses.sum(-1), total

    def no_scores(self, rows: int, like: Tensor) -> Tensor:
        """Sums of the scores of no samples, [R]."""
        return like.new_zeros(rows)

    def percent(self, scores: Tensor, losses: Tensor, total: Tensor) -> Tensor:
        """Return the mean score in percent, in 0 .. 100."""
        return super().percent(scores, losses, total).clamp(0.0, 100.0)

    def guessing(self, classes: int) -> tuple[float, ...]:
        """Return the loss of guessing, whatever the number of classes."""
        return (self.baseline,) * (classes + 1)

    def _counted(self, function: Function, output: Tensor, targets: Tensor) -> Tensor:
        """Return the values of samples, 0 of those whose label is not in use."""
        if not self.labelled:
            return _call(function, output, targets)
        values = _call(function, output, targets.clamp(min=0))
        return values.masked_fill(targets < 0, 0.0)


def _call(function: Function, output: Tensor, targets: Tensor) -> Tensor:
    """Call a function once for the samples of all rows.  [R, B, ...] both -> float [R, B]."""
    values = function(output.flatten(0, 1), targets.flatten(0, 1))
    return values.view(output.shape[:2]).to(output.dtype)


def _finite(values: Tensor) -> Tensor:
    return torch.where(values.isfinite(), values, 0.0)


def bind_criterion(
    splits: Splits, task: TaskSpec, host: Host, name: str
) -> tuple[Splits, Criterion]:
    """Return samples with targets as the loss of a task takes them, and its criterion.

    name: of the data set.
    Raises: DataError for targets that do not fit the loss or the host; ConfigError for functions
    that do not fit each other, or whose result is not a number for each sample.
    """
    loss: Any = LOSSES[str(task.loss)]
    score: Any = SCORES[task.score_name]
    if not host.labelled:
        raise ConfigError(
            f"task.loss: expected {CROSS_ENTROPY} with {ACCURACY} where samples hold their own "
            f"answers, got {task.loss} with {task.score_name}"
        )
    kinds = {kind for kind in (kind_of(loss), kind_of(score)) if kind is not None}
    if len(kinds) + task.labelled > 1:
        usual = getattr(loss, "usual_score", ACCURACY)
        raise ConfigError(
            f"task.score: expected {usual}, or a function, with the loss {task.loss}, got "
            f"{task.score_name}"
        )
    if not task.labelled:
        kind = next(iter(kinds), None)
        names = [part.name for part in fields(splits)]
        parts = [_convert(getattr(splits, part), kind, host, f"{name}: {part}") for part in names]
        splits = Splits(*parts)
    targets = splits.train.labels
    if hasattr(score, "fit"):
        score = score.fit(targets, f"{name}: train")
    for registry, function in ((LOSSES, loss), (SCORES, score)):
        given = task.loss if registry is LOSSES else task.score_name
        _try_function(registry, str(given), function, targets, host)
    criterion = FunctionCriterion(task.score_name, task.labelled, loss, score)
    baseline = _guessing_loss(loss, targets, host)
    if not 0 < baseline < math.inf:
        raise ConfigError(
            f"{LOSSES.source(str(task.loss))}: expected a finite loss above 0 of networks that "
            f"guess, got {baseline:g}"
        )
    return splits, replace(criterion, baseline=baseline)


def _convert(samples: Samples, kind: str | None, host: Host, split: str) -> Samples:
    """Return samples with targets of a kind, float32 of the shape of the output; of a user's loss,
    as they are, numbers [N] as [N, 1].
    """
    targets = samples.labels
    check_tensor(f"{split}: targets", targets)
    if targets.dim() == 1 and (kind is not None or targets.is_floating_point()):
        targets = targets.unsqueeze(-1)
    if kind is None:
        return Samples(samples.inputs, targets)
    shape = tuple(targets.shape[1:])
    if shape != host.output_shape:
        raise DataError(
            f"{split}: expected targets of shape {host.output_shape}, as the output of the host "
            f"for a sample, got {shape}"
        )
    if targets.is_complex():
        raise DataError(f"{split}: expected real numbers as targets, got {targets.dtype}")
    targets = targets.to(torch.float32)
    wrong = (targets != 0) & (targets != 1)
    if kind == MARKS and wrong.any():
        sample = int(wrong.flatten(1).any(1).int().argmax())
        raise DataError(f"{split}: expected {MARKS}, got {targets[wrong][0]:g} in sample {sample}")
    return Samples(samples.inputs, targets)


def _try_function(
    registry: Registry[Any], name: str, function: Function, targets: Tensor, host: Host
) -> None:
    """Raise ConfigError unless a function returns a number for each sample, whatever the others."""
    count = min(PROBED, len(targets))
    size = torch.Size(host.output_shape).numel()
    output = torch.linspace(-1, 1, count * size, device="cpu").view(count, *host.output_shape)
    targets = targets[:count]
    source = registry.source(name)
    try:
        found: Any = function(output, targets)
        alone = function(output[:1], targets[:1])
    except Exception as error:
        raise ConfigError(f"{source}: {error_line(error)}") from error
    if not isinstance(found, Tensor) or found.shape != (count,) or found.is_complex():
        got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(
            f"{source}: expected a number for each sample, [{count}] of {count} samples, got {got}"
        )
    among = found[:1].double()
    if not torch.allclose(among, alone.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        raise ConfigError(
            f"{source}: expected a number of each sample by itself, got another one beside other "
            "samples: one call serves the samples of all networks"
        )


def _guessing_loss(loss: Any, targets: Tensor, host: Host) -> float:
    """Return the mean loss of the training targets for an output that no input changes: as the loss
    says, else the mean target where it has the form of an output, else 0.
    """
    shape = host.output_shape
    output = torch.zeros(shape, device="cpu")
    if targets.is_floating_point() and tuple(targets.shape[1:]) == shape:
        mean = targets.mean(0, dtype=torch.float64).float()
        output = loss.constant(mean) if hasattr(loss, "constant") else mean
    parts = targets.split(CHUNK)
    total = sum(float(loss(output.expand(len(part), *shape), part).sum()) for part in parts)
    return total / len(targets)
