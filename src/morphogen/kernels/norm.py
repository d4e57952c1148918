"""Group normalisation over the kept channels, a lower limit and a scale."""

import torch
from torch import Tensor

from morphogen.kernels.native import call, fits, operator, striped, whole

EPS = 1e-5
Factors = Tensor | None  # [R, C]; None = 1


def norm(
    x: Tensor, gain: Factors, bias: Tensor, kept: Factors, share: Tensor, scale: Factors, floor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`scale * max(floor, bias + gain * (x - mean) / deviation)`, with the mean and 1 / deviation of every group.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; gain, bias, kept (1 or 0), scale [R, C]; share [R, G] =
    1 / (kept elements of a sample and group), 0 where there are none -> as x, [B, R, G], [B, R, G].
    """
    return (_norm if fits(x) else _plain)(x, gain, bias, kept, share, scale, floor)


def norm_backward(
    grad: Tensor,
    x: Tensor,
    factors: tuple[Factors, Tensor, Factors, Tensor, Factors],
    found: tuple[Tensor, Tensor],
    floor: float,
    asked: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of x (anything where it is not asked for), and of gain, bias and scale.  -> as x, [3, R, C].

    factors: gain, bias, kept, share, scale; found: mean and 1 / deviation.
    """
    return (_norm_backward if fits(x) else _plain_backward)(grad, x, *factors, *found, floor, asked)


def _kernel(x: Tensor, gain: Factors, bias: Tensor, kept: Factors, share: Tensor, scale: Factors, floor: float):
    x, gain, bias, kept, scale = striped(x), whole(gain), bias.contiguous(), whole(kept), whole(scale)
    samples, height, width, rows, channels = x.shape
    groups = share.shape[1]
    out, mean = x.new_empty(x.shape), x.new_empty(samples, rows, groups)
    inverse = torch.empty_like(mean)
    sizes = samples, height * width, rows, channels, groups, x.stride(2)
    call("norm", x, gain, bias, kept, share, scale, out, mean, inverse, *sizes, floor, EPS)
    return out, mean, inverse


def _kernel_backward(grad, x, gain, bias, kept, share, scale, mean, inverse, floor, asked):
    x, grad, gain, bias, kept, scale = striped(x), grad.contiguous(), *map(whole, (gain, bias, kept, scale))
    samples, height, width, rows, channels = x.shape
    push, sums = x.new_empty(x.shape if asked else 0), x.new_empty(3, samples, rows, channels)
    sizes = samples, height * width, rows, channels, share.shape[1], x.stride(2)
    into = push if asked else None
    call("norm_backward", grad, x, gain, bias, kept, share, scale, mean, inverse, into, sums, *sizes, floor)
    return push, sums.sum(1)


def _shapes(x, gain, bias, kept, share, scale, floor):
    groups = x.new_empty(x.shape[0], *share.shape)
    return x.new_empty(x.shape), groups, torch.empty_like(groups)


def _shapes_backward(grad, x, gain, bias, kept, share, scale, mean, inverse, floor, asked):
    return x.new_empty(x.shape if asked else 0), x.new_empty(3, *bias.shape)


_FACTORS = "Tensor? gain, Tensor bias, Tensor? kept, Tensor share, Tensor? scale"
_norm = operator(f"norm(Tensor x, {_FACTORS}, float floor) -> (Tensor, Tensor, Tensor)", _kernel, _shapes)
_norm_backward = operator(
    f"norm_backward(Tensor grad, Tensor x, {_FACTORS}, Tensor mean, Tensor inverse, float floor, bool asked)"
    " -> (Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


def _plain(x, gain, bias, kept, share, scale, floor):
    mean = _pooled(x.sum((1, 2)), share)
    centred = x - _over(_spread(mean, kept, bias))
    inverse = torch.rsqrt(_pooled(centred.square().sum((1, 2)), share) + EPS)
    above = torch.addcmul(bias, centred, _over(_spread(inverse, gain, bias))).clamp_min(floor)
    return above if scale is None else above * scale, mean, inverse


def _plain_backward(grad, x, gain, bias, kept, share, scale, mean, inverse, floor, asked):
    centred = x - _over(_spread(mean, kept, bias))
    slope = _over(_spread(inverse, gain, bias))
    above = torch.addcmul(bias, centred, slope).clamp_min(floor)
    push = torch.ops.aten.threshold_backward(grad if scale is None else grad * scale, above, floor)
    level, tilt = push.sum((1, 2)), (push * centred).sum((1, 2))
    sums = torch.stack(((_spread(inverse, tilt, bias)).sum(0), level.sum(0), (grad * above).sum((0, 1, 2))))
    if not asked:
        return x.new_empty(0), sums
    flat, lean = (_pooled(own if gain is None else own * gain, share) * -inverse for own in (level, tilt))
    out = torch.addcmul(_over(_spread(flat, kept, bias)), push, slope)
    return torch.addcmul(out, centred, _over(_spread(lean * inverse.square(), kept, bias))), sums


def _pooled(sums: Tensor, share: Tensor) -> Tensor:
    """Means over kept elements of groups, from sums of channels.  [B, R, C], share [R, G] -> [B, R, G]."""
    return sums.unflatten(-1, (share.shape[1], -1)).sum(-1) * share


def _spread(values: Tensor, channels: Factors, like: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [B, R, G], [R, C] or [B, R, C]; like [R, C] -> [B, R, C]."""
    size = like.shape[-1] // values.shape[-1]
    wide = values.unsqueeze(-1).expand(*values.shape, size).flatten(-2)
    return wide if channels is None else wide * channels


def _over(values: Tensor) -> Tensor:
    """Per sample, for all pixels.  [B, R, C] -> [B, 1, 1, R, C]."""
    return values[:, None, None]
