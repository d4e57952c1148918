"""Blending of seeds into features: some seeds add their delta, others multiply the features by a function of it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import (
    block_args,
    call_kernel,
    has_kernel,
    make_contiguous,
    make_evenly_strided,
    operator,
    statistics_dtype,
)
from morphogen.kernels.take import pool, pool_backward, take_rows

Spans = tuple[tuple[int, int], ...]  # first seed and last seed + 1
_ROWS = -2
_CHUNK = 1 << 14  # floats, as in blend.c


class BlendIndex(NamedTuple):
    """Correspondence of N seeds, M of which multiply, to R rows of features, and the weights of the seeds."""

    seed_row: Tensor  # int64 [N], row of a seed
    source: Tensor  # int64 [R], seed that changes a row; N = no seed
    product_source: Tensor  # int64 [R], that seed's position among those that multiply; M = not one of them
    factor: Tensor  # float [N], or [B, N]


class BlendGrads(NamedTuple):
    """Gradients of a blend."""

    features: Tensor
    sums: Tensor | None  # [B, G], gradient times delta of the seeds with a gate; None without gates
    blocks: Sequence[Tensor]


class BlendSaved(NamedTuple):
    """Tensors that a blend saves for its gradient."""

    features: Tensor | None  # input features, where any seed multiplies
    blocks: Sequence[Tensor]  # deltas, where any seed has a gate
    tanh: Tensor | None  # [B, ..., M, C], tanh of the deltas that multiply
    gates: Tensor | None  # int64 [G], seeds with a gate
    argmax: Tensor | None  # position of the largest of four pixels, where the result is pooled


class BlendSizes(NamedTuple):
    """Sizes of a blend."""

    spans: Spans  # seeds that multiply
    blocks: list[int]  # seeds of every block
    size: Sequence[int]  # axes between samples and rows of the features


def blend(
    features: Tensor, blocks: Sequence[Tensor], index: BlendIndex, spans: Spans, *, pooled: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Blend all seeds into the features, and pool the result if `pooled`.

    Shapes: features [B, ..., R, C] ([B, H, W, R, C] if pooled); blocks [B, ..., n, C] each, together the deltas of the
    N seeds; spans: seeds that multiply.
    Returns: features, half as high and wide if pooled; tanh of the deltas that multiply [B, ..., M, C] or None; argmax
    of the pooling, shaped like the features, or None.
    """
    if not has_kernel(features):
        out, tanh = _torch_forward(features, blocks, index, spans)
    else:
        fused = pooled and _can_fuse_pool(features.shape)
        out, tanh, argmax = _blend(features, blocks, *index, _flat_spans(spans), fused)
        tanh = tanh if spans else None
        if fused:
            return out, tanh, argmax
    out, argmax = pool(out) if pooled else (out, None)
    return out, tanh, argmax


def blend_backward(grad: Tensor, saved: BlendSaved, index: BlendIndex, sizes: BlendSizes) -> BlendGrads:
    """Return the gradients of features, gates and deltas.  grad: of the result of `blend`."""
    shape = grad.shape[0], *sizes.size, *grad.shape[_ROWS:]
    if saved.argmax is not None and not (has_kernel(grad) and _can_fuse_pool(shape)):
        grad, saved = pool_backward(grad, saved.argmax, sizes.size), saved._replace(argmax=None)
    if not has_kernel(grad):
        return _torch_backward(grad, saved, index, sizes)
    features, sums, *blocks = _blend_backward(grad, *saved, *index, _flat_spans(sizes.spans), sizes.blocks, sizes.size)
    changed = sizes.spans or saved.argmax is not None
    return BlendGrads(features if changed else grad, None if saved.gates is None else sums.sum(-1), blocks)


def _can_fuse_pool(shape: Sequence[int]) -> bool:
    """Return True if one kernel blends and pools features of this shape."""
    _, height, width, rows, channels = shape
    return height % 2 == width % 2 == 0 and 4 * rows * channels <= _CHUNK


def _flat_spans(spans: Spans) -> list[int]:
    return [end for span in spans for end in span]


def _kernel(results: tuple[Tensor, ...], features: Tensor, blocks: Sequence[Tensor], *args):
    (*index, ends, pooled), (out, tanh, argmax) = args, results
    features, blocks = features.contiguous(), [make_evenly_strided(block) for block in blocks]
    tensors = features, out, None, None, 0, None, tanh, *(features.shape[1:3] if pooled else (0, 0)), argmax
    call_kernel("blend", *_size_args(features.shape, BlendIndex(*index)), *tensors, block_args(blocks), tuple(ends), ())


def _kernel_backward(results: list[Tensor], grad: Tensor, *args):
    (features, blocks, tanh, gates, argmax), (features_grad, sums, *block_grads) = args[:5], results
    (*index, ends, _, size), blocks = args[5:], [make_evenly_strided(block) for block in blocks]
    changed, grad = bool(ends) or argmax is not None, grad.contiguous()
    sizes = _size_args(torch.Size((grad.shape[0], *size, *grad.shape[_ROWS:])), BlendIndex(*index))
    tensors = make_contiguous(features), features_grad if changed else None, grad, gates, sums.shape[1], sums, tanh
    pooled = (0, 0, None) if argmax is None else (*size, argmax)
    call_kernel("blend_backward", *sizes, *tensors, *pooled, block_args(blocks), tuple(ends), block_args(block_grads))


def _size_args(shape: torch.Size, index: BlendIndex) -> tuple:
    """Return sizes and indices in the order of the kernels' arguments."""
    seeds, factor = index.seed_row.shape[0], index.factor.contiguous()
    samples, pixels, (rows, channels) = shape[0], shape[1:_ROWS].numel(), shape[_ROWS:]
    return samples, pixels, rows, channels, seeds, index.source, index.seed_row, factor, seeds * (factor.dim() > 1)


