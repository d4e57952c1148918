"""Causal attention of short rows of tokens with narrow heads."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from morphogen.kernels.native import call_kernel, has_kernel, make_contiguous, operator

TOKENS, HEAD_SIZE = 128, 32  # of a sample and of a head, at most


def can_attend(qkv: Tensor) -> bool:
    """Return True if the kernels serve these queries, keys and values.  qkv [S, n, 3, heads, c]."""
    return has_kernel(qkv) and qkv.shape[1] <= TOKENS and qkv.shape[-1] <= HEAD_SIZE


def attention(qkv: Tensor, reach: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean values that tokens attend to, and the logarithms of the sums of their scores.

    Shapes: qkv float32 [S, n, 3, heads, c], queries, keys and values, of `can_attend`; reach int64 [R], tokens back
    that the S / R samples of a network see, None: all -> [S, n, heads, c], [S, heads, n].
    """
    return _attention(qkv, reach)


def attention_backward(grad: Tensor, qkv: Tensor, out: Tensor, logs: Tensor, reach: Tensor | None = None) -> Tensor:
    """Return the gradient of queries, keys and values.

    Shapes: grad [S, n, heads, c]; qkv and reach as in `attention`, out and logs its results -> like qkv.
    """
    return _attention_backward(grad, qkv, out, logs, reach)


def _sizes(qkv: Tensor) -> tuple[int, ...]:
    samples, tokens, _, heads, size = qkv.shape
    return samples, tokens, heads, size


def _shared_args(qkv: Tensor, reach: Tensor | None) -> tuple[Any, ...]:
    networks = 1 if reach is None else len(reach)
    return *_sizes(qkv), networks, qkv.contiguous(), make_contiguous(reach)


def _kernel(results: tuple[Tensor, Tensor], qkv: Tensor, reach: Tensor | None) -> None:
    call_kernel("attention", *_shared_args(qkv, reach), *results, None, None)


def _kernel_backward(back: Tensor, grad: Tensor, *saved: Any) -> None:
    qkv, out, logs, reach = saved
    call_kernel("attention_backward", *_shared_args(qkv, reach), out, logs, grad.contiguous(), back)


def _shapes(qkv: Tensor, reach: Tensor | None) -> tuple[Tensor, Tensor]:
    samples, tokens, heads, size = _sizes(qkv)
    return qkv.new_empty(samples, tokens, heads, size), qkv.new_empty(samples, heads, tokens)


_attention = operator("attention(Tensor qkv, Tensor? reach) -> (Tensor, Tensor)", _kernel, _shapes)
_attention_backward = operator(
    "attention_backward(Tensor grad, Tensor qkv, Tensor out, Tensor logs, Tensor? reach) -> Tensor",
    _kernel_backward,
    lambda grad, qkv, out, logs, reach: qkv.new_empty(qkv.shape),
)


@register_flop_formula([torch.ops.morphogen.attention])
def _flops(qkv: Any, *_: Any, **__: Any) -> int:
    return 2 * _products(qkv)


@register_flop_formula([torch.ops.morphogen.attention_backward])
def _flops_backward(grad: Any, qkv: Any, *_: Any, **__: Any) -> int:
    return 5 * _products(qkv)


def _products(qkv: Any) -> int:
    """Operations of a product of every token with itself and those before it."""
    samples, tokens, _, heads, size = qkv
    return samples * heads * size * tokens * (tokens + 1)
