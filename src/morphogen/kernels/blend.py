"""Seeds blended into features: what they add, or the features times what they are multiplied with."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import call, fits, lanes, operator, striped, whole
from morphogen.kernels.pool import pool, unpool
from morphogen.kernels.take import take

Spans = tuple[tuple[int, int], ...]  # first seed, and one behind the last
_ROWS = -2
_PIECE = 1 << 14  # floats, as in blend.c


class Places(NamedTuple):
    """Which of N seeds, M of which multiply, meets which of R rows, and how much of it counts."""

    home: Tensor  # int64 [N], row of a seed
    heard: Tensor  # int64 [R], the seed that a row hears; N = none
    product: Tensor  # int64 [R], the same among those that multiply; M = none
    factor: Tensor  # float [N], or [B, N]


class Pushes(NamedTuple):
    """Gradients."""

    features: Tensor
    sums: Tensor | None  # [B, G], gradient times delta of the seeds with a gate; None where there are none
    blocks: Sequence[Tensor]


class Blended(NamedTuple):
    """What a blend keeps for its gradient."""

    features: Tensor | None  # what went in, where any seed multiplies
    blocks: Sequence[Tensor]  # the deltas, where any seed has a gate
    turned: Tensor | None  # [B, ..., M, C], tanh of the deltas that multiply
    gates: Tensor | None  # int64 [G], seeds with a gate
    winner: Tensor | None  # where it was pooled: which of four pixels was the largest


class Extent(NamedTuple):
    """Sizes of a blend."""

    spans: Spans  # seeds that multiply
    blocks: list[int]  # seeds of every block
    size: Sequence[int]  # what lies between samples and rows of the features


def blend(
    features: Tensor, blocks: Sequence[Tensor], where: Places, spans: Spans, *, pooled: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The features with what every row hears, and for the gradient the tanh of what multiplies, and who was largest.

    Shapes: features [B, ..., R, C]; blocks [B, ..., n, C] each, all together the deltas of the N seeds; spans: those
    that multiply; pooled: 2x2 at once, of [B, H, W, R, C] -> as features or half as high and wide, [B, ..., M, C] (None
    where nothing multiplies), as the first (None where nothing is pooled).
    """
    if not fits(features):
        out, turned = _plain(features, blocks, where, spans)
    else:
        both = pooled and _at_once(features.shape)
        out, turned, winner = _blend(features, blocks, *where, _ends(spans), both)
        turned = turned if spans else None
        if both:
            return out, turned, winner
    out, winner = pool(out) if pooled else (out, None)
    return out, turned, winner


def blend_backward(grad: Tensor, kept: Blended, where: Places, of: Extent) -> Pushes:
    """Gradients of features and deltas.  grad as what came out."""
    shape = grad.shape[0], *of.size, *grad.shape[_ROWS:]
    if kept.winner is not None and not (fits(grad) and _at_once(shape)):
        grad, kept = unpool(grad, kept.winner, of.size), kept._replace(winner=None)
    if not fits(grad):
        return _plain_backward(grad, kept, where, of)
    into, sums, *pushes = _blend_backward(grad, *kept, *where, _ends(of.spans), of.blocks, of.size)
    changed = of.spans or kept.winner is not None
    return Pushes(into if changed else grad, None if kept.gates is None else sums.sum(-1), pushes)


def _at_once(shape: Sequence[int]) -> bool:
    """Whether one kernel blends and pools."""
    _, height, width, rows, channels = shape
    return height % 2 == width % 2 == 0 and 4 * rows * channels <= _PIECE


def _ends(spans: Spans) -> list[int]:
    return [end for span in spans for end in span]


def _kernel(features: Tensor, blocks: Sequence[Tensor], *given):
    *places, ends, pooled = given
    features, blocks = features.contiguous(), [striped(block) for block in blocks]
    out, turned, winner = _shapes(features, blocks, *given)
    own = features, out, None, None, 0, None, turned, *(features.shape[1:3] if pooled else (0, 0)), winner
    call("blend", *_sizes(features.shape, Places(*places)), *own, lanes(blocks), tuple(ends), ())
    return out, turned, winner


def _kernel_backward(grad: Tensor, *given):
    features, blocks, turned, gates, winner = kept = Blended(*given[:5])
    (*places, ends, _, size), blocks = given[5:], [striped(block) for block in kept.blocks]
    into, sums, *pushes = made = _shapes_backward(grad, *given)
    changed, grad = bool(ends) or winner is not None, grad.contiguous()
    own = whole(features), into if changed else None, grad, gates, sums.shape[1], sums, turned
    pooled = (0, 0, None) if winner is None else (*size, winner)
    shape = torch.Size((grad.shape[0], *size, *grad.shape[_ROWS:]))
    known = *_sizes(shape, Places(*places)), *own, *pooled
    call("blend_backward", *known, lanes(blocks), tuple(ends), lanes(pushes))
    return made


