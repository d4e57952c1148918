"""Health in numbers: gradients of seeds and layers, and vital signs of a host."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import GovernorSpec
from morphogen.state.tree_ops import choose, is_finite, positions
from morphogen.vocab.stage import Panic

LARGE_GRADIENT = 10.0  # gradient from which an element of a layer counts as large


class GradStats(NamedTuple):
    """Gradient of every seed in one minibatch, its gate included; 0 where nothing runs."""

    norm: Tensor  # float [E, S], L2
    vanishing: Tensor  # float [E, S], number of tensors with a vanishing gradient
    exploding: Tensor  # float [E, S]
    tensors: Tensor  # float [E, S], number of tensors


def gradient_health(stats: GradStats, finite: Tensor) -> Tensor:
    """Health in [0, 1]; 0 where gradient or parameters of the seed are not finite.  float [E,
    S].
    """
    count = stats.tensors.clamp(min=1.0)
    score = 1.0 - 0.5 * stats.vanishing / count - 0.8 * stats.exploding / count
    return score.clamp(0.0, 1.0).masked_fill(~finite, 0.0)


def gradient_ratio(
    seed_norm: Tensor, seed_params: Tensor, host_norm: Tensor, host_params: Tensor
) -> Tensor:
    """Gradient of a seed per parameter over the gradient of the host per parameter; 0 where either
    vanishes.
    """
    dtype = seed_norm.dtype
    seed = seed_norm / seed_params.clamp(min=1).to(dtype).sqrt()
    host = host_norm / host_params.clamp(min=1).to(dtype).sqrt()
    vanishes = (seed_norm < 1e-8) | (host_norm < 1e-8) | (seed_params == 0) | (host_params == 0)
    return choose(vanishes, 0.0, seed / (host + 1e-8))


def moving_average(average: Tensor, valid: Tensor, now: Tensor) -> Tensor:
    """Moving average; the first measurement is taken as it is."""
    return torch.where(valid, 0.9 * average + 0.1 * now, now)


def layer_health(zero: Tensor, large: Tensor, finite: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Judge a gradient by the shares of its elements that are 0, and that are large; the worst sign
    decides.

    Shapes: zero, large float [...]; finite bool [...], of all elements -> health in 0 .. 1, dead,
    exploding bool [...].
    """
    score = choose(zero > 0.3, 0.7, torch.ones_like(zero))
    score = choose((zero > 0.5) | (large > 0.05), 0.5, score)
    score = choose(large > 0.1, 0.1, score)
    return choose((zero > 0.9) | ~finite, 0.0, score), zero > 0.9, large > 0.1


def judge_loss(
    loss: Tensor,
    starved: Tensor,
    window: Tensor,
    count: Tensor,
    baseline: Tensor,
    *,
    spec: GovernorSpec,
) -> tuple[Tensor, Tensor]:
    """Judge the loss of an epoch by the normal losses before it.

    Shapes: loss float32, starved bool (no host step was applied), count int64, baseline float32
    (loss of guessing, nats), all [E]; window float32 [E, W] (ring buffer, nats) -> largest normal
    loss float32, verdict int64 (`Panic`; 0 = normal), both [E].
    """
    samples = count.clamp(max=window.shape[1])
    valid = positions(window.shape[1], window.device) < samples[:, None]
    mean = choose(valid, window, 0.0).sum(-1) / samples.clamp(min=1)
    spread = (
        choose(valid, window - mean[:, None], 0.0).square().sum(-1) / samples.clamp(min=1)
    ).sqrt()
    learned = torch.maximum(mean + spec.sensitivity * spread, spec.multiplier * mean)
    learned = torch.maximum(learned, (1 + spec.chance_band) * baseline)
    seasoned = samples >= spec.min_samples
    most = torch.where(seasoned, learned, spec.warmup_limit * baseline)
    good = seasoned & (mean < spec.good_below * baseline)
    chance = good & ((loss - baseline).abs() < spec.chance_band * baseline)
    panic = choose(starved, int(Panic.STARVED), int(Panic.NONE))
    panic = choose(loss > most, int(Panic.DIVERGENCE), panic)
    panic = choose(chance, int(Panic.CHANCE), panic)
    return most, choose(is_finite(loss), panic, int(Panic.NONFINITE))


def rollback_cause(anomaly: Tensor, streak: Tensor, *, spec: GovernorSpec) -> tuple[Tensor, Tensor]:
    """Anomaly that causes a rollback, at once or after enough consecutive anomalies; else NONE.

    Shapes: anomaly, streak (anomalies before this epoch) int64 [E] -> streak with this epoch, cause
    (`Panic`), int64 [E].  A normal epoch resets the streak, a sudden panic does not.
    """
    sudden = (anomaly == int(Panic.NONFINITE)) | (anomaly == int(Panic.CHANCE))
    normal = anomaly == int(Panic.NONE)
    streak = choose(normal, 0, streak) + ~(sudden | normal)
    lasting = ~normal & (streak >= spec.panics)
    return streak, choose(sudden | lasting, anomaly, int(Panic.NONE))
