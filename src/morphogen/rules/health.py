"""Gradient health of seeds: how large the gradient is, per parameter tensor and against the host's."""

from typing import NamedTuple

import torch
from torch import Tensor


class Gauge(NamedTuple):
    """Gradient of every seed in one minibatch, its gate included; 0 where nothing runs."""

    norm: Tensor  # float [E, S], L2
    vanishing: Tensor  # float [E, S], number of tensors with a vanishing gradient
    exploding: Tensor  # float [E, S]
    tensors: Tensor  # float [E, S], number of tensors


def health(gauge: Gauge, sound: Tensor) -> Tensor:
    """Health in [0, 1]; 0 where the seed is not sound (gradient or parameters not finite).  float [E, S]."""
    count = gauge.tensors.clamp(min=1.0)
    score = 1.0 - 0.5 * gauge.vanishing / count - 0.8 * gauge.exploding / count
    return torch.where(sound, score.clamp(0.0, 1.0), 0.0)


def ratio(seed_norm: Tensor, seed_params: Tensor, host_norm: Tensor, host_params: Tensor) -> Tensor:
    """Gradient of a seed per parameter against that of the host; 0 where either has none."""
    dtype = seed_norm.dtype
    seed = seed_norm / seed_params.clamp(min=1).to(dtype).sqrt()
    host = host_norm / host_params.clamp(min=1).to(dtype).sqrt()
    none = (seed_norm < 1e-8) | (host_norm < 1e-8) | (seed_params == 0) | (host_params == 0)
    return torch.where(none, 0.0, seed / (host + 1e-8))


def smoothed(before: Tensor, valid: Tensor, now: Tensor) -> Tensor:
    """Moving average; the first measurement is taken as it is."""
    return torch.where(valid, 0.9 * before + 0.1 * now, now)