def _sizes(shape: torch.Size, where: Places) -> tuple:
    """Sizes and places as the kernels take them."""
    seeds, own = where.home.shape[0], where.factor.contiguous()
    samples, pixels, (rows, channels) = shape[0], shape[1:_ROWS].numel(), shape[_ROWS:]
    return samples, pixels, rows, channels, seeds, where.heard, where.home, own, seeds if own.dim() > 1 else 0


def _shapes(features: Tensor, blocks: Sequence[Tensor], *given):
    *_, ends, pooled = given
    lead, own = features.shape[:_ROWS], features.shape[_ROWS:]
    many = sum(last - first for first, last in zip(ends[::2], ends[1::2], strict=True))
    small = (lead[0], *(side // 2 for side in lead[1:]), *own) if pooled else features.shape
    winner = features.new_empty(small if pooled else 0, dtype=torch.uint8)
    return features.new_empty(small), features.new_empty(*lead, many, own[1]), winner


def _shapes_backward(grad: Tensor, *given):
    kept, (ends, sizes, size) = Blended(*given[:5]), given[-3:]
    lead, channels = (grad.shape[0], *size), grad.shape[-1]
    into = grad.new_empty((*lead, *grad.shape[_ROWS:]) if ends or kept.winner is not None else 0)
    sums = grad.new_empty(grad.shape[0], 0 if kept.gates is None else kept.gates.shape[0], channels)
    return [into, sums, *(grad.new_empty(*lead, one, channels) for one in sizes)]


_WHERE = "Tensor home, Tensor heard, Tensor product, Tensor factor, SymInt[] ends"
_blend = operator(
    f"blend(Tensor features, Tensor[] blocks, {_WHERE}, bool pooled) -> (Tensor, Tensor, Tensor)", _kernel, _shapes
)
_blend_backward = operator(
    f"blend_backward(Tensor grad, Tensor? features, Tensor[] blocks, Tensor? turned, Tensor? gates, Tensor? winner,"
    f" {_WHERE}, SymInt[] sizes, SymInt[] size) -> Tensor[]",
    _kernel_backward,
    _shapes_backward,
)


def _plain(features: Tensor, blocks: Sequence[Tensor], where: Places, spans: Spans) -> tuple[Tensor, Tensor | None]:
    added, heard, turned = [*blocks, _nothing(features)], where.heard, None
    if spans:
        turned = torch.tanh(_cut(blocks, spans))
        added.append(turned * take(features, _multiplying(where.home, spans)))
        behind = where.home.shape[0] + 1 + where.product
        heard = torch.where(where.product < turned.shape[_ROWS], behind, heard)
    factor = F.pad(where.factor, (0, 1)).index_select(-1, where.heard)
    return torch.addcmul(features, take(torch.cat(added, _ROWS), heard), _over(factor, features)), turned


def _plain_backward(grad: Tensor, kept: Blended, where: Places, of: Extent) -> Pushes:
    own, sums = take(grad, where.home), None
    if kept.gates is not None:
        sums = (take(own, kept.gates) * take(torch.cat(list(kept.blocks), _ROWS), kept.gates)).sum(-1)  # [B, ..., G]
        sums = sums if sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    push = own * _over(where.factor, own)
    if kept.features is None or kept.turned is None:
        return Pushes(grad, sums, push.split(of.blocks, _ROWS))
    slope, base = _cut((push,), of.spans), take(kept.features, _multiplying(where.home, of.spans))
    into = grad + take(torch.cat((slope * kept.turned, _nothing(grad)), _ROWS), where.product)
    back = torch.ops.aten.tanh_backward(slope * base, kept.turned)
    pieces = back.split([end - start for start, end in of.spans], _ROWS)
    for (start, end), piece in zip(of.spans, pieces, strict=True):
        push[..., start:end, :] = piece
    return Pushes(into, sums, push.split(of.blocks, _ROWS))


def _cut(blocks: Sequence[Tensor], spans: Spans) -> Tensor:
    """The seeds of some spans, from blocks that follow each other.  [..., n, C] each -> [..., M, C]."""
    pieces, first = [], 0
    for block in blocks:
        last = first + block.shape[_ROWS]
        pieces += [block[..., start - first : end - first, :] for start, end in spans if first <= start < last]
        first = last
    return torch.cat(pieces, _ROWS)


def _multiplying(home: Tensor, spans: Spans) -> Tensor:
    """Rows of the seeds that multiply.  int64 [M]."""
    return torch.cat([home[start:end] for start, end in spans])


def _nothing(like: Tensor) -> Tensor:
    """One row that adds nothing.  [..., R, C] -> [..., 1, C]."""
    return torch.zeros_like(like[..., :1, :], memory_format=torch.contiguous_format)


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, for all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1]).contiguous()
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
