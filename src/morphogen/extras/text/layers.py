"""Layers on the tokens of stacked language models.  Rows = networks, outermost: [R, B, n, d]."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen import kernels
from morphogen.kernels.native import AutogradFunction, apply_function, has_kernel
from morphogen.nets.elementwise import by_vectors
from morphogen.nets.sequences import by_network, multiply
from morphogen.state import rng

_FEW_TOKENS = 48  # in which plain products are faster than the fused operator
_LANES = 2**27  # random numbers of a place of dropout


def normed_linear(x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Layer normalisation and a linear layer behind it.

    Shapes: x [R, ..., I]; gain, shift [R, I]; weight [R, O, I], bias [R, O] (None = 0) -> [R, ..., O].
    Gain and shift are taken into the linear layer: they meet its small parameters instead of all tokens.
    """
    return apply_function(_NormedLinear, x, gain, shift, weight, bias)[0]


class _NormedLinear(AutogradFunction):
    """Standardised tokens, in a product with weights times gains, plus the products of weights and shifts."""

    @staticmethod
    def forward(x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
        standard, mean, inverse = kernels.standardise(x)
        scaled = weight * gain.unsqueeze(1)
        total = kernels.column_sums((weight * shift.unsqueeze(1)).transpose(1, 2))
        out = multiply(standard, scaled, total if bias is None else total + bias)
        return out, standard, mean, inverse, scaled

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:4], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, shift, weight, standard, mean, inverse, scaled = ctx.saved_tensors
        grad = by_network(grads[0])
        inner = torch.bmm(grad, scaled).view(x.shape)
        x_grad = kernels.standardise_backward(inner, x, standard, mean, inverse)
        product, total = torch.bmm(grad.transpose(1, 2), by_network(standard)), kernels.column_sums(grad)
        each = total.unsqueeze(-1)
        return (
            x_grad,
            kernels.column_sums(product * weight),
            kernels.column_sums(weight * each),
            torch.addcmul(product * gain.unsqueeze(1), each, shift.unsqueeze(1)),
            total if ctx.needs_input_grad[4] else None,
        )


def standardise(x: Tensor) -> Tensor:
    """Normalise every token to mean 0 and variance 1.  [..., d] -> [..., d]."""
    return apply_function(_Standardise, x)[0]


class _Standardise(AutogradFunction):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return kernels.standardise(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return kernels.standardise_backward(grads[0], *ctx.saved_tensors)


class Dropout(NamedTuple):
    """Dropout in a pass of training: random streams and the share that is dropped."""

    streams: Tensor  # int64 [R, 5]
    share: float

    def __call__(self, x: Tensor, place: int) -> Tensor:
        """Drop values and scale the others up.  x [R, ...]; place: number of this call in the pass."""
        words = rng.random_bits(self.streams, x[0].numel(), first=place * _LANES)
        kept = (words >= round(self.share * 2**32)).to(x.dtype)
        return x * (kept / (1 - self.share)).view(x.shape)


def causal_attention(
    qkv: Tensor, heads: int, drop: Callable[[Tensor], Tensor] | None = None, reach: Tensor | None = None
) -> Tensor:
    """Scaled dot product attention of every token to itself and those before it.

    Shapes: qkv [R, B, n, 3 d], queries, keys and values of all heads; reach int64 [R], number of tokens before it that
    a token sees, None: all -> [R, B, n, d].
    drop: dropout of the weights [R, B, heads, n, n].
    """
    tokens, flat = qkv.shape[2], torch.unflatten(qkv.flatten(0, 1), -1, (3, heads, -1))
    if drop is None and kernels.can_attend(flat):
        return apply_function(_Attention, flat, reach)[0].view(*qkv.shape[:-1], -1)
    parts = flat.permute(2, 0, 3, 1, 4)
    if drop is None and reach is None and tokens > _FEW_TOKENS:
        queries, keys, values = parts.unbind(0)
        out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    else:
        queries, keys, values = parts.flatten(1, 2).unbind(0)
        unseen = torch.full((tokens, tokens), -math.inf, dtype=qkv.dtype, device=qkv.device).triu(1)
        if reach is not None:
            place = torch.arange(tokens, device=qkv.device)
            far = place.unsqueeze(-1) - place > reach.view(-1, 1, 1, 1)  # [R, 1, n, n]
            unseen = unseen.masked_fill(far, -math.inf).expand(-1, len(queries) // len(reach), -1, -1).flatten(0, 1)
        scores = torch.baddbmm(unseen, queries, keys.transpose(-2, -1), alpha=queries.shape[-1] ** -0.5)
        weights = scores.softmax(-1)
        if drop is not None:
            weights = drop(weights.view(*qkv.shape[:2], heads, tokens, tokens)).view(weights.shape)
        out = torch.unflatten(torch.bmm(weights, values), 0, (-1, heads))
    return out.transpose(1, 2).flatten(2).view(*qkv.shape[:-1], -1)


class _Attention(AutogradFunction):
    """Attention with logarithms of sums, from queries, keys and values as they lie in memory."""

    @staticmethod
    def forward(qkv: Tensor, reach: Tensor | None) -> tuple[Tensor, Tensor]:
        return kernels.attention(qkv, reach)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *output, inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return kernels.attention_backward(grads[0], *ctx.saved_tensors), None


def gelu(x: Tensor) -> Tensor:
    """Return `x * Phi(x)`, Phi the standard normal distribution function."""
    return apply_function(_Gelu, x) if has_kernel(x) else F.gelu(x)


class _Gelu(AutogradFunction):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return by_vectors(F.gelu, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return by_vectors(torch.ops.aten.gelu_backward, grads[0], *ctx.saved_tensors)
