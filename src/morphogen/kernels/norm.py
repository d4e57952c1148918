"""Group normalisation over the unmasked channels, then a ReLU and a scale where they are wanted."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of, statistics_dtype
from morphogen.kernels.native import (
    Call,
    make_contiguous,
    make_evenly_strided,
    operator,
)

EPS = 1e-5
_FACTORS = "Tensor? gain, Tensor bias, Tensor? channel_mask, Tensor? inverse_count, Tensor? scale"


class NormBlock(NamedTuple):
    """Activations to normalise, with gain, bias, ReLU and scale; input of `group_norm`."""

    x: Tensor
    """[B, H, W, n, C]."""
    gain: Tensor | None
    """[n, C]; None = 1."""
    bias: Tensor
    """[n, C]."""
    scale: Tensor | None = None
    """[n, C], of the result; None = 1."""
    relu: bool = False
    """Negative results become 0, before the scale."""


class _Factors(NamedTuple):
    """Factors per channel; None = 1."""

    gain: Tensor | None  # [R, C]
    bias: Tensor  # [R, C]
    channel_mask: Tensor | None = None  # [R, C], 1 or 0
    # [R, G], 1 / (unmasked elements of a sample and group), 0 for 0; None: no mask
    inverse_count: Tensor | None = None
    scale: Tensor | None = None  # [R, C]


def group_norm(blocks: Sequence[NormBlock], *, groups: int) -> tuple[Tensor, ...]:
    """Group normalisation of every row of some blocks.

    Shapes: blocks x [B, H, W, n, C] -> [B, H, W, n, C] each; C must be a multiple of `groups`, the
    groups of a row.
    Source: Wu and He, Group Normalization, 2018.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> x = torch.arange(4.0).view(1, 2, 2, 1, 1)
        >>> block = mg.hosts.NormBlock(x, gain=None, bias=torch.zeros(1, 1), relu=True)
        >>> (out,) = mg.hosts.group_norm([block], groups=1)
        >>> [round(value, 2) for value in out.flatten().tolist()]
        [0.0, 0.0, 0.45, 1.34]
    """
    relus = [block.relu for block in blocks]
    # plain torch takes as many operators for one row as for all
    joins = len(blocks) > 1 and form_of("norm", blocks[0].x) is not Form.KERNEL
    if joins and relus == sorted(relus, reverse=True):
        return _joined_group_norm(blocks, groups)
    return tuple(
        [
            _normalise(x, groups, x.shape[-2] * relu, _Factors(gain, bias, scale=scale))
            for x, gain, bias, scale, relu in blocks
        ]
    )


def _joined_group_norm(blocks: Sequence[NormBlock], groups: int) -> tuple[Tensor, ...]:
    """`group_norm` as one block; those with a ReLU come first."""
    sizes = [block.bias.shape[0] for block in blocks]
    # Of more axes than three, CUDA copies tensors one by one.
    joined = torch.cat([block.x.flatten(0, 2) for block in blocks], 1)
    x = joined.view(*blocks[0].x.shape[:3], *joined.shape[1:])
    ones = torch.ones_like(x[0, 0, 0])
    factors = _Factors(
        gain=_concat_factors([block.gain for block in blocks], sizes, ones),
        bias=torch.cat([block.bias for block in blocks]),
        scale=_concat_factors([block.scale for block in blocks], sizes, ones),
    )
    relu_rows = sum([size * block.relu for size, block in zip(sizes, blocks, strict=True)])
    return _normalise(x, groups, relu_rows, factors).split_with_sizes(sizes, -2)


def _concat_factors(parts: list[Tensor | None], sizes: list[int], ones: Tensor) -> Tensor | None:
    """Concatenate factors of blocks, 1 where a block has none; None where no block has any."""
    if not [part for part in parts if part is not None]:
        return None
    pairs = zip(parts, sizes, strict=True)
    return torch.cat([ones[:size] if part is None else part for part, size in pairs])


def batch_norm(x: Tensor, gain: Tensor, bias: Tensor, *, relu: bool = False) -> Tensor:
    """Normalise with the statistics of this batch.  x [B, H, W, R, C]; gain, bias [R, C]."""
    # the batch as one sample, every channel a group of its own
    sample = x.flatten(0, 1).unsqueeze(0)
    rows, channels = gain.shape
    return _normalise(sample, channels, rows * relu, _Factors(gain, bias)).view(x.shape)


def masked_group_norm(
    x: Tensor,
    gain: Tensor,
    bias: Tensor,
    *,
    channel_mask: Tensor,
    inverse_count: Tensor,
    relu: bool = False,
) -> Tensor:
    """Group normalisation with statistics over unmasked channels only; masked channels of the
    result are 0.

    Shapes: x [B, H, W, R, C], gain and bias [R, C], all 0 in masked channels; channel_mask [R, C],
    1 or 0; inverse_count [R, G] = 1 / (unmasked elements of a sample and group), 0 for 0.
    """
    rows, groups = inverse_count.shape
    factors = _Factors(gain, bias, channel_mask, inverse_count)
    return _normalise(x, groups, rows * relu, factors)


def _normalise(x: Tensor, groups: int, relu_rows: int, factors: _Factors) -> Tensor:
    """Return `scale * (bias + gain * (x - mean) / deviation)`, with a ReLU before the scale in the
    first `relu_rows` rows: all, or none where there are kernels.  x [B, H, W, R, C] -> like x.
    """
    return apply_function(_GroupNorm, x, groups, relu_rows, *factors)[0]


class _GroupNorm(torch.autograd.Function):
    """Group normalisation, ReLU and scale."""

    @staticmethod
    def forward(
        x: Tensor, groups: int, relu_rows: int, *factors: Any
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the result, and inputs of the gradient.

        With a kernel: mean and 1 / deviation [2, B, R, G], and None, as the gradient needs x; else
        1 / deviation [B, 1, 1, R, G, 1 or C / G], at least in float32, and `(x - mean) / deviation`
        like x.
        """
        if relu_rows in (0, x.shape[-2]) and form_of("norm", x) is Form.KERNEL:
            out, stats = _norm(x, *factors, groups, bool(relu_rows))
            return out, stats, None
        return _torch_norm(x, groups, relu_rows, _Factors(*factors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        x, _, relu_rows, *factors = inputs
        _, stats, standard = output
        ctx.relu_rows = relu_rows
        ctx.by_kernel = standard is None
        ctx.mark_non_differentiable(*[part for part in output[1:] if part is not None])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if standard is None else standard, stats, *factors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, stats, *factors = ctx.saved_tensors
        needed: tuple[bool, ...] = ctx.needs_input_grad
        grad = grads[0].contiguous()
        if ctx.by_kernel:
            relu = bool(ctx.relu_rows)
            x_grad, parts = _norm_backward(grad, x, *factors, stats, relu, needed[0])
            gain, bias, scale = parts
        else:
            x_grad, gain, bias, scale = _torch_gradients(
                grad, x, stats, _Factors(*factors), relu_rows=ctx.relu_rows, needed=needed[0]
            )
        found = x_grad, None, None, gain, bias, None, None, scale
        return tuple([part if flag else None for part, flag in zip(found, needed, strict=True)])


def _torch_norm(
    x: Tensor, groups: int, relu_rows: int, factors: _Factors
) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.to(statistics_dtype(x.dtype))
    standard, inverse = _standardise(wide, factors, groups)
    out = _scale_and_shift(standard, factors.gain, factors.bias)
    if relu_rows:
        out[..., :relu_rows, :].clamp_min_(0.0)
    if factors.scale is not None:
        out.mul_(factors.scale)
    return out.to(x.dtype), inverse, standard.to(x.dtype)


def _standardise(x: Tensor, factors: _Factors, groups: int) -> tuple[Tensor, Tensor]:
    """Return `(x - mean) / deviation`, 0 in masked channels, and 1 / deviation [B, 1, 1, R, G, 1 or
    C / G].
    """
    grouped = x.view(*x.shape[:-1], groups, -1)
    mean, inverse = (part[:, None, None, :, :, None] for part in _statistics(grouped, factors))
    if factors.channel_mask is not None:
        inverse = inverse * factors.channel_mask.view(grouped.shape[3:])
    return (grouped - mean).mul_(inverse).view(x.shape), inverse


def _statistics(x: Tensor, factors: _Factors) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation of every group.  x [B, H, W, R, G, C / G] -> [B, R, G] each."""
    if factors.channel_mask is None or factors.inverse_count is None:
        variance, mean = torch.var_mean(x, (1, 2, 5), correction=0)
        return mean, variance.add_(EPS).rsqrt_()
    mean = x.sum((1, 2, 5)) * factors.inverse_count
    mask = torch.unflatten(factors.channel_mask, -1, x.shape[-2:])
    centred = torch.addcmul(x, mean[:, None, None, :, :, None], mask, value=-1.0)
    variance = centred.square_().sum((1, 2, 5)).mul_(factors.inverse_count)
    return mean, variance.add_(EPS).rsqrt_()


def _scale_and_shift(x: Tensor, gain: Tensor | None, bias: Tensor) -> Tensor:
    return x + bias if gain is None else torch.addcmul(bias, x, gain)


def _torch_gradients(
    grad: Tensor,
    standard: Tensor,
    inverse: Tensor,
    factors: _Factors,
    *,
    relu_rows: int,
    needed: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
    """Return the gradients of x (None unless needed), gain, bias and scale."""
    dtype = standard.dtype
    standard = standard.to(inverse.dtype)
    inner = _relu_backward(grad.to(inverse.dtype), standard, factors, relu_rows)
    # Scale and gain are constant over the samples: two sums per channel serve all gradients.
    sums = torch.stack((inner.sum((1, 2)), (inner * standard).sum((1, 2))))
    total = sums.sum(1)
    bias_grad, gain_grad = (total if factors.scale is None else total * factors.scale).unbind()
    scale_grad = None
    if factors.scale is not None:
        scale_grad = _scale_and_shift(total[1], factors.gain, factors.bias * total[0])
    x_grad = None
    if needed:
        x_grad = _input_gradient(inner, standard, inverse, sums, factors).to(dtype)
    return x_grad, gain_grad, bias_grad, scale_grad


def _relu_backward(grad: Tensor, standard: Tensor, factors: _Factors, rows: int) -> Tensor:
    """Gradient before the ReLU of the first rows.  -> like grad [B, H, W, R, C]."""
    if not rows:
        return grad
    gain = None if factors.gain is None else factors.gain[:rows]
    result = _scale_and_shift(standard[..., :rows, :], gain, factors.bias[:rows])
    inner = torch.ops.aten.threshold_backward(grad[..., :rows, :], result, 0.0)
    if rows == grad.shape[-2]:
        return inner
    # of more axes than three, CUDA copies tensors one by one
    parts = inner.flatten(0, 2), grad[..., rows:, :].flatten(0, 2)
    return torch.cat(parts, 1).view(grad.shape)


def _input_gradient(
    inner: Tensor, standard: Tensor, inverse: Tensor, sums: Tensor, factors: _Factors
) -> Tensor:
    """Return the gradient of x.  inner, standard [B, H, W, R, C]; sums [2, B, R, C] of them -> [B,
    H, W, R, C].
    """
    weight = factors.gain
    if factors.scale is not None:
        weight = factors.scale if weight is None else weight * factors.scale
    grouped = *standard.shape[:-1], inverse.shape[-2], -1
    means = (sums if weight is None else sums * weight).view(2, len(standard), *grouped[3:]).sum(-1)
    if factors.inverse_count is None:
        means *= -grouped[-2] / standard[0, :, :, 0].numel()
    else:
        means *= -factors.inverse_count
    level, tilt = means[:, :, None, None, :, :, None].unbind()
    x_grad = torch.addcmul(level, standard.view(grouped), tilt)
    inner = inner.view(x_grad.shape)
    if weight is None:
        x_grad.add_(inner)
    else:
        x_grad.addcmul_(inner, weight.view(x_grad.shape[3:]))
    return x_grad.mul_(inverse).view(standard.shape)


@operator(f"norm(Tensor x, {_FACTORS}, SymInt groups, bool relu) -> (Tensor, Tensor)")
def _norm(call: Call, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    *factors, groups, relu = args
    x = make_evenly_strided(x)
    out = x.new_empty(x.shape)
    stats = x.new_empty(2, x.shape[0], x.shape[3], groups)
    tensors = x, *map(make_contiguous, factors), out, stats
    call("norm", *tensors, *_sizes(x, groups), _floor(relu), EPS)
    return out, stats


@operator(
    f"norm_backward(Tensor grad, Tensor x, {_FACTORS}, Tensor stats, bool relu, bool "
    "needs_input_grad) -> (Tensor, Tensor)"
)
def _norm_backward(call: Call, grad: Tensor, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    *factors, stats, relu, needs_input_grad = args
    x = make_evenly_strided(x)
    samples, _, _, rows, channels = x.shape
    x_grad = x.new_empty(x.shape if needs_input_grad else 0)
    sample_sums = x.new_empty(3, samples, rows, channels)
    sums = x.new_empty(3, rows, channels)
    inputs = grad.contiguous(), x, *map(make_contiguous, factors), stats
    outputs = x_grad if needs_input_grad else None, sample_sums
    call("norm_backward", *inputs, *outputs, *_sizes(x, stats.shape[3]), _floor(relu))
    call("sums", 3, samples, rows * channels, sample_sums, sums)
    return x_grad, sums


def _floor(relu: bool) -> float:
    """Return the lower limit of the results before the scale."""
    return 0.0 if relu else -math.inf


def _sizes(x: Tensor, groups: int) -> tuple[int, ...]:
    samples, height, width, rows, channels = x.shape
    return samples, height * width, rows, channels, groups, x.stride(2)
