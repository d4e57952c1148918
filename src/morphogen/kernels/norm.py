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
    share: Tensor | None  # [R, G], 1 / (kept elements of a sample and group), 0 where there are none; None = all kept
    scale: Tensor | None  # [R, C]


def norm(x: Tensor, by: Factors, groups: int, *, floor: float) -> tuple[Tensor, Tensor]:
    """`scale * max(floor, bias + gain * (x - mean) / deviation)`, and mean and 1 / deviation of every group.

    Shapes: x [B, H, W, R, C], 0 in channels that are not kept; groups: G -> as x, [2, B, R, G].
    """
    return _norm(x, *by, groups, floor) if fits(x) else _plain(x, by, groups, floor)


def norm_backward(
    grad: Tensor, x: Tensor, by: Factors, found: Tensor, *, floor: float, asked: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x (nothing where it is not asked for), and of gain, bias and scale.  -> as x, [3, R, C].

    found: mean and 1 / deviation, [2, B, R, G].
    """
    if not fits(x):
        return _plain_backward(grad, x, by, found, floor=floor, asked=asked)
    return _norm_backward(grad, x, *by, found, floor, asked)


def _kernel(x: Tensor, *given):
    *factors, groups, floor = given
    x, by = striped(x), map(whole, factors)
    out, found = _shapes(x, *given)
    samples, height, width, rows, channels = x.shape
    sizes = samples, height * width, rows, channels, groups, x.stride(2)
    call("norm", x, *by, out, found, *sizes, floor, EPS)
    return out, found


def _kernel_backward(grad: Tensor, x: Tensor, *given):
    *factors, found, floor, asked = given
    x, by, (samples, height, width, rows, channels) = striped(x), map(whole, factors), x.shape
    push = torch.empty(x.shape) if asked else torch.empty(0)
    sums = torch.empty(3, samples, rows, channels)
    sizes = samples, height * width, rows, channels, found.shape[3], x.stride(2)
    call("norm_backward", grad.contiguous(), x, *by, found, push if asked else None, sums, *sizes, floor)
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


def _plain(x: Tensor, by: Factors, groups: int, floor: float) -> tuple[Tensor, Tensor]:
    share = _shares(x, by, groups)
    mean = _pooled(x.sum((1, 2)), groups) * share
    centred = x - _over(_spread(mean, by.kept, by.bias))
    inverse = torch.rsqrt(_pooled(centred.square().sum((1, 2)), groups) * share + EPS)
    above = torch.addcmul(by.bias, centred, _over(_spread(inverse, by.gain, by.bias))).clamp_min(floor)
    return above if by.scale is None else above * by.scale, torch.stack((mean, inverse))


def _plain_backward(
    grad: Tensor, x: Tensor, by: Factors, found: Tensor, *, floor: float, asked: bool
) -> tuple[Tensor, Tensor]:
    mean, inverse = found
    centred, slope = x - _over(_spread(mean, by.kept, by.bias)), _over(_spread(inverse, by.gain, by.bias))
    above = torch.addcmul(by.bias, centred, slope).clamp_min(floor)
    push = torch.ops.aten.threshold_backward(grad if by.scale is None else grad * by.scale, above, floor)
    level, tilt = push.sum((1, 2)), (push * centred).sum((1, 2))
    sums = torch.stack((_spread(inverse, tilt, by.bias).sum(0), level.sum(0), (grad * above).sum((0, 1, 2))))
    if not asked:
        return x.new_empty(0), sums
    groups = mean.shape[-1]
    gained = (own if by.gain is None else own * by.gain for own in (level, tilt))
    flat, lean = (_pooled(own, groups) * -inverse * _shares(x, by, groups) for own in gained)
    out = torch.addcmul(_over(_spread(flat, by.kept, by.bias)), push, slope)
    return torch.addcmul(out, centred, _over(_spread(lean * inverse.square(), by.kept, by.bias))), sums


def _shares(x: Tensor, by: Factors, groups: int) -> Tensor | float:
    return groups / (x.shape[1] * x.shape[2] * x.shape[4]) if by.share is None else by.share


def _pooled(sums: Tensor, groups: int) -> Tensor:
    """Sums of groups, from those of channels.  [B, R, C] -> [B, R, G]."""
    return sums.unflatten(-1, (groups, -1)).sum(-1)


def _spread(values: Tensor, channels: Tensor | None, like: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [B, R, G], [R, C] or [B, R, C]; like [R, C] -> [B, R, C]."""
    size = like.shape[-1] // values.shape[-1]
    wide = values.unsqueeze(-1).expand(*values.shape, size).flatten(-2)
    return wide if channels is None else wide * channels


def _over(values: Tensor) -> Tensor:
    """Per sample, for all pixels.  [B, R, C] -> [B, 1, 1, R, C]."""
    return values[:, None, None]
