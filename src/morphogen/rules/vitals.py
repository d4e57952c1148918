"""Vital signs of a host: judge the loss of an epoch by the losses before it.  The first match decides."""

import torch
from torch import Tensor

from morphogen.config.spec import GovernorSpec
from morphogen.vocab.stage import Panic


def loss_limit(window: Tensor, count: Tensor, baseline: Tensor, *, spec: GovernorSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Largest normal loss, mean of the normal losses, and a flag for enough losses to judge.

    Shapes: window float32 [E, W] (ring buffer, nats), count int64 [E], baseline float32 [E] (loss of guessing, nats)
    -> limit float32, mean float32, seasoned bool, all [E].
    """
    samples = count.clamp(max=window.shape[1])
    valid = torch.arange(window.shape[1], device=window.device) < samples[:, None]
    mean = torch.where(valid, window, 0.0).sum(-1) / samples.clamp(min=1)
    spread = (torch.where(valid, window - mean[:, None], 0.0).square().sum(-1) / samples.clamp(min=1)).sqrt()
    learned = torch.maximum(mean + spec.sensitivity * spread, spec.multiplier * mean)
    learned = torch.maximum(learned, (1 + spec.chance_band) * baseline)
    seasoned = samples >= spec.min_samples
    return torch.where(seasoned, learned, spec.warmup_limit * baseline), mean, seasoned


def classify_loss(loss: Tensor, starved: Tensor, baseline: Tensor, *, bounds: tuple, spec: GovernorSpec) -> Tensor:
    """Verdict on the epoch, as a `Panic` code; 0 = normal.

    Shapes: loss float32, starved bool (no host step was applied), baseline float32, all [E]; bounds from
    `loss_limit` -> int64 [E].
    """
    most, mean, seasoned = bounds
    good = seasoned & (mean < spec.good_below * baseline)
    chance = good & ((loss - baseline).abs() < spec.chance_band * baseline)
    first = torch.where(starved, int(Panic.STARVED), torch.zeros_like(seasoned, dtype=torch.int64))
    first = torch.where(loss > most, int(Panic.DIVERGENCE), first)
    first = torch.where(chance, int(Panic.CHANCE), first)
    return torch.where(loss.isfinite(), first, int(Panic.NONFINITE))


def next_streak(streak: Tensor, seen: Tensor) -> Tensor:
    """Consecutive anomalies including this epoch: a normal epoch resets them, a sudden panic does not.  int64 [E]."""
    anomaly = (seen == int(Panic.DIVERGENCE)) | (seen == int(Panic.STARVED))
    kept = torch.where(seen == int(Panic.NONE), 0, streak)
    return kept + anomaly


def rollback_cause(anomaly: Tensor, streak: Tensor, *, spec: GovernorSpec) -> Tensor:
    """Anomaly that causes a rollback, at once or after enough consecutive anomalies; else NONE.  int64 [E]."""
    sudden = (anomaly == int(Panic.NONFINITE)) | (anomaly == int(Panic.CHANCE))
    lasting = (anomaly != int(Panic.NONE)) & (streak >= spec.panics)
    return torch.where(sudden | lasting, anomaly, int(Panic.NONE))
