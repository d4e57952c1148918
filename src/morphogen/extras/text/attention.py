"""Causal attention; the kernel serves short rows of tokens with narrow heads."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import LIMITS, Form, form_of
from morphogen.kernels.native import (
    Call,
    Function,
    make_contiguous,
    operator,
)

_FEW_TOKENS = 48  # in which plain products are faster than the fused operator
_TOKENS = 128  # of a sample, for the kernel
_HEAD_SIZE = 32


def causal_attention(
    qkv: Tensor,
    heads: int,
    drop: Callable[[Tensor], Tensor] | None = None,
    reach: Tensor | None = None,
) -> Tensor:
    """Scaled dot product attention of every place to itself and those before it.

    Shapes: qkv [R, B, n, 3 d], queries, keys and values of all heads; reach int64 [R], number of
    tokens before it that
    a token sees, None: all -> [R, B, n, d].
    drop: dropout of the weights [R, B, heads, n, n].
    """
    flat = torch.unflatten(qkv.flatten(0, 1), -1, (3, heads, -1))
    if drop is None and form_of("attention", flat) is Form.KERNEL:
        out = apply_function(_Attention, flat, reach)[0]
    else:
        out = _torch_attention(flat, qkv.shape[0], drop, reach)
    return out.view(*qkv.shape[:-1], -1)


def _torch_attention(
    qkv: Tensor, networks: int, drop: Callable[[Tensor], Tensor] | None, reach: Tensor | None
) -> Tensor:
    """Return the values that tokens attend to.  qkv [S, n, 3, heads, c], S samples of all networks
    -> [S, n, d].
    """
    tokens = qkv.shape[1]
    queries, keys, values = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [S, heads, n, c] each
    if drop is None and reach is None and tokens > _FEW_TOKENS:
        out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return out.transpose(1, 2).flatten(2)
    unseen = torch.full((tokens, tokens), -math.inf, dtype=qkv.dtype, device=qkv.device).triu(1)
    if reach is not None:
        place = torch.arange(tokens, device=qkv.device)
        far = place.unsqueeze(-1) - place > reach.view(-1, 1, 1, 1)  # [R, 1, n, n]
        unseen = unseen.masked_fill(far, -math.inf).repeat_interleave(len(qkv) // len(reach), 0)
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1) + unseen
    weights = scores.softmax(-1)
    if drop is not None:
        weights = drop(torch.unflatten(weights, 0, (networks, -1))).flatten(0, 1)
    return (weights @ values).transpose(1, 2).flatten(2)


class _Attention(Function):
    """Mean values that tokens attend to, and the logarithms of the sums of their scores.

    qkv float32 [S, n, 3, heads, c]; reach of the S / R samples of every network -> [S, n, heads,
    c], [S, heads, n].
    """

    @staticmethod
    def forward(qkv: Tensor, reach: Tensor | None) -> tuple[Tensor, Tensor]:
        return _attention(qkv, reach)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor | None], output: tuple[Tensor, Tensor]
    ) -> None:
        Function.setup_context(ctx, inputs, output)
        ctx.save_for_backward(inputs[0], *output, inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _attention_backward(grads[0], *ctx.saved_tensors), None


def _can_attend(qkv: Tensor) -> bool:
    return qkv.shape[1] <= _TOKENS and qkv.shape[-1] <= _HEAD_SIZE


LIMITS["attention"] = _can_attend


@operator("attention(Tensor qkv, Tensor? reach) -> (Tensor, Tensor)")
def _attention(call: Call, qkv: Tensor, reach: Tensor | None) -> tuple[Tensor, Tensor]:
    samples, tokens, heads, size = _sizes(qkv)
    results = qkv.new_empty(samples, tokens, heads, size), qkv.new_empty(samples, heads, tokens)
    call("attention", *_shared_args(qkv, reach), *results, None, None)
    return results


@operator(
    "attention_backward(Tensor grad, Tensor qkv, Tensor out, Tensor logs, Tensor? reach) -> Tensor"
)
def _attention_backward(call: Call, grad: Tensor, *saved: Any) -> Tensor:
    qkv, out, logs, reach = saved
    back = qkv.new_empty(qkv.shape)
    call("attention_backward", *_shared_args(qkv, reach), out, logs, grad.contiguous(), back)
    return back


def _shared_args(qkv: Tensor, reach: Tensor | None) -> tuple[Any, ...]:
    networks = 1 if reach is None else len(reach)
    return *_sizes(qkv), networks, qkv.contiguous(), make_contiguous(reach)


def _sizes(qkv: Tensor) -> tuple[int, ...]:
    samples, tokens, _, heads, size = qkv.shape
    return samples, tokens, heads, size
