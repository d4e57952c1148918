"""Group normalisation over the unmasked channels, then a lower limit and a scale."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.kernels.native import (
    call_kernel,
    has_kernel,
    make_contiguous,
    make_evenly_strided,
    operator,
    statistics_dtype,
)

EPS = 1e-5


class NormFactors(NamedTuple):
    """Factors per channel; None = 1."""

    gain: Tensor | None  # [R, C]
    bias: Tensor  # [R, C]
    channel_mask: Tensor | None  # [R, C], 1 or 0
    inverse_count: Tensor | None  # [R, G], 1 / (unmasked elements of a sample and group), 0 for 0; None = no mask
    scale: Tensor | None  # [R, C]


def norm(
    x: Tensor, factors: NormFactors, groups: int, *, floor: float, limited: int | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return `scale * max(floor, bias + gain * (x - mean) / deviation)`, and what its gradient needs.

    Shapes: x [B, H, W, R, C], 0 in masked channels; gain 0 there; groups: G.  limited: rows with the lower limit, the
    first ones; None = all; a number has no kernel.
    Returns: out, like x; with a kernel mean and 1 / deviation [2, B, R, G], and None, as the gradient needs x; else
    1 / deviation [B, 1, 1, R, G, 1 or C / G], at least in float32, and `(x - mean) / deviation` like x.
    """
    if limited is None and has_kernel(x):
        return *_norm(x, *factors, groups, floor), None
    standard, inverse = _standardise(x.to(statistics_dtype(x.dtype)), factors, groups)
    out = _linear(standard, factors.gain, factors.bias)
    if floor > -math.inf:
        out[..., :limited, :].clamp_min_(floor)
    if factors.scale is not None:
        out.mul_(factors.scale)
    return out.to(x.dtype), inverse, standard.to(x.dtype)


