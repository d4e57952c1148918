"""Seeds blended into features: what they add, or the features times what they are multiplied with."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import block_args, call_kernel, has_kernel, make_contiguous, make_evenly_strided, operator
from morphogen.kernels.pool import pool, pool_backward
from morphogen.kernels.take import take_rows

Spans = tuple[tuple[int, int], ...]  # first seed, and one behind the last
_ROWS = -2
_CHUNK = 1 << 14  # floats, as in blend.c


class BlendIndex(NamedTuple):
    """Which of N seeds, M of which multiply, meets which of R rows, and how much of it counts."""

    seed_row: Tensor  # int64 [N], row of a seed
    source: Tensor  # int64 [R], the seed that a row hears; N = none
    product_source: Tensor  # int64 [R], the same among those that multiply; M = none
    factor: Tensor  # float [N], or [B, N]


class BlendGrads(NamedTuple):
    """Gradients."""

    features: Tensor
    sums: Tensor | None  # [B, G], gradient times delta of the seeds with a gate; None where there are none
    blocks: Sequence[Tensor]


class BlendSaved(NamedTuple):
    """What a blend keeps for its gradient."""

    features: Tensor | None  # what went in, where any seed multiplies
    blocks: Sequence[Tensor]  # the deltas, where any seed has a gate
    tanh: Tensor | None  # [B, ..., M, C], tanh of the deltas that multiply
    gates: Tensor | None  # int64 [G], seeds with a gate
    argmax: Tensor | None  # where it was pooled: which of four pixels was the largest


class BlendSizes(NamedTuple):
    """Sizes of a blend."""

    spans: Spans  # seeds that multiply
    blocks: list[int]  # seeds of every block
    size: Sequence[int]  # what lies between samples and rows of the features


def blend(
    features: Tensor, blocks: Sequence[Tensor], index: BlendIndex, spans: Spans, *, pooled: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The features with what every row hears, and for the gradient the tanh of what multiplies, and who was largest.

    Shapes: features [B, ..., R, C]; blocks [B, ..., n, C] each, all together the deltas of the N seeds; spans: those
    that multiply; pooled: 2x2 at once, of [B, H, W, R, C] -> as features or half as high and wide, [B, ..., M, C] (None
    where nothing multiplies), as the first (None where nothing is pooled).
    """
    if not has_kernel(features):
        out, turned = _torch_forward(features, blocks, index, spans)
    else:
        both = pooled and _can_fuse_pool(features.shape)
        out, turned, winner = _blend(features, blocks, *index, _flat_spans(spans), both)
        turned = turned if spans else None
        if both:
            return out, turned, winner
    out, winner = pool(out) if pooled else (out, None)
    return out, turned, winner


def blend_backward(grad: Tensor, saved: BlendSaved, index: BlendIndex, sizes: BlendSizes) -> BlendGrads:
    """Gradients of features and deltas.  grad as what came out."""
    shape = grad.shape[0], *sizes.size, *grad.shape[_ROWS:]
    if saved.argmax is not None and not (has_kernel(grad) and _can_fuse_pool(shape)):
        grad, saved = pool_backward(grad, saved.argmax, sizes.size), saved._replace(argmax=None)
    if not has_kernel(grad):
        return _torch_backward(grad, saved, index, sizes)
    into, sums, *pushes = _blend_backward(grad, *saved, *index, _flat_spans(sizes.spans), sizes.blocks, sizes.size)
    changed = sizes.spans or saved.argmax is not None
    return BlendGrads(into if changed else grad, None if saved.gates is None else sums.sum(-1), pushes)


def _can_fuse_pool(shape: Sequence[int]) -> bool:
    """Whether one kernel blends and pools."""
    _, height, width, rows, channels = shape
    return height % 2 == width % 2 == 0 and 4 * rows * channels <= _CHUNK


def _flat_spans(spans: Spans) -> list[int]:
    return [end for span in spans for end in span]


def _kernel(features: Tensor, blocks: Sequence[Tensor], *given):
    *places, ends, pooled = given
    features, blocks = features.contiguous(), [make_evenly_strided(block) for block in blocks]
    out, turned, winner = _shapes(features, blocks, *given)
    own = features, out, None, None, 0, None, turned, *(features.shape[1:3] if pooled else (0, 0)), winner
    call_kernel("blend", *_size_args(features.shape, BlendIndex(*places)), *own, block_args(blocks), tuple(ends), ())
    return out, turned, winner


def _kernel_backward(grad: Tensor, *given):
    features, blocks, turned, gates, winner = kept = BlendSaved(*given[:5])
    (*places, ends, _, size), blocks = given[5:], [make_evenly_strided(block) for block in kept.blocks]
    into, sums, *pushes = made = _shapes_backward(grad, *given)
    changed, grad = bool(ends) or winner is not None, grad.contiguous()
    own = make_contiguous(features), into if changed else None, grad, gates, sums.shape[1], sums, turned
    pooled = (0, 0, None) if winner is None else (*size, winner)
    shape = torch.Size((grad.shape[0], *size, *grad.shape[_ROWS:]))
    known = *_size_args(shape, BlendIndex(*places)), *own, *pooled
    call_kernel("blend_backward", *known, block_args(blocks), tuple(ends), block_args(pushes))
    return made


