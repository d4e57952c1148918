"""Group normalisation over the kept channels, a lower limit and a scale."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.kernels.native import call_kernel, has_kernel, make_contiguous, make_evenly_strided, operator

EPS = 1e-5


class NormFactors(NamedTuple):
    """What is done to the channels; None = 1."""

    gain: Tensor | None  # [R, C]
    bias: Tensor  # [R, C]
    channel_mask: Tensor | None  # [R, C], 1 or 0
    inverse_count: (
        Tensor | None
    )  # [R, G], 1 / (kept elements of a sample and group), 0 where there are none; None = all kept
    scale: Tensor | None  # [R, C]


def norm(x: Tensor, factors: NormFactors, groups: int, *, floor: float) -> tuple[Tensor, Tensor]:
    """`scale * max(floor, bias + gain * (x - mean) / deviation)`, and mean and 1 / deviation of every group.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; groups: G -> as x, [2, B, R, G].
    """
    return _norm(x, *factors, groups, floor) if has_kernel(x) else _torch_forward(x, factors, groups, floor)


def norm_backward(
    grad: Tensor, x: Tensor, factors: NormFactors, stats: Tensor, *, floor: float, needs_input_grad: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x (nothing where it is not asked for), and of gain, bias and scale.  -> as x, [3, R, C].

    found: mean and 1 / deviation, [2, B, R, G].
    """
    if not has_kernel(x):
        return _torch_backward(grad, x, factors, stats, floor=floor, needs_input_grad=needs_input_grad)
    return _norm_backward(grad, x, *factors, stats, floor, needs_input_grad)


def _kernel(x: Tensor, *given):
    *factors, groups, floor = given
    x, by = make_evenly_strided(x), map(make_contiguous, factors)
    out, found = _shapes(x, *given)
    samples, height, width, rows, channels = x.shape
    sizes = samples, height * width, rows, channels, groups, x.stride(2)
    call_kernel("norm", x, *by, out, found, *sizes, floor, EPS)
    return out, found


def _kernel_backward(grad: Tensor, x: Tensor, *given):
    *factors, found, floor, asked = given
    x, by, (samples, height, width, rows, channels) = make_evenly_strided(x), map(make_contiguous, factors), x.shape
    push = torch.empty(x.shape) if asked else torch.empty(0)
    sums = torch.empty(3, samples, rows, channels)
    sizes = samples, height * width, rows, channels, found.shape[3], x.stride(2)
    call_kernel("norm_backward", grad.contiguous(), x, *by, found, push if asked else None, sums, *sizes, floor)
    return push, sums.sum(1)


def _shapes(x: Tensor, *given):
    return x.new_empty(x.shape), x.new_empty(2, x.shape[0], x.shape[3], given[-2])


def _shapes_backward(grad: Tensor, x: Tensor, *given):
    return x.new_empty(x.shape if given[-1] else 0), x.new_empty(3, *x.shape[3:])


_FACTORS = "Tensor? gain, Tensor bias, Tensor? kept, Tensor? share, Tensor? scale"
_norm = operator(f"norm(Tensor x, {_FACTORS}, SymInt groups, float floor) -> (Tensor, Tensor)", _kernel, _shapes)
_norm_backward = operator(
    f"norm_backward(Tensor grad, Tensor x, {_FACTORS}, Tensor found, float floor, bool asked) -> (Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


def _torch_forward(x: Tensor, factors: NormFactors, groups: int, floor: float) -> tuple[Tensor, Tensor]:
    share = _inverse_counts(x, factors, groups)
    mean = _group_sums(x.sum((1, 2)), groups) * share
    centred = x - _expand_pixels(_expand_groups(mean, factors.channel_mask, factors.bias))
    inverse = torch.rsqrt(_group_sums(centred.square().sum((1, 2)), groups) * share + EPS)
    above = torch.addcmul(
        factors.bias, centred, _expand_pixels(_expand_groups(inverse, factors.gain, factors.bias))
    ).clamp_min(floor)
    return above if factors.scale is None else above * factors.scale, torch.stack((mean, inverse))


def _torch_backward(
    grad: Tensor, x: Tensor, factors: NormFactors, stats: Tensor, *, floor: float, needs_input_grad: bool
) -> tuple[Tensor, Tensor]:
    mean, inverse = stats
    centred, slope = (
        x - _expand_pixels(_expand_groups(mean, factors.channel_mask, factors.bias)),
        _expand_pixels(_expand_groups(inverse, factors.gain, factors.bias)),
    )
    above = torch.addcmul(factors.bias, centred, slope).clamp_min(floor)
    push = torch.ops.aten.threshold_backward(grad if factors.scale is None else grad * factors.scale, above, floor)
    level, tilt = push.sum((1, 2)), (push * centred).sum((1, 2))
    sums = torch.stack(
        (_expand_groups(inverse, tilt, factors.bias).sum(0), level.sum(0), (grad * above).sum((0, 1, 2)))
    )
    if not needs_input_grad:
        return x.new_empty(0), sums
    groups = mean.shape[-1]
    gained = (own if factors.gain is None else own * factors.gain for own in (level, tilt))
    flat, lean = (_group_sums(own, groups) * -inverse * _inverse_counts(x, factors, groups) for own in gained)
    out = torch.addcmul(_expand_pixels(_expand_groups(flat, factors.channel_mask, factors.bias)), push, slope)
    return torch.addcmul(
        out, centred, _expand_pixels(_expand_groups(lean * inverse.square(), factors.channel_mask, factors.bias))
    ), sums


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


def _expand_pixels(values: Tensor) -> Tensor:
    """Per sample, for all pixels.  [B, R, C] -> [B, 1, 1, R, C]."""
    return values[:, None, None]
