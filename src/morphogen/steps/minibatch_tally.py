"""Sums over the minibatches of an epoch, per env and per seed."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.rules.health import GradStats, gradient_health


class MinibatchStats(NamedTuple):
    """Measurements of one minibatch."""

    loss: Tensor  # float [E], nats per sample
    correct: Tensor  # float [E], share of the samples
    finite: Tensor  # bool [E], the step of the host was applied
    norm: Tensor  # float [E], gradient of the host before clipping, L2


class EnvTally(NamedTuple):
    """Sums over minibatches; losses, answers and norms over the finite ones."""

    # float [E, 3]: losses, shares of right answers, squares of the host's gradient norm
    sums: Tensor
    finite: Tensor  # int64 [E], minibatches
    total: Tensor  # int64 [E], minibatches


class SeedTally(NamedTuple):
    """Sums over minibatches; norms over the finite ones."""

    square: Tensor  # float [E, S], of the gradient norm
    health: Tensor  # float [E, S]
    finite: Tensor  # int64 [E, S], minibatches
    vanishing: Tensor  # bool [E, S], in any minibatch
    exploding: Tensor  # bool [E, S]
    skipped: Tensor  # bool [E, S]


def empty_tally(like: Tensor) -> EnvTally:
    """Tally of an epoch before its first minibatch.  like float [E, ...].

    No two leaves share a tensor: a compiled graph is specialised on aliasing.
    """
    zeros = partial(torch.zeros, like.shape[:1], device=like.device)
    finite, total = (zeros(dtype=torch.int64) for _ in range(2))
    return EnvTally(like.new_zeros(like.shape[0], 3), finite, total)


def empty_seed_tally(like: Tensor, slots: Tensor) -> SeedTally:
    """Tally of the seeds before the first minibatch.  like float [E, ...] for dtype; slots [E, S]
    for shape.
    """
    zeros = partial(torch.zeros, slots.shape, device=slots.device)
    return SeedTally(
        *(zeros(dtype=kind) for kind in (like.dtype, like.dtype, torch.int64, *(torch.bool,) * 3))
    )


def add_minibatch(tally: EnvTally, stats: MinibatchStats) -> EnvTally:
    """Add the measurements of one minibatch."""
    values = torch.stack((stats.loss, stats.correct, stats.norm.square()), dim=-1)
    broken = ~stats.finite.unsqueeze(-1)
    sums = tally.sums + values.masked_fill(broken, 0.0)
    return EnvTally(sums, tally.finite + stats.finite, tally.total + 1)


def add_seed_stats(
    tally: SeedTally, stats: GradStats, finite: Tensor, skipped: Tensor
) -> SeedTally:
    """Add the gradient statistics of one minibatch.

    finite bool [E, S]: gradient and parameters of the seed are finite; skipped: an incubating seed
    skipped its step.
    """
    return SeedTally(
        square=tally.square + stats.norm.masked_fill(~finite, 0.0).square(),
        health=tally.health + gradient_health(stats, finite),
        finite=tally.finite + finite,
        vanishing=tally.vanishing | (stats.vanishing > 0),
        exploding=tally.exploding | (stats.exploding > 0) | ~finite,
        skipped=tally.skipped | skipped,
    )


def env_averages(tally: EnvTally) -> tuple[Tensor, Tensor, Tensor]:
    """Means over the finite minibatches of the epoch, 0 without any.

    -> loss, nats per sample; accuracy, points; root mean square of the host's gradient norm; float
    [E].
    """
    loss, correct, square = (tally.sums / tally.finite.clamp(min=1).unsqueeze(-1)).unbind(-1)
    return loss, 100.0 * correct, square.sqrt()


def seed_averages(tally: SeedTally, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means over the minibatches of the epoch, 0 where none was finite.  total int64 [E], their
    number.

    -> root mean square of the gradient norm, health, float [E, S]; bool [E, S], every minibatch was
    finite.
    """
    norm = (tally.square / tally.finite.clamp(min=1)).sqrt()
    return (
        norm,
        tally.health / total.clamp(min=1).unsqueeze(-1),
        tally.finite == total.unsqueeze(-1),
    )
