"""Blending of seeds into the features h of their hosts, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns
as if it added its full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds, in the axis
before the channels; any axes may lie between them and the samples.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.compat import apply_function, copy_each
from morphogen.kernels import Form, form_of, statistics_dtype
from morphogen.kernels.native import (
    Call,
    block_args,
    make_contiguous,
    make_evenly_strided,
    operator,
)
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.take import take_rows

Spans = tuple[tuple[int, int], ...]  # first seed and last seed + 1
_ROWS = -2


class SeedIndex(NamedTuple):
    """Index and weights of the N seeds of a slot, G of which have a gate, among R rows of features.
    All gated seeds are added.
    """

    rows: Tensor  # int64 [N], row of the features of each seed
    factor: Tensor  # float [N], weight of the delta; float [B, N] with the gates of a pass
    source: Tensor  # int64 [R], seed that is blended into a row; N = no seed
    gates: Tensor  # int64 [G], positions among the N seeds
    gate_factor: Tensor  # float [G], weight of the delta without the gate
    gate_silent: Tensor  # bool [G], the delta is not added


def build_seed_index(
    rows: Tensor, alpha: Tensor, training: Tensor, gates: Tensor, *, count: int
) -> SeedIndex:
    """Build the index and weights of seeds.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; gates int64 [G], positions among the
    N seeds; count: R.
    """
    silent = training | (alpha == 0)
    factor = alpha.masked_fill(training, 1.0)
    order = torch.arange(alpha.shape[0], device=alpha.device)
    # inductor writes an expanded base at one place
    nobody = order.new_full((count + 1,), alpha.shape[0])
    source = nobody.index_copy(0, torch.where(silent, count, rows), order)[:count]
    return SeedIndex(rows, factor, source, gates, factor[gates], silent[gates])


def blend(
    features: Tensor,
    deltas: Sequence[Tensor],
    seeds: SeedIndex,
    *,
    multiplied: Spans = (),
    openness: Tensor | None = None,
    pooled: bool = False,
) -> Tensor:
    """Blend all seeds of a slot into the features, and pool the result 2x2 if `pooled`.

    Shapes: features [B, ..., R, C] -> like features; pooled, [B, H, W, R, C] -> [B, H // 2, W // 2,
    R, C].
    deltas: outputs of the seeds, [B, ..., n, C] each; together, one after the other, the N seeds.
    multiplied: spans of seeds that multiply.
    openness: of the gates, float [B, G], per sample, or [B, n, G], per place; None: all are open.
    Promise: a silent row does not change, for any delta.  The gradient of an added delta is 1 in
    training, else alpha times gate; the factor of the features is 1, and `1 + a tanh(d)`
    where a row that is not silent multiplies.
    """
    if pooled and form_of("blend_and_pool", features) is not Form.KERNEL:
        return max_pool2d(blend(features, deltas, seeds, multiplied=multiplied, openness=openness))
    if openness is not None and openness.dim() == 3:  # every place as a sample
        flat = features.flatten(0, 1), [part.flatten(0, 1) for part in deltas], seeds
        out = blend(*flat, multiplied=multiplied, openness=openness.flatten(0, 1))
        return torch.unflatten(out, 0, features.shape[:2])
    ends = [end for span in multiplied for end in span]
    return apply_function(_Blend, features, openness, seeds, ends, pooled, *deltas)[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once.  Deltas of silent seeds are never read."""

    @staticmethod
    def forward(
        features: Tensor,
        openness: Tensor | None,
        seeds: SeedIndex,
        ends: list[int],
        pooled: bool,
        *deltas: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return the blended features, and for their gradient the factors, the tanh of deltas that
        multiply, [B, ..., M, C], and the position of the largest of four pixels, where pooled.
        """
        factor = seeds.factor
        if openness is not None:
            gated = seeds.gate_factor.to(openness.dtype) * openness
            per_sample = factor.to(openness.dtype).repeat(features.shape[0], 1)
            factor = per_sample.index_copy_(1, seeds.gates, gated)
        factor = factor.to(features.dtype)
        if form_of("blend", features) is Form.KERNEL:
            index = seeds.rows, factor, seeds.source
            out, tanh, argmax = _blend(features, deltas, *index, ends, pooled)
            return out, factor, tanh if ends else None, argmax if pooled else None
        out, tanh = _torch_blend(features, deltas, seeds._replace(factor=factor), ends)
        return out, factor, tanh, None

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        features, openness, seeds, ends, _, *deltas = inputs
        _, factor, tanh, argmax = output
        ctx.ends = ends
        ctx.sizes = [block.shape[_ROWS] for block in deltas]
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.set_materialize_grads(False)
        kept = () if openness is None else deltas  # they serve the gradient of the gates alone
        index = seeds._replace(factor=factor)
        ctx.save_for_backward(features if ends else None, tanh, argmax, *index, *kept)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, tanh, argmax, *saved = ctx.saved_tensors
        seeds = SeedIndex(*saved[: len(SeedIndex._fields)])
        deltas = saved[len(SeedIndex._fields) :]
        grad = grads[0].contiguous()
        inputs = grad, features, tanh, deltas, seeds.gates if deltas else None
        where = seeds.rows, seeds.factor, seeds.source, ctx.ends, ctx.sizes
        if form_of("blend", grad) is Form.KERNEL:
            features_grad, sums, *delta_grads = _blend_backward(*inputs, argmax, *where)
            sums = sums.sum(-1)
        else:
            features_grad, sums, *delta_grads = _torch_gradients(*inputs, *where)
        openness = None
        if deltas:
            openness = (sums * seeds.gate_factor).masked_fill_(seeds.gate_silent, 0.0)
        changed = ctx.ends or argmax is not None
        return features_grad if changed else grad, openness, None, None, None, *delta_grads


def _torch_blend(
    features: Tensor, deltas: Sequence[Tensor], seeds: SeedIndex, ends: list[int]
) -> tuple[Tensor, Tensor | None]:
    """Return the blended features, and the tanh of the deltas that multiply."""
    tanh = None
    nothing = features.new_zeros(*features.shape[:_ROWS], 1, features.shape[-1])
    table = torch.cat([*deltas, nothing], _ROWS)
    if ends:
        tanh = torch.tanh(torch.cat(_spans(table, ends), _ROWS))
        products = tanh * take_rows(features, torch.cat(_spans(seeds.rows, ends, axis=0)))
        _write_spans(table, ends, products)
    added = take_rows(table, seeds.source)
    factor = F.pad(seeds.factor, (0, 1)).index_select(-1, seeds.source)
    return torch.addcmul(features, added, _expand_rows(factor, features)), tanh


def _torch_gradients(
    grad: Tensor,
    features: Tensor | None,
    tanh: Tensor | None,
    deltas: list[Tensor],
    gates: Tensor | None,
    *where: Any,
) -> list[Tensor]:
    """Return the gradient of the features, gradient times delta of the gates [B, G], and the
    gradients of all deltas; arguments of the operator `blend_backward`, without pooling.
    """
    rows, factor, source, ends, sizes = where
    row_grads = take_rows(grad, rows)
    sums = grad.new_empty(0)
    if gates is not None:
        products = take_rows(row_grads, gates) * take_rows(torch.cat(deltas, _ROWS), gates)
        sums = products.sum(-1, dtype=statistics_dtype(grad.dtype))  # [B, ..., G]
        sums = sums if sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    delta_grads = row_grads * _expand_rows(factor, row_grads)
    if features is not None and tanh is not None:
        outputs = torch.cat(_spans(delta_grads, ends), _ROWS)
        factors = take_rows(features, torch.cat(_spans(rows, ends, axis=0)))
        table = grad.new_zeros(*grad.shape[:_ROWS], rows.shape[0] + 1, grad.shape[-1])
        _write_spans(table, ends, outputs * tanh)
        grad = grad + take_rows(table, source)
        products = torch.ops.aten.tanh_backward(outputs * factors, tanh)
        _write_spans(delta_grads, ends, products)
    return [grad, sums, *delta_grads.split_with_sizes(sizes, _ROWS)]


def _spans(x: Tensor, ends: list[int], *, axis: int = _ROWS) -> list[Tensor]:
    """Views of the seeds that multiply."""
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [x.narrow(axis, first, end - first) for first, end in pairs]


def _write_spans(x: Tensor, ends: list[int], values: Tensor) -> None:
    """Replace the seeds that multiply.  values [..., M, C]."""
    spans = _spans(x, ends)
    sizes = [span.shape[_ROWS] for span in spans]
    copy_each(spans, values.split_with_sizes(sizes, _ROWS))


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


@operator(
    "blend(Tensor features, Tensor[] deltas, Tensor rows, Tensor factor, Tensor source, "
    "SymInt[] ends, bool pooled) -> (Tensor, Tensor, Tensor)"
)
def _blend(
    call: Call, features: Tensor, deltas: Sequence[Tensor], *where: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *index, ends, pooled = where
    shape = features.shape
    multiplied = sum(ends[1::2]) - sum(ends[::2])
    sides = shape[1:3] if pooled else (0, 0)
    size = (shape[0], *(side // 2 for side in sides), *shape[_ROWS:]) if pooled else shape
    out = features.new_empty(size)
    tanh = features.new_empty(*shape[:_ROWS], multiplied, shape[-1])
    argmax = features.new_empty(size if pooled else 0, dtype=torch.uint8)
    tensors = features.contiguous(), out, None, None, 0, None, tanh, *sides, argmax
    call("blend", *_index_args(shape, *index), *tensors, *_delta_args(deltas, ends, ()))
    return out, tanh, argmax


@operator(
    "blend_backward(Tensor grad, Tensor? features, Tensor? tanh, Tensor[] deltas, Tensor? gates, "
    "Tensor? argmax, Tensor rows, Tensor factor, Tensor source, SymInt[] ends, SymInt[] sizes) "
    "-> Tensor[]"
)
def _blend_backward(call: Call, grad: Tensor, *args: Any) -> list[Tensor]:
    features, tanh, deltas, gates, argmax, *index, ends, sizes = args
    sides = (0, 0) if argmax is None else (2 * grad.shape[1], 2 * grad.shape[2])
    shape = grad.shape if argmax is None else (grad.shape[0], *sides, *grad.shape[_ROWS:])
    changed = ends or argmax is not None
    features_grad = grad.new_empty(shape if changed else 0)
    sums = grad.new_empty(shape[0], 0 if gates is None else gates.shape[0], shape[-1])
    delta_grads = [grad.new_empty(*shape[:_ROWS], seeds, shape[-1]) for seeds in sizes]
    inputs = make_contiguous(features), features_grad if changed else None, grad.contiguous()
    tensors = *inputs, gates, sums.shape[1], sums, tanh, *sides, argmax
    blocks = _delta_args(deltas, ends, delta_grads)
    call("blend_backward", *_index_args(shape, *index), *tensors, *blocks)
    return [features_grad, sums, *delta_grads]


def _index_args(
    shape: Sequence[int], rows: Tensor, factor: Tensor, source: Tensor
) -> tuple[Tensor | int, ...]:
    """Return sizes and indices in the order of the kernels' arguments.  shape: of the features."""
    seeds = rows.shape[0]
    sizes = shape[0], math.prod(shape[1:_ROWS]), *shape[_ROWS:], seeds
    return *sizes, source, rows, factor.contiguous(), seeds * (factor.dim() > 1)


def _delta_args(
    deltas: Sequence[Tensor], ends: Sequence[int], grads: Sequence[Tensor]
) -> tuple[Any, ...]:
    blocks = [make_evenly_strided(block) for block in deltas]
    return block_args(blocks), tuple(ends), block_args(grads)