def _size_args(shape: torch.Size, index: BlendIndex) -> tuple:
    """Sizes and places as the kernels take them."""
    seeds, own = index.seed_row.shape[0], index.factor.contiguous()
    samples, pixels, (rows, channels) = shape[0], shape[1:_ROWS].numel(), shape[_ROWS:]
    return samples, pixels, rows, channels, seeds, index.source, index.seed_row, own, seeds if own.dim() > 1 else 0


def _shapes(features: Tensor, blocks: Sequence[Tensor], *given):
    *_, ends, pooled = given
    lead, own = features.shape[:_ROWS], features.shape[_ROWS:]
    many = sum(last - first for first, last in zip(ends[::2], ends[1::2], strict=True))
    small = (lead[0], *(side // 2 for side in lead[1:]), *own) if pooled else features.shape
    winner = features.new_empty(small if pooled else 0, dtype=torch.uint8)
    return features.new_empty(small), features.new_empty(*lead, many, own[1]), winner


def _shapes_backward(grad: Tensor, *given):
    kept, (ends, sizes, size) = BlendSaved(*given[:5]), given[-3:]
    lead, channels = (grad.shape[0], *size), grad.shape[-1]
    into = grad.new_empty((*lead, *grad.shape[_ROWS:]) if ends or kept.argmax is not None else 0)
    sums = grad.new_empty(grad.shape[0], 0 if kept.gates is None else kept.gates.shape[0], channels)
    return [into, sums, *(grad.new_empty(*lead, one, channels) for one in sizes)]


_INDEX_ARGS = "Tensor home, Tensor heard, Tensor product, Tensor factor, SymInt[] ends"
_blend = operator(
    f"blend(Tensor features, Tensor[] blocks, {_INDEX_ARGS}, bool pooled) -> (Tensor, Tensor, Tensor)", _kernel, _shapes
)
_blend_backward = operator(
    f"blend_backward(Tensor grad, Tensor? features, Tensor[] blocks, Tensor? turned, Tensor? gates, Tensor? winner,"
    f" {_INDEX_ARGS}, SymInt[] sizes, SymInt[] size) -> Tensor[]",
    _kernel_backward,
    _shapes_backward,
)


def _torch_forward(
    features: Tensor, blocks: Sequence[Tensor], index: BlendIndex, spans: Spans
) -> tuple[Tensor, Tensor | None]:
    added, heard, turned = [*blocks, _zero_row(features)], index.source, None
    if spans:
        turned = torch.tanh(_select_spans(blocks, spans))
        added.append(turned * take_rows(features, _multiplied_rows(index.seed_row, spans)))
        behind = index.seed_row.shape[0] + 1 + index.product_source
        heard = torch.where(index.product_source < turned.shape[_ROWS], behind, heard)
    factor = F.pad(index.factor, (0, 1)).index_select(-1, index.source)
    return torch.addcmul(features, take_rows(torch.cat(added, _ROWS), heard), _expand_rows(factor, features)), turned


def _torch_backward(grad: Tensor, saved: BlendSaved, index: BlendIndex, sizes: BlendSizes) -> BlendGrads:
    own, sums = take_rows(grad, index.seed_row), None
    if saved.gates is not None:
        sums = (take_rows(own, saved.gates) * take_rows(torch.cat(list(saved.blocks), _ROWS), saved.gates)).sum(
            -1
        )  # [B, ..., G]
        sums = sums if sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    push = own * _expand_rows(index.factor, own)
    if saved.features is None or saved.tanh is None:
        return BlendGrads(grad, sums, push.split(sizes.blocks, _ROWS))
    slope, base = (
        _select_spans((push,), sizes.spans),
        take_rows(saved.features, _multiplied_rows(index.seed_row, sizes.spans)),
    )
    into = grad + take_rows(torch.cat((slope * saved.tanh, _zero_row(grad)), _ROWS), index.product_source)
    back = torch.ops.aten.tanh_backward(slope * base, saved.tanh)
    pieces = back.split([end - start for start, end in sizes.spans], _ROWS)
    for (start, end), piece in zip(sizes.spans, pieces, strict=True):
        push[..., start:end, :] = piece
    return BlendGrads(into, sums, push.split(sizes.blocks, _ROWS))


def _select_spans(blocks: Sequence[Tensor], spans: Spans) -> Tensor:
    """The seeds of some spans, from blocks that follow each other.  [..., n, C] each -> [..., M, C]."""
    pieces, first = [], 0
    for block in blocks:
        last = first + block.shape[_ROWS]
        pieces += [block[..., start - first : end - first, :] for start, end in spans if first <= start < last]
        first = last
    return torch.cat(pieces, _ROWS)


def _multiplied_rows(home: Tensor, spans: Spans) -> Tensor:
    """Rows of the seeds that multiply.  int64 [M]."""
    return torch.cat([home[start:end] for start, end in spans])


def _zero_row(like: Tensor) -> Tensor:
    """One row that adds nothing.  [..., R, C] -> [..., 1, C]."""
    return torch.zeros_like(like[..., :1, :], memory_format=torch.contiguous_format)


def _expand_rows(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, for all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1]).contiguous()
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
