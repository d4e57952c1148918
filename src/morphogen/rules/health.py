"""Health in numbers: gradients of seeds and of the policy's layers, the memory of the policy."""

from typing import NamedTuple

import torch
from torch import Tensor


class GradStats(NamedTuple):
    """Gradient of every seed in one minibatch, its gate included; 0 where nothing runs."""

    norm: Tensor  # float [E, S], L2
    vanishing: Tensor  # float [E, S], number of tensors with a vanishing gradient
    exploding: Tensor  # float [E, S]
    tensors: Tensor  # float [E, S], number of tensors


def gradient_health(stats: GradStats, finite: Tensor) -> Tensor:
    """Health in [0, 1]; 0 where gradient or parameters of the seed are not finite.  float [E, S]."""
    count = stats.tensors.clamp(min=1.0)
    score = 1.0 - 0.5 * stats.vanishing / count - 0.8 * stats.exploding / count
    return torch.where(finite, score.clamp(0.0, 1.0), 0.0)


def gradient_ratio(seed_norm: Tensor, seed_params: Tensor, host_norm: Tensor, host_params: Tensor) -> Tensor:
    """Gradient of a seed per parameter over the gradient of the host per parameter; 0 where either vanishes."""
    dtype = seed_norm.dtype
    seed = seed_norm / seed_params.clamp(min=1).to(dtype).sqrt()
    host = host_norm / host_params.clamp(min=1).to(dtype).sqrt()
    none = (seed_norm < 1e-8) | (host_norm < 1e-8) | (seed_params == 0) | (host_params == 0)
    return torch.where(none, 0.0, seed / (host + 1e-8))


def moving_average(average: Tensor, valid: Tensor, now: Tensor) -> Tensor:
    """Moving average; the first measurement is taken as it is."""
    return torch.where(valid, 0.9 * average + 0.1 * now, now)


LARGE_GRADIENT = 10.0  # gradient from which an element of a layer counts as large


def safe_norm(x: Tensor) -> Tensor:
    """L2 norm over the last axis, of numbers of any size: scaled by the largest, so that no square leaves the range."""
    most = x.abs().amax(-1)
    unit = torch.where(most > 0, most, 1.0).unsqueeze(-1)
    return most * (x / unit).square().sum(-1).sqrt()


class LayerHealth(NamedTuple):
    """Gradient statistics of a layer."""

    health: Tensor  # float [...], in [0, 1]
    dead: Tensor  # bool [...]
    exploding: Tensor  # bool [...]


def layer_health(zero: Tensor, large: Tensor, finite: Tensor) -> LayerHealth:
    """Judge a gradient by the shares of its elements that are 0, and that are large; the worst sign decides.

    Shapes: zero, large float [...]; finite bool [...], all elements are.
    """
    score = torch.where(zero > 0.3, 0.7, torch.ones_like(zero))
    score = torch.where((zero > 0.5) | (large > 0.05), 0.5, score)
    score = torch.where(large > 0.1, 0.1, score)
    dead = zero > 0.9
    return LayerHealth(torch.where(dead | ~finite, 0.0, score), dead, large > 0.1)


def gradient_shares(gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Statistics of a gradient [...] for `layer_health`; each 0-d."""
    kinds = (gradient == 0, gradient.abs() > LARGE_GRADIENT)
    zero, large = (kind.to(gradient.dtype).mean() for kind in kinds)
    return zero, large, gradient.isfinite().all()


class HiddenStats(NamedTuple):
    """Size of a hidden state; non-finite elements count as 0.  All 0-d."""

    rms: Tensor  # over all elements
    env_rms_mean: Tensor  # of the envs, each over its layers and units
    env_rms_max: Tensor
    abs_max: Tensor
    nonfinite: Tensor  # int64, elements


def hidden_stats(hidden: Tensor) -> HiddenStats:
    """Magnitude of a hidden state.  float [L, E, H] -> each 0-d."""
    finite = hidden.isfinite()
    known = torch.where(finite, hidden, 0.0).transpose(0, 1).flatten(1)  # [E, L H]
    per_env = safe_norm(known) / known.shape[1] ** 0.5
    return HiddenStats(
        rms=safe_norm(per_env) / known.shape[0] ** 0.5,
        env_rms_mean=per_env.mean(),
        env_rms_max=per_env.amax(),
        abs_max=known.abs().amax(),
        nonfinite=(~finite).sum(),
    )