def norm_backward(
    grad: Tensor,
    x: Tensor,
    factors: NormFactors,
    stats: Tensor,
    *,
    floor: float,
    needs_input_grad: bool,
    limited: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of x (empty unless `needs_input_grad`), gain, bias, and of scale (None without one).

    x: the third result of `norm`, or its input where that is None; stats: its second result -> like x, [R, C] each.
    """
    if limited is None and has_kernel(x):
        x_grad, (gain, bias, scale) = _norm_backward(grad, x, *factors, stats, floor, needs_input_grad)
        return x_grad, gain, bias, None if factors.scale is None else scale
    wide = grad.to(stats.dtype), x.to(stats.dtype), stats
    x_grad, gain, bias, scale = _torch_backward(*wide, factors, limit=(floor, limited), needs=needs_input_grad)
    return x_grad.to(x.dtype), gain, bias, scale


def _kernel(results: tuple[Tensor, ...], x: Tensor, *args):
    *factors, groups, floor = args
    x = make_evenly_strided(x)
    call_kernel("norm", x, *map(make_contiguous, factors), *results, *_sizes(x, groups), floor, EPS)


def _kernel_backward(results: tuple[Tensor, ...], grad: Tensor, x: Tensor, *args):
    *factors, stats, floor, needs_input_grad = args
    x, (samples, _, _, rows, channels) = make_evenly_strided(x), x.shape
    (x_grad, sums), sample_sums = results, x.new_empty(3, samples, rows, channels)
    outputs = x_grad if needs_input_grad else None, sample_sums, *_sizes(x, stats.shape[3]), floor
    call_kernel("norm_backward", grad.contiguous(), x, *map(make_contiguous, factors), stats, *outputs)
    call_kernel("sums", 3, samples, rows * channels, sample_sums, sums)


def _sizes(x: Tensor, groups: int) -> tuple[int, ...]:
    samples, height, width, rows, channels = x.shape
    return samples, height * width, rows, channels, groups, x.stride(2)


def _shapes(x: Tensor, *args):
    return x.new_empty(x.shape), x.new_empty(2, x.shape[0], x.shape[3], args[-2])


def _shapes_backward(grad: Tensor, x: Tensor, *args):
    return x.new_empty(x.shape if args[-1] else 0), x.new_empty(3, *x.shape[3:])


_FACTORS = "Tensor? gain, Tensor bias, Tensor? channel_mask, Tensor? inverse_count, Tensor? scale"
_norm = operator(f"norm(Tensor x, {_FACTORS}, SymInt groups, float floor) -> (Tensor, Tensor)", _kernel, _shapes)
_norm_backward = operator(
    f"norm_backward(Tensor grad, Tensor x, {_FACTORS}, Tensor stats, float floor, bool needs_input_grad)"
    " -> (Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


def _torch_backward(
    grad: Tensor,
    standard: Tensor,
    inverse: Tensor,
    factors: NormFactors,
    *,
    limit: tuple[float, int | None],
    needs: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    (gain, bias, _, inverse_count, scale), (floor, limited) = factors, limit
    inner = grad if floor == -math.inf else _limit_backward(grad, standard, factors, floor, limited)
    # Scale and gain are constant over the samples: two sums per channel serve all gradients.
    sums = torch.stack((inner.sum((1, 2)), (inner * standard).sum((1, 2))))
    total = sums.sum(1)
    bias_grad, gain_grad = (total if scale is None else total * scale).unbind()
    scale_grad = None if scale is None else _linear(total[1], gain, bias * total[0])
    if scale_grad is not None and floor and floor > -math.inf:  # the sum of floored values is not 0
        scale_grad[:limited] += floor * (grad.sum((1, 2)) - sums[0])[:, :limited].sum(0)
    if not needs:
        return grad.new_empty(0), gain_grad, bias_grad, scale_grad
    weight = gain if scale is None else scale if gain is None else gain * scale
    grouped = *standard.shape[:-1], inverse.shape[-2], -1
    means = (sums if weight is None else sums * weight).view(2, len(standard), *grouped[3:]).sum(-1)
    means *= -grouped[-2] / standard[0, :, :, 0].numel() if inverse_count is None else -inverse_count
    level, tilt = means[:, :, None, None, :, :, None].unbind()
    x_grad = torch.addcmul(level, standard.view(grouped), tilt)
    inner = inner.view(x_grad.shape)
    x_grad.add_(inner) if weight is None else x_grad.addcmul_(inner, weight.view(x_grad.shape[3:]))
    return x_grad.mul_(inverse).view(grad.shape), gain_grad, bias_grad, scale_grad


def _statistics(x: Tensor, factors: NormFactors) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of every group.  x [B, H, W, R, G, C / G] -> [B, R, G] each."""
    if factors.channel_mask is None or factors.inverse_count is None:
        variance, mean = torch.var_mean(x, (1, 2, 5), correction=0)
        return mean, variance.add_(EPS).rsqrt_()
    mean = x.sum((1, 2, 5)) * factors.inverse_count
    mask = torch.unflatten(factors.channel_mask, -1, x.shape[-2:])
    centred = torch.addcmul(x, mean[:, None, None, :, :, None], mask, value=-1.0)
    variance = centred.square_().sum((1, 2, 5)).mul_(factors.inverse_count)
    return mean, variance.add_(EPS).rsqrt_()


def _standardise(x: Tensor, factors: NormFactors, groups: int) -> tuple[Tensor, Tensor]:
    """Return `(x - mean) / deviation`, 0 in masked channels, and 1 / deviation [B, 1, 1, R, G, 1 or C / G]."""
    grouped = x.view(*x.shape[:-1], groups, -1)
    mean, inverse = (part[:, None, None, :, :, None] for part in _statistics(grouped, factors))
    if factors.channel_mask is not None:
        inverse = inverse * factors.channel_mask.view(grouped.shape[3:])
    return (grouped - mean).mul_(inverse).view(x.shape), inverse


def _linear(x: Tensor, gain: Tensor | None, bias: Tensor) -> Tensor:
    return x + bias if gain is None else torch.addcmul(bias, x, gain)


def _limit_backward(grad: Tensor, standard: Tensor, factors: NormFactors, floor: float, limited: int | None) -> Tensor:
    """Gradient below the lower limit of the first rows.  -> like grad [B, H, W, R, C]."""
    gain = None if factors.gain is None else factors.gain[:limited]
    above = _linear(standard[..., :limited, :], gain, factors.bias[:limited])
    inner = torch.ops.aten.threshold_backward(grad[..., :limited, :], above, floor)
    if limited is None:
        return inner
    return torch.cat((inner.flatten(0, 2), grad[..., limited:, :].flatten(0, 2)), 1).view(grad.shape)
