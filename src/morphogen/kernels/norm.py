"""Group normalisation over the kept channels, a lower limit and a scale."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.kernels.native import call, fits, operator, striped, whole

EPS = 1e-5


class Factors(NamedTuple):
    """What is done to the channels; None = 1."""

    gain: Tensor | None  # [R, C]
    bias: Tensor  # [R, C]
    kept: Tensor | None  # [R, C], 1 or 0
    share: Tensor  # [R, G], 1 / (kept elements of a sample and group), 0 where there are none
    scale: Tensor | None  # [R, C]


class Groups(NamedTuple):
    """What was found in the groups.  [B, R, G] each."""

    mean: Tensor
    inverse: Tensor  # 1 / deviation


def norm(x: Tensor, by: Factors, floor: float) -> tuple[Tensor, Groups]:
    """`scale * max(floor, bias + gain * (x - mean) / deviation)`.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept -> the same.
    """
    if not fits(x):
        return _plain(x, by, floor)
    out, *groups = _norm(x, *by, floor)
    return out, Groups(*groups)


def norm_backward(
    grad: Tensor, x: Tensor, by: Factors, found: Groups, *, floor: float, asked: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x (anything where it is not asked for), and of gain, bias and scale.  -> as x, [3, R, C]."""
    if not fits(x):
        return _plain_backward(grad, x, by, found, floor=floor, asked=asked)
    return _norm_backward(grad, x, *by, *found, floor, asked)


def _kernel(x: Tensor, *given):
    by, floor, x = Factors(*map(whole, given[:-1])), given[-1], striped(x)
    out, mean, inverse = _shapes(x, *given)
    samples, height, width, rows, channels = x.shape
    sizes = samples, height * width, rows, channels, mean.shape[2], x.stride(2)
    call("norm", x, *by, out, mean, inverse, *sizes, floor, EPS)
    return out, mean, inverse


def _kernel_backward(grad: Tensor, x: Tensor, *given):
    *factors, mean, inverse, floor, asked = given
    x, by = striped(x), Factors(*map(whole, factors))
    samples, height, width, rows, channels = x.shape
    push, sums = x.new_empty(x.shape if asked else 0), x.new_empty(3, samples, rows, channels)
    sizes = samples, height * width, rows, channels, mean.shape[2], x.stride(2)
    made = push if asked else None, sums
    call("norm_backward", grad.contiguous(), x, *by, mean, inverse, *made, *sizes, floor)
    return push, sums.sum(1)


def _shapes(x: Tensor, *given):
    groups = x.new_empty(x.shape[0], *Factors(*given[:-1]).share.shape)
    return x.new_empty(x.shape), groups, torch.empty_like(groups)


def _shapes_backward(grad: Tensor, x: Tensor, *given):
    return x.new_empty(x.shape if given[-1] else 0), x.new_empty(3, *x.shape[3:])


_FACTORS = "Tensor? gain, Tensor bias, Tensor? kept, Tensor share, Tensor? scale"
_norm = operator(f"norm(Tensor x, {_FACTORS}, float floor) -> (Tensor, Tensor, Tensor)", _kernel, _shapes)
_norm_backward = operator(
    f"norm_backward(Tensor grad, Tensor x, {_FACTORS}, Tensor mean, Tensor inverse, float floor, bool asked)"
    " -> (Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


def _plain(x: Tensor, by: Factors, floor: float) -> tuple[Tensor, Groups]:
    mean = _pooled(x.sum((1, 2)), by.share)
    centred = x - _over(_spread(mean, by.kept, by.bias))
    found = Groups(mean, torch.rsqrt(_pooled(centred.square().sum((1, 2)), by.share) + EPS))
    above = torch.addcmul(by.bias, centred, _over(_spread(found.inverse, by.gain, by.bias))).clamp_min(floor)
    return above if by.scale is None else above * by.scale, found


def _plain_backward(
    grad: Tensor, x: Tensor, by: Factors, found: Groups, *, floor: float, asked: bool
) -> tuple[Tensor, Tensor]:
    centred = x - _over(_spread(found.mean, by.kept, by.bias))
    slope = _over(_spread(found.inverse, by.gain, by.bias))
    above = torch.addcmul(by.bias, centred, slope).clamp_min(floor)
    push = torch.ops.aten.threshold_backward(grad if by.scale is None else grad * by.scale, above, floor)
    level, tilt = push.sum((1, 2)), (push * centred).sum((1, 2))
    sums = torch.stack((_spread(found.inverse, tilt, by.bias).sum(0), level.sum(0), (grad * above).sum((0, 1, 2))))
    if not asked:
        return x.new_empty(0), sums
    gained = (own if by.gain is None else own * by.gain for own in (level, tilt))
    flat, lean = (_pooled(own, by.share) * -found.inverse for own in gained)
    out = torch.addcmul(_over(_spread(flat, by.kept, by.bias)), push, slope)
    return torch.addcmul(out, centred, _over(_spread(lean * found.inverse.square(), by.kept, by.bias))), sums


def _pooled(sums: Tensor, share: Tensor) -> Tensor:
    """Means over kept elements of groups, from sums of channels.  [B, R, C], share [R, G] -> [B, R, G]."""
    return sums.unflatten(-1, (share.shape[1], -1)).sum(-1) * share


def _spread(values: Tensor, channels: Tensor | None, like: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [B, R, G], [R, C] or [B, R, C]; like [R, C] -> [B, R, C]."""
    size = like.shape[-1] // values.shape[-1]
    wide = values.unsqueeze(-1).expand(*values.shape, size).flatten(-2)
    return wide if channels is None else wide * channels


def _over(values: Tensor) -> Tensor:
    """Per sample, for all pixels.  [B, R, C] -> [B, 1, 1, R, C]."""
    return values[:, None, None]
