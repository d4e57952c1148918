"""Group normalisation over the unmasked channels, then a lower limit and a scale."""

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


def norm(x: Tensor, factors: NormFactors, groups: int, *, floor: float) -> tuple[Tensor, Tensor]:
    """Return `scale * max(floor, bias + gain * (x - mean) / deviation)`, and the statistics of every group.

    Shapes: x [B, H, W, R, C], 0 in masked channels; groups: G -> like x; mean and 1 / deviation [2, B, R, G], at least
    in float32.
    """
    if has_kernel(x):
        return _norm(x, *factors, groups, floor)
    out, stats = _torch_forward(x.to(statistics_dtype(x.dtype)), factors, groups, floor)
    return out.to(x.dtype), stats


def norm_backward(
    grad: Tensor, x: Tensor, factors: NormFactors, stats: Tensor, *, floor: float, needs_input_grad: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (empty unless `needs_input_grad`), and of gain, bias and scale [3, R, C].

    stats: the second result of `norm`, [2, B, R, G].
    """
    if has_kernel(x):
        return _norm_backward(grad, x, *factors, stats, floor, needs_input_grad)
    wide = grad.to(stats.dtype), x.to(stats.dtype)
    x_grad, sums = _torch_backward(*wide, factors, stats, floor=floor, needs_input_grad=needs_input_grad)
    return x_grad.to(x.dtype), sums


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


def _torch_forward(x: Tensor, factors: NormFactors, groups: int, floor: float) -> tuple[Tensor, Tensor]:
    inverse_count = _inverse_counts(x, factors, groups)
    mean = _group_sums(x.sum((1, 2)), groups) * inverse_count
    centred = x - _expand_groups(mean, factors.channel_mask, factors.bias)[:, None, None]
    inverse = torch.rsqrt(_group_sums(centred.square().sum((1, 2)), groups) * inverse_count + EPS)
    slope = _expand_groups(inverse, factors.gain, factors.bias)[:, None, None]
    above = torch.addcmul(factors.bias, centred, slope).clamp_min(floor)
    return above if factors.scale is None else above * factors.scale, torch.stack((mean, inverse))


def _torch_backward(
    grad: Tensor, x: Tensor, factors: NormFactors, stats: Tensor, *, floor: float, needs_input_grad: bool
) -> tuple[Tensor, Tensor]:
    mean, inverse = stats
    centred = x - _expand_groups(mean, factors.channel_mask, factors.bias)[:, None, None]
    slope = _expand_groups(inverse, factors.gain, factors.bias)[:, None, None]
    above = torch.addcmul(factors.bias, centred, slope).clamp_min(floor)
    inner = torch.ops.aten.threshold_backward(grad if factors.scale is None else grad * factors.scale, above, floor)
    level, tilt = inner.sum((1, 2)), (inner * centred).sum((1, 2))
    gain_grad = _expand_groups(inverse, tilt, factors.bias).sum(0)
    sums = torch.stack((gain_grad, level.sum(0), (grad * above).sum((0, 1, 2))))
    if not needs_input_grad:
        return x.new_empty(0), sums
    groups, inverse_count = mean.shape[-1], _inverse_counts(x, factors, mean.shape[-1])
    gained = (part if factors.gain is None else part * factors.gain for part in (level, tilt))
    flat, lean = (_group_sums(part, groups) * -inverse * inverse_count for part in gained)
    offset = _expand_groups(flat, factors.channel_mask, factors.bias)[:, None, None]
    scale = _expand_groups(lean * inverse.square(), factors.channel_mask, factors.bias)[:, None, None]
    return torch.addcmul(torch.addcmul(offset, inner, slope), centred, scale), sums


def _inverse_counts(x: Tensor, factors: NormFactors, groups: int) -> Tensor | float:
    return groups / (x.shape[1] * x.shape[2] * x.shape[4]) if factors.inverse_count is None else factors.inverse_count


def _group_sums(sums: Tensor, groups: int) -> Tensor:
    """Sums of groups, from those of channels.  [B, R, C] -> [B, R, G]."""
    return sums.unflatten(-1, (groups, -1)).sum(-1)


def _expand_groups(values: Tensor, channels: Tensor | None, like: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [B, R, G], [R, C] or [B, R, C]; like [R, C] -> [B, R, C]."""
    size = like.shape[-1] // values.shape[-1]
    wide = values.unsqueeze(-1).expand(*values.shape, size).flatten(-2)
    return wide if channels is None else wide * channels