def _shapes(features: Tensor, blocks: Sequence[Tensor], *args):
    *_, ends, pooled = args
    lead, (rows, channels) = features.shape[:_ROWS], features.shape[_ROWS:]
    multiplied = sum(last - first for first, last in zip(ends[::2], ends[1::2], strict=True))
    out = (lead[0], *(side // 2 for side in lead[1:]), rows, channels) if pooled else features.shape
    argmax = features.new_empty(out if pooled else 0, dtype=torch.uint8)
    return features.new_empty(out), features.new_empty(*lead, multiplied, channels), argmax


def _shapes_backward(grad: Tensor, *args):
    saved, (ends, sizes, size) = BlendSaved(*args[:5]), args[-3:]
    lead, channels = (grad.shape[0], *size), grad.shape[-1]
    features_grad = grad.new_empty((*lead, *grad.shape[_ROWS:]) if ends or saved.argmax is not None else 0)
    sums = grad.new_empty(grad.shape[0], 0 if saved.gates is None else saved.gates.shape[0], channels)
    return [features_grad, sums, *(grad.new_empty(*lead, seeds, channels) for seeds in sizes)]


_INDEX_ARGS = "Tensor seed_row, Tensor source, Tensor product_source, Tensor factor, SymInt[] ends"
_blend = operator(
    f"blend(Tensor features, Tensor[] blocks, {_INDEX_ARGS}, bool pooled) -> (Tensor, Tensor, Tensor)", _kernel, _shapes
)
_blend_backward = operator(
    f"blend_backward(Tensor grad, Tensor? features, Tensor[] blocks, Tensor? tanh, Tensor? gates, Tensor? argmax,"
    f" {_INDEX_ARGS}, SymInt[] sizes, SymInt[] size) -> Tensor[]",
    _kernel_backward,
    _shapes_backward,
)


def _torch_forward(
    features: Tensor, blocks: Sequence[Tensor], index: BlendIndex, spans: Spans
) -> tuple[Tensor, Tensor | None]:
    tanh = None
    if spans:
        tanh = torch.tanh(_select_spans(blocks, spans))
        blocks = _replace_spans(blocks, spans, tanh * take_rows(features, _multiplied_rows(index.seed_row, spans)))
    deltas = take_rows(torch.cat([*blocks, _zero_row(features)], _ROWS), index.source)
    factor = F.pad(index.factor, (0, 1)).index_select(-1, index.source)
    return torch.addcmul(features, deltas, _expand_rows(factor, features)), tanh


def _torch_backward(grad: Tensor, saved: BlendSaved, index: BlendIndex, sizes: BlendSizes) -> BlendGrads:
    row_grads, sums = take_rows(grad, index.seed_row), None
    if saved.gates is not None:
        deltas = take_rows(torch.cat(list(saved.blocks), _ROWS), saved.gates)
        products = take_rows(row_grads, saved.gates) * deltas
        sums = products.sum(-1, dtype=statistics_dtype(grad.dtype))  # [B, ..., G]
        sums = sums if sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    delta_grads = row_grads * _expand_rows(index.factor, row_grads)
    if saved.features is None or saved.tanh is None:
        return BlendGrads(grad, sums, delta_grads.split_with_sizes(sizes.blocks, _ROWS))
    products = _select_spans((delta_grads,), sizes.spans)
    factors = take_rows(saved.features, _multiplied_rows(index.seed_row, sizes.spans))
    features = grad + take_rows(torch.cat((products * saved.tanh, _zero_row(grad)), _ROWS), index.product_source)
    multiplied = torch.ops.aten.tanh_backward(products * factors, saved.tanh)
    delta_grads = torch.cat(_replace_spans((delta_grads,), sizes.spans, multiplied), _ROWS)
    return BlendGrads(features, sums, delta_grads.split_with_sizes(sizes.blocks, _ROWS))


def _select_spans(blocks: Sequence[Tensor], spans: Spans) -> Tensor:
    """Select the seeds of some spans from consecutive blocks.  [..., n, C] each -> [..., M, C]."""
    parts, first = [], 0
    for block in blocks:
        last = first + block.shape[_ROWS]
        parts += [block[..., start - first : end - first, :] for start, end in spans if first <= start < last]
        first = last
    return torch.cat(parts, _ROWS)


def _replace_spans(blocks: Sequence[Tensor], spans: Spans, values: Tensor) -> list[Tensor]:
    """Replace the seeds of some spans in consecutive blocks.  values [..., M, C] -> parts that together are N seeds."""
    parts, first, new = [], 0, iter(values.split_with_sizes([end - start for start, end in spans], _ROWS))
    for block in blocks:
        last = first + block.shape[_ROWS]
        within = [(start - first, end - first) for start, end in spans if first <= start < last]
        for (start, _), before in zip(within, [0, *[end for _, end in within]], strict=False):
            parts += [block[..., before:start, :], next(new)]
        parts.append(block[..., within[-1][1] if within else 0 :, :])
        first = last
    return parts


def _multiplied_rows(seed_row: Tensor, spans: Spans) -> Tensor:
    """Rows of the seeds that multiply.  int64 [M]."""
    parts = [seed_row[start:end] for start, end in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _zero_row(like: Tensor) -> Tensor:
    """One row of zeros.  [..., R, C] -> [..., 1, C]."""
    return torch.zeros_like(like[..., :1, :], memory_format=torch.contiguous_format)


def _expand_rows(rows: Tensor, like: Tensor) -> Tensor:
    """Expand values per row, or per sample and row, to all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1])
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
