"""How the deltas of seeds enter the host's features h, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns as if it added its
full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds, in the axis before the channels; the sizes before
it are free.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS = -2
Spans = tuple[tuple[int, int], ...]  # first and last + 1


class Mix(NamedTuple):
    """How the N seeds of a slot are blended in, M of which multiply."""

    rows: Tensor  # int64 [N], rows of the features that they belong to
    factor: Tensor  # float [N], share of the delta that counts
    silent: Tensor  # bool [N], nothing is added, whatever the delta holds
    place: Tensor  # int64 [R], the seed that every row hears; N = none
    source: Tensor  # int64 [R], what it hears, among all deltas, nothing, and the products of those that multiply
    base: Tensor  # int64 [M], rows of those that multiply
    product: Tensor  # int64 [R], the product that a row hears; M = none


class Gates(NamedTuple):
    """Gates of seeds that are added."""

    openness: Tensor  # float [B, G], per sample
    at: Tensor  # int64 [G], places among the seeds; one behind the last belongs to nobody


class Deltas(NamedTuple):
    """What seeds add to the features, before it is blended."""

    blocks: Sequence[Tensor]  # float [B, ..., n, C] each; all together, one after the other, the N seeds
    multiplied: Spans = ()  # the seeds that multiply


def take(x: Tensor, where: Tensor) -> Tensor:
    """Chosen rows, in the order of `where`.  x [..., R, C], where int64 [N] -> [..., N, C]."""
    return x.flatten(0, -3).index_select(1, where).view(*x.shape[:_ROWS], -1, x.shape[-1])  # three axes: far faster


def mix(rows: Tensor, alpha: Tensor, training: Tensor, *, count: int, multiplied: Spans = ()) -> Mix:
    """How seeds are blended in.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; count: R; multiplied: those of the N that multiply.
    """
    silent, seeds = training | (alpha == 0), rows.shape[0]
    order = torch.arange(seeds + 1, device=rows.device)
    place = order[-1:].expand(count + 1).index_copy(0, torch.where(silent, count, rows), order[:-1])[:count]
    which = torch.cat([order[:0], *(order[start:end] for start, end in multiplied)])
    product = torch.full_like(order, which.shape[0]).index_copy(0, which, order[: which.shape[0]])[place]
    source = torch.where(product < which.shape[0], seeds + 1 + product, place)
    return Mix(rows, torch.where(training, 1.0, alpha), silent, place, source, rows[which], product)


def blend(features: Tensor, deltas: Deltas, seeds: Mix, gates: Gates | None = None) -> Tensor:
    """The features with all seeds of a slot blended in; no gates = all open.

    Shapes: features [B, ..., R, C] -> the same.
    Promise: a silent row stays as it is, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    opened, at = (None, None) if gates is None else gates
    return _Blend.apply(features, opened, at, seeds, deltas.multiplied, *deltas.blocks)[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once: passes over the features are what it costs, so they are few.

    Every row takes what it hears from all that could be heard, with zeros behind: what is silent is never touched.
    """

    @staticmethod
    def forward(
        features: Tensor, opened: Tensor | None, at: Tensor | None, seeds: Mix, spans: Spans, *blocks: Tensor
    ) -> tuple[Tensor | None, ...]:
        turned, base, choices = None, None, [*blocks, _nothing(features)]
        if spans:
            turned, base = torch.tanh(_cut(blocks, spans)), take(features, seeds.base)
            choices.append(turned * base)
        whole = torch.cat(choices, _ROWS)
        factor = _factor(seeds, opened, at, samples=features.shape[0]).to(features.dtype)
        heard = F.pad(factor, (0, 1)).index_select(-1, seeds.place)
        out = torch.addcmul(features, take(whole, seeds.source), _over(heard, features))
        return out, factor, turned, base, whole if opened is not None else None

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, _, at, seeds, ctx.spans, *blocks = inputs
        _, *kept = output
        ctx.sizes = [block.shape[_ROWS] for block in blocks]
        ctx.mark_non_differentiable(*(part for part in kept if part is not None))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept, at, *seeds)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        factor, turned, base, whole, at, *own = ctx.saved_tensors
        seeds, grad = Mix(*own), grad.contiguous()
        push = take(grad, seeds.rows)
        opened = None if whole is None else _opening(push, whole, seeds, at)
        push.mul_(_over(factor, push))
        if turned is not None:
            slope = _cut((push,), ctx.spans)
            grad = grad + take(torch.cat((slope * turned, _nothing(grad)), _ROWS), seeds.product)
            _put(push, ctx.spans, torch.ops.aten.tanh_backward(slope * base, turned))
        return grad, opened, None, None, None, *push.split(ctx.sizes, _ROWS)


def _nothing(like: Tensor) -> Tensor:
    """One row that adds nothing.  [..., R, C] -> [..., 1, C]."""
    return torch.zeros_like(like[..., :1, :], memory_format=torch.contiguous_format)


def _cut(blocks: Sequence[Tensor], spans: Spans) -> Tensor:
    """The seeds of some spans, from blocks that follow each other.  [..., n, C] each -> [..., M, C]."""
    pieces, first = [], 0
    for block in blocks:
        last = first + block.shape[_ROWS]
        pieces += [block[..., start - first : end - first, :] for start, end in spans if first <= start < last]
        first = last
    return torch.cat(pieces, _ROWS)


def _put(push: Tensor, spans: Spans, own: Tensor) -> None:
    """Write the seeds of some spans.  push [..., N, C], own [..., M, C]."""
    pieces = own.split([end - start for start, end in spans], _ROWS)
    for (start, end), piece in zip(spans, pieces, strict=True):
        push[..., start:end, :] = piece


def _factor(seeds: Mix, opened: Tensor | None, at: Tensor | None, *, samples: int) -> Tensor:
    """What the delta of every seed is multiplied by.  [N], or [B, N] with gates."""
    if opened is None or at is None:
        return seeds.factor
    whole = F.pad(seeds.factor, (0, 1)).to(opened.dtype)
    return whole.repeat(samples, 1).index_copy_(1, at, whole[at] * opened)[:, :-1]


def _opening(push: Tensor, whole: Tensor, seeds: Mix, at: Tensor) -> Tensor:
    """The gradient of the gates.  push, whole [B, ..., N, C] -> [B, G]."""
    place = at.clamp(max=push.shape[_ROWS] - 1)
    sums = (take(push, place) * take(whole, place)).sum(-1)  # [B, ..., G]
    found = sums.flatten(1, -2).sum(1) if sums.dim() > 2 else sums
    return torch.where(seeds.silent[place], 0.0, found * seeds.factor[place])


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, for all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1]).contiguous()
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
