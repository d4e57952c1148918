"""Seeds blended into features: what they add, or the features times what they are multiplied with."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import call, fits, operator, striped
from morphogen.kernels.take import take

Spans = tuple[tuple[int, int], ...]  # first seed, and one behind the last
_ROWS = -2


class Places(NamedTuple):
    """Which of N seeds, M of which multiply, meets which of R rows, and how much of it counts."""

    home: Tensor  # int64 [N], row of a seed
    heard: Tensor  # int64 [R], the seed that a row hears; N = none
    product: Tensor  # int64 [R], the same among those that multiply; M = none
    factor: Tensor  # float [N], or [B, N]


class Pushes(NamedTuple):
    """Gradients."""

    features: Tensor
    sums: Tensor | None  # [B, N], gradient times delta; None where it is not asked for
    blocks: Sequence[Tensor]


def blend(features: Tensor, blocks: Sequence[Tensor], turned: Tensor | None, where: Places, spans: Spans) -> Tensor:
    """The features with what every row hears.

    Shapes: features [B, ..., R, C]; blocks [B, ..., n, C] each, all together the deltas of the N seeds; spans: those
    that multiply, with turned [B, ..., M, C] instead of their deltas -> as features.
    """
    if not fits(features):
        return _plain(features, blocks, turned, where, spans)
    return _blend(features, blocks, turned, *where, [end for span in spans for end in span])


def blend_backward(
    grad: Tensor,
    features: Tensor | None,
    blocks: Sequence[Tensor],
    turned: Tensor | None,
    where: Places,
    spans: Spans,
    sizes: list[int],
) -> Pushes:
    """Gradients of features and deltas.

    features: what went in, where any seed multiplies; blocks: the deltas, where sums are asked for; sizes: seeds of
    every block.
    """
    if not fits(grad):
        return _plain_backward(grad, features, blocks, turned, where, spans, sizes)
    ends = [end for span in spans for end in span]
    into, sums, *pushes = _blend_backward(grad, features, blocks, turned, *where, ends, sizes)
    return Pushes(into if spans else grad, sums if blocks else None, pushes)


def cut(blocks: Sequence[Tensor], spans: Spans) -> Tensor:
    """The seeds of some spans, from blocks that follow each other.  [..., n, C] each -> [..., M, C]."""
    pieces, first = [], 0
    for block in blocks:
        last = first + block.shape[_ROWS]
        pieces += [block[..., start - first : end - first, :] for start, end in spans if first <= start < last]
        first = last
    return torch.cat(pieces, _ROWS)


def _lanes(blocks: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(x for block in blocks for x in (block.data_ptr(), block.shape[_ROWS], block.stride(_ROWS - 1)))


def _kernel(features, blocks, turned, home, heard, product, factor, ends):
    features, blocks, out = features.contiguous(), [striped(block) for block in blocks], torch.empty_like(features)
    sizes = _sizes(features, home, heard, factor)
    call("blend", *sizes, features, out, None, None, turned, _lanes(blocks), tuple(ends), ())
    return out


def _kernel_backward(grad, features, blocks, turned, home, heard, product, factor, ends, sizes):
    grad, blocks = grad.contiguous(), [striped(block) for block in blocks]
    into, sums, *pushes = _shapes_backward(grad, features, blocks, turned, home, heard, product, factor, ends, sizes)
    base = None if features is None else features.contiguous()
    asked = into if ends else None, grad, sums if blocks else None
    call("blend_backward", *_sizes(grad, home, heard, factor), base, *asked, turned, _lanes(blocks), tuple(ends), _lanes(pushes))
    return [into, sums, *pushes]


def _sizes(x: Tensor, home: Tensor, heard: Tensor, factor: Tensor) -> tuple:
    """Sizes and places as the kernels take them."""
    (samples, *pixels), (rows, channels) = x.shape[:_ROWS], x.shape[_ROWS:]
    seeds = home.shape[0]
    own = factor.contiguous()
    count = torch.Size(pixels).numel()
    return samples, count, rows, channels, seeds, heard, home, own, seeds if own.dim() > 1 else 0


def _shapes(features, blocks, turned, home, heard, product, factor, ends):
    return features.new_empty(features.shape)


def _shapes_backward(grad, features, blocks, turned, home, heard, product, factor, ends, sizes):
    lead, (_, channels) = grad.shape[:_ROWS], grad.shape[_ROWS:]
    into = grad.new_empty(grad.shape if ends else 0)
    sums = grad.new_empty((grad.shape[0], home.shape[0]) if blocks else 0)
    return [into, sums, *(grad.new_empty(*lead, size, channels) for size in sizes)]


_WHERE = "Tensor? turned, Tensor home, Tensor heard, Tensor product, Tensor factor, int[] ends"
_blend = operator(f"blend(Tensor features, Tensor[] blocks, {_WHERE}) -> Tensor", _kernel, _shapes)
_blend_backward = operator(
    f"blend_backward(Tensor grad, Tensor? features, Tensor[] blocks, {_WHERE}, int[] sizes) -> Tensor[]",
    _kernel_backward,
    _shapes_backward,
)


def _plain(features, blocks, turned, where, spans):
    added = [*blocks, _nothing(features)]
    heard = where.heard
    if turned is not None:
        behind = where.home.shape[0] + 1
        added.append(turned * take(features, _multiplying(where.home, spans)))
        heard = torch.where(where.product < turned.shape[_ROWS], behind + where.product, heard)
    factor = F.pad(where.factor, (0, 1)).index_select(-1, where.heard)
    return torch.addcmul(features, take(torch.cat(added, _ROWS), heard), _over(factor, features))


def _plain_backward(grad, features, blocks, turned, where, spans, sizes):
    own = take(grad, where.home)
    sums = (own * torch.cat(list(blocks), _ROWS)).sum(-1) if blocks else None  # [B, ..., N]
    sums = sums if sums is None or sums.dim() == 2 else sums.flatten(1, -2).sum(1)
    push = own * _over(where.factor, own)
    if turned is None:
        return Pushes(grad, sums, push.split(sizes, _ROWS))
    slope = cut((push,), spans)
    base = take(features, _multiplying(where.home, spans))
    into = grad + take(torch.cat((slope * turned, _nothing(grad)), _ROWS), where.product)
    pieces = torch.ops.aten.tanh_backward(slope * base, turned).split([end - start for start, end in spans], _ROWS)
    for (start, end), piece in zip(spans, pieces, strict=True):
        push[..., start:end, :] = piece
    return Pushes(into, sums, push.split(sizes, _ROWS))


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
