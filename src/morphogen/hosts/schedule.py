"""Schedules of learning rates over the minibatches of an episode."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from morphogen.config.groups import HostSpec


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """Factor on the learning rates of hosts and seeds, from the clock of each env.

    With t the minibatches of the env before this one, N the minibatches of an episode, and W those
    of the warm-up:

        f(t) = (t + 1) / (W + 1)                       t < W
        f(t) = (1 + cos(pi (t - W) / (N - W))) / 2     W <= t < N

    Equals `torch.optim.lr_scheduler.CosineAnnealingLR(T_max=N - W)`, after `LinearLR(start_factor=
    1 / (W + 1), total_iters=W)` by `SequentialLR(milestones=[W])`.
    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017,
    equation 5, without restarts.

    Example:
        >>> import torch
        >>> from morphogen.hosts.schedule import RateSchedule
        >>> schedule = RateSchedule(minibatches=2, epochs=3, warmup=2)
        >>> epoch, minibatch = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 0, 1])
        >>> schedule.factor(epoch, minibatch, torch.zeros(4))
        tensor([0.3333, 0.6667, 1.0000, 0.1464])
    """

    minibatches: int
    """Of an epoch."""
    epochs: int
    """Of an episode."""
    warmup: int = 0
    """Minibatches of the warm-up."""

    def factor(self, epoch: Tensor, minibatch: Tensor, like: Tensor) -> Tensor:
        """Return the factor of a minibatch.

        Shapes: epoch int64 [E], epochs completed; minibatch int64 [E], of the epoch; like: float
        of any shape, for dtype -> [E].
        """
        done = (epoch * self.minibatches + minibatch).to(like.dtype)
        span = self.minibatches * self.epochs - self.warmup
        fall = 0.5 + 0.5 * torch.cos((done - self.warmup) * (math.pi / span))
        rise = (done + 1.0) / (self.warmup + 1)
        return torch.where(done < self.warmup, rise, fall) if self.warmup else fall


def build_schedule(spec: HostSpec, minibatches: int, epochs: int) -> RateSchedule | None:
    """Return the schedule of `host.schedule`; None: learning rates are constant."""
    if spec.schedule == "constant":
        return None
    total = minibatches * epochs
    share = spec.warmup_share if spec.schedule == "warmup_cosine" else 0.0
    return RateSchedule(minibatches, epochs, min(round(share * total), total - 1))
