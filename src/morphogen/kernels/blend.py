"""Blending of seeds into the features h of their hosts, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns
as if it added its full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds, in the axis
before the channels; any axes may lie between them and the samples.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of, statistics_dtype
from morphogen.kernels.native import (
    block_args,
    call_kernel,
    make_contiguous,
    make_evenly_strided,
    operator,
)
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.take import take_rows

Spans = tuple[tuple[int, int], ...]  # first seed and last seed + 1
_ROWS = -2


class SeedIndex(NamedTuple):
    """Index and weights of the N seeds of a slot, M of which multiply, among R rows of features."""

    rows: Tensor  # int64 [N], row of the features of each seed
    factor: Tensor  # float [N], weight of the delta
    silent: Tensor  # bool [N], the delta is not added, whatever its values
    source: Tensor  # int64 [R], seed that is blended into a row; N = no seed
    # int64 [R], that seed's position among those that multiply; M = not one of them
    product_source: Tensor


class GateIndex(NamedTuple):
    """Index and weights of the G seeds with a gate, all of which are added."""

    position: Tensor  # int64 [G], among the N seeds
    factor: Tensor  # float [G], weight of the delta
    silent: Tensor  # bool [G], the delta is not added


class _Saved(NamedTuple):
    """Inputs of the gradient of a blend, in the order of its operator."""

    features: Tensor | None  # input features, where any seed multiplies
    deltas: Sequence[Tensor]  # where any seed has a gate
    tanh: Tensor | None  # [B, ..., M, C], tanh of the deltas that multiply
    argmax: Tensor | None  # position of the largest of four pixels, where the result is pooled
    gates: Tensor | None  # int64 [G], seeds with a gate
    rows: Tensor  # these four as in `SeedIndex`, the factor also [B, N]
    factor: Tensor
    source: Tensor
    product_source: Tensor
    ends: list[int]  # first seed and last seed + 1 of every span that multiplies
    sizes: list[int]  # seeds of every block of deltas
    size: Sequence[int]  # axes between samples and rows of the features


def build_seed_index(
    rows: Tensor, alpha: Tensor, training: Tensor, *, count: int, multiplied: Spans = ()
) -> SeedIndex:
    """Build the index and weights of seeds.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; count: R; multiplied: spans of seeds
    that multiply.
    """
    silent = training | (alpha == 0)
    seeds = alpha.shape[0]
    order = torch.arange(seeds + 1, device=alpha.device)
    nobody = order.new_full((count + 1,), seeds)  # inductor writes an expanded base at one place
    source = nobody.index_copy(0, torch.where(silent, count, rows), order[:-1])[:count]
    products = torch.cat([order[:0], *(order[start:end] for start, end in multiplied)])
    size = products.shape[0]
    product_source = torch.full_like(order, size).index_copy(0, products, order[:size])[source]
    return SeedIndex(rows, alpha.masked_fill(training, 1.0), silent, source, product_source)


def build_gate_index(seeds: SeedIndex, position: Tensor) -> GateIndex:
    """Build the index of the seeds with a gate.  position int64 [G], positions among the N
    seeds.
    """
    return GateIndex(position, seeds.factor[position], seeds.silent[position])


def blend(
    features: Tensor,
    deltas: Sequence[Tensor],
    seeds: SeedIndex,
    *,
    multiplied: Spans = (),
    gates: tuple[Tensor, GateIndex] | None = None,
    pooled: bool = False,
) -> Tensor:
    """Blend all seeds of a slot into the features, and pool the result 2x2 if `pooled`.

    Shapes: features [B, ..., R, C] -> like features; pooled, [B, H, W, R, C] -> [B, H // 2, W // 2,
    R, C].
    deltas: outputs of the seeds, [B, ..., n, C] each; together, one after the other, the N seeds.
    multiplied: spans of seeds that multiply.
    gates: openness float [B, G], per sample, or [B, n, G], per place, and its index; None: all are
    open.
    Promise: a silent row does not change, for any delta.  The gradient of an added delta is 1 in
    training, else alpha times gate; the factor of the features is 1, and `1 + a tanh(d)`
    where a row that is not silent multiplies.
    """
    if pooled and form_of("blend_and_pool", features) is not Form.KERNEL:
        return max_pool2d(blend(features, deltas, seeds, multiplied=multiplied, gates=gates))
    if gates is not None and gates[0].dim() == 3:  # every place as a sample
        flat = features.flatten(0, 1), [part.flatten(0, 1) for part in deltas], seeds
        out = blend(*flat, multiplied=multiplied, gates=(gates[0].flatten(0, 1), gates[1]))
        return torch.unflatten(out, 0, features.shape[:2])
    openness, index = (None, None) if gates is None else gates
    options = [end for span in multiplied for end in span], pooled
    return apply_function(_Blend, features, openness, (seeds, index), options, *deltas)[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once.  Deltas of silent seeds are never read."""

    @staticmethod
    def forward(
        features: Tensor,
        openness: Tensor | None,
        index: tuple[SeedIndex, GateIndex | None],
        options: tuple[list[int], bool],
        *deltas: Tensor,
    ) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
        seeds, gates = index
        ends, pooled = options
        factor = seeds.factor
        if openness is not None and gates is not None:
            gated = gates.factor.to(openness.dtype) * openness
            per_sample = factor.to(openness.dtype).repeat(features.shape[0], 1)
            factor = per_sample.index_copy_(1, gates.position, gated)
        factor = factor.to(features.dtype)
        where = seeds.rows, factor, seeds.source, seeds.product_source
        if form_of("blend", features) is Form.KERNEL:
            out, tanh, argmax = _blend(features, deltas, *where, ends, pooled)
        else:
            out, tanh = _torch_blend(features, deltas, seeds._replace(factor=factor), ends)
            argmax = None
        return out, factor, tanh if ends else None, argmax if pooled else None

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        features, _, (seeds, gates), (ends, _), *deltas = inputs
        _, factor, tanh, argmax = output
        ctx.sizes = ends, [block.shape[_ROWS] for block in deltas], features.shape[1:_ROWS]
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.set_materialize_grads(False)
        where = seeds.rows, factor, seeds.source, seeds.product_source
        gated = (None, None, None) if gates is None else gates
        kept = () if gates is None else deltas
        ctx.save_for_backward(features if ends else None, tanh, argmax, *gated, *where, *kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, tanh, argmax, position, factor, silent, *rest = ctx.saved_tensors
        where = rest[:4]
        deltas = rest[4:]
        saved = _Saved(features, deltas, tanh, argmax, position, *where, *ctx.sizes)
        grad = grads[0].contiguous()
        gradients = _kernel_gradients if form_of("blend", grad) is Form.KERNEL else _torch_gradients
        features_grad, sums, delta_grads = gradients(grad, saved)
        openness = None
        if sums is not None:
            openness = (sums * factor).masked_fill_(silent, 0.0)
        return features_grad, openness, None, None, *delta_grads


def _torch_blend(
    features: Tensor, deltas: Sequence[Tensor], seeds: SeedIndex, ends: list[int]
) -> tuple[Tensor, Tensor | None]:
    """Return the blended features, and the tanh of the deltas that multiply."""
    tanh = None
    if ends:
        parts = _split_spans(torch.cat(list(deltas), _ROWS), ends)
        tanh = torch.tanh(torch.cat(parts[1::2], _ROWS))
        products = tanh * take_rows(features, _multiplied_rows(seeds.rows, ends))
        deltas = _replace_spans(parts, products)
    added = take_rows(torch.cat([*deltas, _zero_row(features)], _ROWS), seeds.source)
    factor = F.pad(seeds.factor, (0, 1)).index_select(-1, seeds.source)
    return torch.addcmul(features, added, _expand_rows(factor, features)), tanh


def _torch_gradients(grad: Tensor, saved: _Saved) -> tuple[Tensor, Tensor | None, Sequence[Tensor]]:
    """Return the gradients of features and deltas; between them, gradient times delta of the gated
    [B, G].
    """
    row_grads = take_rows(grad, saved.rows)
    sums = None
    if saved.gates is not None:
        deltas = take_rows(torch.cat(list(saved.deltas), _ROWS), saved.gates)
        products = take_rows(row_grads, saved.gates) * deltas
        sums = products.sum(-1, dtype=statistics_dtype(grad.dtype))  # [B, ..., G]
        sums = sums if sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    delta_grads = row_grads * _expand_rows(saved.factor, row_grads)
    if saved.features is None or saved.tanh is None:
        return grad, sums, delta_grads.split_with_sizes(saved.sizes, _ROWS)
    parts = _split_spans(delta_grads, saved.ends)
    products = torch.cat(parts[1::2], _ROWS)
    factors = take_rows(saved.features, _multiplied_rows(saved.rows, saved.ends))
    multiplied = torch.cat((products * saved.tanh, _zero_row(grad)), _ROWS)
    features = grad + take_rows(multiplied, saved.product_source)
    products = torch.ops.aten.tanh_backward(products * factors, saved.tanh)
    delta_grads = torch.cat(_replace_spans(parts, products), _ROWS)
    return features, sums, delta_grads.split_with_sizes(saved.sizes, _ROWS)


def _split_spans(x: Tensor, ends: list[int], axis: int = _ROWS) -> list[Tensor]:
    """Split seeds into those that are added and, in every second part, those that multiply."""
    cuts = pairwise([0, *ends, x.shape[axis]])
    return list(x.split_with_sizes([last - first for first, last in cuts], axis))


def _replace_spans(parts: list[Tensor], values: Tensor) -> list[Tensor]:
    """Return the parts with other values of the seeds that multiply.  values [..., M, C]."""
    sizes = [part.shape[_ROWS] for part in parts[1::2]]
    new = values.split_with_sizes(sizes, _ROWS)
    return [part if n % 2 == 0 else new[n // 2] for n, part in enumerate(parts)]


def _multiplied_rows(rows: Tensor, ends: list[int]) -> Tensor:
    """Rows of the seeds that multiply.  int64 [M]."""
    return torch.cat(_split_spans(rows, ends, 0)[1::2])


def _zero_row(like: Tensor) -> Tensor:
    """One row of zeros.  [..., R, C] -> [..., 1, C]."""
    return torch.zeros_like(like[..., :1, :], memory_format=torch.contiguous_format)


def _expand_rows(rows: Tensor, like: Tensor) -> Tensor:
    """Expand values per row, or per sample and row, to all channels.  [R] or [B, R] -> [..., R,
    C].
    """
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1])
    return (
        wide
        if rows.dim() == 1
        else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
    )


def _kernel_gradients(
    grad: Tensor, saved: _Saved
) -> tuple[Tensor, Tensor | None, Sequence[Tensor]]:
    """Return the same as `_torch_gradients`."""
    features, sums, *deltas = _blend_backward(grad, *saved)
    changed = saved.ends or saved.argmax is not None
    return features if changed else grad, None if saved.gates is None else sums.sum(-1), deltas


def _kernel(
    results: tuple[Tensor, ...], features: Tensor, deltas: Sequence[Tensor], *args: Any
) -> None:
    rows, factor, source, _, ends, pooled = args
    out, tanh, argmax = results
    features = features.contiguous()
    blocks = [make_evenly_strided(block) for block in deltas]
    sizes = _size_args(features.shape, rows, factor, source)
    pooling = *(features.shape[1:3] if pooled else (0, 0)), argmax
    tensors = features, out, None, None, 0, None, tanh, *pooling
    call_kernel("blend", *sizes, *tensors, block_args(blocks), tuple(ends), ())


def _kernel_backward(results: list[Tensor], grad: Tensor, *args: Any) -> None:
    saved = _Saved(*args)
    features_grad, sums, *delta_grads = results
    blocks = [make_evenly_strided(block) for block in saved.deltas]
    changed = bool(saved.ends) or saved.argmax is not None
    shape = torch.Size((grad.shape[0], *saved.size, *grad.shape[_ROWS:]))
    sizes = _size_args(shape, saved.rows, saved.factor, saved.source)
    inputs = make_contiguous(saved.features), features_grad if changed else None, grad.contiguous()
    gated = saved.gates, sums.shape[1], sums
    pooling = (0, 0, None) if saved.argmax is None else (*saved.size, saved.argmax)
    outputs = block_args(blocks), tuple(saved.ends), block_args(delta_grads)
    call_kernel("blend_backward", *sizes, *inputs, *gated, saved.tanh, *pooling, *outputs)


def _size_args(shape: torch.Size, rows: Tensor, factor: Tensor, source: Tensor) -> tuple[Any, ...]:
    """Return sizes and indices in the order of the kernels' arguments."""
    samples = shape[0]
    pixels = shape[1:_ROWS].numel()
    seeds = rows.shape[0]
    per_sample = seeds * (factor.dim() > 1)
    return samples, pixels, *shape[_ROWS:], seeds, source, rows, factor.contiguous(), per_sample


def _shapes(
    features: Tensor, deltas: Sequence[Tensor], *args: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *_, ends, pooled = args
    lead = features.shape[:_ROWS]
    shared = features.shape[_ROWS:]
    multiplied = sum(ends[1::2]) - sum(ends[::2])
    out = (lead[0], *(side // 2 for side in lead[1:]), *shared) if pooled else features.shape
    argmax = features.new_empty(out if pooled else 0, dtype=torch.uint8)
    return features.new_empty(out), features.new_empty(*lead, multiplied, shared[1]), argmax


def _shapes_backward(grad: Tensor, *args: Any) -> list[Tensor]:
    saved = _Saved(*args)
    lead = grad.shape[0], *saved.size
    channels = grad.shape[-1]
    changed = saved.ends or saved.argmax is not None
    features_grad = grad.new_empty((*lead, *grad.shape[_ROWS:]) if changed else 0)
    sums = grad.new_empty(
        grad.shape[0], 0 if saved.gates is None else saved.gates.shape[0], channels
    )
    return [features_grad, sums, *(grad.new_empty(*lead, seeds, channels) for seeds in saved.sizes)]


_INDEX_ARGS = "Tensor rows, Tensor factor, Tensor source, Tensor product_source, SymInt[] ends"
_blend = operator(
    f"blend(Tensor features, Tensor[] deltas, {_INDEX_ARGS}, bool pooled) -> (Tensor, "
    "Tensor, Tensor)",
    _kernel,
    _shapes,
)
_blend_backward = operator(
    "blend_backward(Tensor grad, Tensor? features, Tensor[] deltas, Tensor? tanh, Tensor? "
    f"argmax, Tensor? gates, {_INDEX_ARGS}, SymInt[] sizes, SymInt[] size) -> Tensor[]",
    _kernel_backward,
    _shapes_backward,
)
