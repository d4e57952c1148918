"""What the minibatches of an epoch add up to, per env and per seed."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.rules.health import Gauge, health


class Minibatch(NamedTuple):
    """What one minibatch measured, and what came of it."""

    loss: Tensor  # float [E], nats per sample
    correct: Tensor  # float [E], share of the samples
    finite: Tensor  # bool [E], the step of the host was applied
    norm: Tensor  # float [E], gradient of the host before clipping, L2
    sound: Tensor  # bool [E, S], the seed's gradient and parameters are finite
    broken: Tensor  # bool [E, S], an incubating seed skipped its own step


class Tally(NamedTuple):
    """Sums over minibatches; losses, answers and norms over the finite ones."""

    loss: Tensor  # float [E]
    correct: Tensor  # float [E]
    square: Tensor  # float [E], of the host's gradient norm
    finite: Tensor  # int64 [E], minibatches
    total: Tensor  # int64 [E], minibatches
    seed_square: Tensor  # float [E, S]
    seed_health: Tensor  # float [E, S]
    sound: Tensor  # int64 [E, S], minibatches
    vanishing: Tensor  # bool [E, S], in any minibatch
    exploding: Tensor  # bool [E, S]
    broken: Tensor  # bool [E, S]


class Averages(NamedTuple):
    """An epoch; 0 where no minibatch was finite."""

    loss: Tensor  # float [E], nats per sample
    accuracy: Tensor  # float [E], points
    norm: Tensor  # float [E], root mean square of the host's gradient norm
    seed_norm: Tensor  # float [E, S]
    seed_health: Tensor  # float [E, S]
    steady: Tensor  # bool [E, S], every minibatch was sound


def nothing(like: Tensor, slots: Tensor) -> Tally:
    """An epoch before its first minibatch.  like float [E, ...] for dtype; slots [E, S] for shape.

    No two leaves are the same tensor: a graph is made for tensors that are, or for tensors that are not.
    """
    env, slot, device = slots.shape[:1], slots.shape, slots.device
    per_env, per_seed = (partial(torch.zeros, shape, device=device) for shape in (env, slot))
    sums = [per_env(dtype=like.dtype) for _ in range(3)]
    counts = [per_env(dtype=torch.int64) for _ in range(2)]
    seeds = [per_seed(dtype=kind) for kind in (like.dtype, like.dtype, torch.int64, *(torch.bool,) * 3)]
    return Tally(*sums, *counts, *seeds)


def add(tally: Tally, seen: Minibatch, gauge: Gauge) -> Tally:
    """The tally with one more minibatch."""
    return Tally(
        loss=tally.loss + torch.where(seen.finite, seen.loss, 0.0),
        correct=tally.correct + torch.where(seen.finite, seen.correct, 0.0),
        square=tally.square + torch.where(seen.finite, seen.norm, 0.0).square(),
        finite=tally.finite + seen.finite,
        total=tally.total + 1,
        seed_square=tally.seed_square + torch.where(seen.sound, gauge.norm, 0.0).square(),
        seed_health=tally.seed_health + health(gauge, seen.sound),
        sound=tally.sound + seen.sound,
        vanishing=tally.vanishing | (gauge.vanishing > 0),
        exploding=tally.exploding | (gauge.exploding > 0) | ~seen.sound,
        broken=tally.broken | seen.broken,
    )


def averages(tally: Tally) -> Averages:
    """Means over the minibatches of the epoch."""
    finite, sound = tally.finite.clamp(min=1), tally.sound.clamp(min=1)
    total = tally.total.clamp(min=1).unsqueeze(-1)
    return Averages(
        loss=tally.loss / finite,
        accuracy=100.0 * tally.correct / finite,
        norm=(tally.square / finite).sqrt(),
        seed_norm=(tally.seed_square / sound).sqrt(),
        seed_health=tally.seed_health / total,
        steady=tally.sound == tally.total.unsqueeze(-1),
    )
