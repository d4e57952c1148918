"""Layers over R networks at once, one set of parameters each.

Activations are folded, `[B, R * C, H, W]` with the rows outermost: convolutions are grouped, pooling and group
normalisation need no permutation, and choosing rows copies whole images.  The host keeps its channels innermost in
memory (`INNERMOST`), where convolution and pooling are fastest.  Parameters lead with `R`.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-5
INNERMOST = torch.channels_last
_NARROW = 8  # input channels


def unfold(x: Tensor, rows: int) -> Tensor:
    """The row axis on its own, a view.  x [B, R * C, H, W] -> [B, R, C, H, W]."""
    return x.unflatten(1, (rows, -1))


def fold(x: Tensor) -> Tensor:
    """Back to the folded form.  x [B, R, C, H, W] -> [B, R * C, H, W]."""
    return x.flatten(1, 2)


def take(x: Tensor, where: Tensor, *, rows: int) -> Tensor:
    """Chosen rows, in the order of `where`.  x [B, R * C, H, W], where int64 [N] -> [B, N * C, H, W]."""
    return fold(unfold(x, rows).index_select(1, where))


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Parts one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def per_channel(values: Tensor) -> Tensor:
    """Values of every row and channel, ready to broadcast.  values [R, C] -> [1, R * C, 1, 1]."""
    return values.reshape(1, -1, 1, 1)


class _Settled(torch.autograd.Function):
    """The input itself; its gradient comes back contiguous, since mixed layouts slow down all that follows."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad.contiguous()


def _settled(x: Tensor) -> Tensor:
    return _Settled.apply(x) if x.requires_grad else x


def choose(
    device: torch.device, channels_in: int, kernel: int, *, layout: torch.memory_format, learning: bool
) -> torch.memory_format:
    """Layout in which a stacked convolution is computed fastest, given that of its result.

    A rule and no measurement of the moment, so that rounding is the same in every run; `morphogen bench --explain`
    measures what it rests on.  The CPU learns narrow convolutions, but not depthwise ones, with channels innermost.
    """
    narrow = device.type == "cpu" and learning and 1 < channels_in < _NARROW and kernel > 1
    return INNERMOST if narrow else layout


def stacked_conv(
    x: Tensor,
    weight: Tensor,
    *,
    groups: int,
    layout: torch.memory_format = torch.contiguous_format,
    form: torch.memory_format | None = None,
) -> Tensor:
    """Convolution that keeps height and width; `groups` = rows, or rows * channels for a depthwise one.

    Shapes: x [B, groups * I, H, W], weight [..., I, k, k] with all output channels in front -> [B, outputs, H, W], in
    memory laid out as `layout`.  `form`: layout in which it is computed, None = as `choose` says.
    """
    flat = weight.flatten(0, -4).contiguous()
    kernel = flat.shape[-1]
    if form is None:
        form = choose(x.device, flat.shape[1], kernel, layout=layout, learning=torch.is_grad_enabled())
    images = (x if form is layout else _settled(x)).contiguous(memory_format=form)
    return F.conv2d(images, flat, padding=kernel // 2, groups=groups).contiguous(memory_format=layout)


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2, channels innermost.  x [B, R * C, H, W] -> [B, R * C, H // 2, W // 2]."""
    return F.max_pool2d(x.contiguous(memory_format=INNERMOST), 2)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, B, I], weight [R, O, I], bias [R, O] -> [R, B, O]."""
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, turned)


def mean_hw(x: Tensor, rows: int) -> Tensor:
    """Mean over height and width.  x [B, R * C, H, W] -> [R, B, C]."""
    return x.mean((2, 3)).unflatten(1, (rows, -1)).transpose(0, 1)


def group_norm(x: Tensor, gain: Tensor | None, bias: Tensor, *, groups: int) -> Tensor:
    """Group normalisation of every row.  x [B, R * C, H, W]; gain (None = 1), bias [R, C]; groups per row."""
    weight = torch.ones_like(bias) if gain is None else gain  # the CPU kernel has no gradient for a bias alone
    return F.group_norm(x, groups * bias.shape[0], weight.flatten(), bias.flatten(), EPS)


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Normalisation with the statistics of this batch alone.  x [B, R * C, H, W]; gain, bias [R, C]."""
    return F.batch_norm(x, None, None, gain.flatten(), bias.flatten(), training=True, eps=EPS)


class _KeptNorm(torch.autograd.Function):
    """Group normalisation over the kept channels: passes over the activation are what it costs, so they are few."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor, bias: Tensor, kept: Tensor, rest: tuple[Tensor, float]) -> tuple[Tensor, ...]:
        share, floor = rest
        mean = _pooled(x.sum((2, 3)), share) * share
        centred = x - _spread(mean, kept)
        inverse = torch.rsqrt(_pooled(centred.square().sum((2, 3)), share) * share + EPS)
        slope = _spread(inverse, gain)
        return torch.addcmul(per_channel(bias), centred, slope).clamp_min_(floor), centred, inverse, slope

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, gain, _, kept, (share, floor) = inputs
        ctx.floor = floor
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output, gain, kept, share)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        above, centred, inverse, slope, gain, kept, share = ctx.saved_tensors
        push = torch.ops.aten.threshold_backward(grad.contiguous(memory_format=INNERMOST), above, ctx.floor)
        level, tilt = push.sum((2, 3)), (push * centred).sum((2, 3))  # [B, R * C]
        flat, lean = _pooled(torch.stack((level, tilt)) * gain.flatten(), share) * (inverse * share)  # [B, R * groups]
        out = torch.addcmul(_spread(-flat, kept), push, slope)
        out.addcmul_(centred, _spread(-lean * inverse.square(), kept))
        own = tilt.unflatten(-1, (*inverse.shape[1:], -1)) * inverse.unsqueeze(-1)
        return out, own.sum(0).view_as(gain), level.sum(0).view_as(gain), None, None


def _pooled(values: Tensor, share: Tensor) -> Tensor:
    """Sums over the channels of every group.  [..., R * C], share [R * G] -> [..., R * G]."""
    return values.unflatten(-1, (share.shape[0], -1)).sum(-1)


def _spread(values: Tensor, channels: Tensor) -> Tensor:
    """Values of a group times values of its channels.  [B, R * G], [R, C] -> [B, R * C, 1, 1]."""
    return (values.unsqueeze(-1) * channels.view(values.shape[1], -1)).view(values.shape[0], -1, 1, 1)


def kept_group_norm(
    x: Tensor, gain: Tensor, bias: Tensor, *, kept: Tensor, share: Tensor, floor: float = -math.inf
) -> Tensor:
    """Group normalisation whose statistics run over the kept channels only; the others come out as 0.

    Shapes: x [B, R * C, H, W], 0 in channels that are not kept; gain, bias [R, C], 0 there; kept [R, C], 1 or 0;
    share [R * groups] = 1 / (kept elements of a sample and group), 0 where there are none.  `floor` 0 is a ReLU.
    """
    return _KeptNorm.apply(x, gain, bias, kept, (share, floor))[0]
