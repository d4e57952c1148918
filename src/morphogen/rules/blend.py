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
_WORD = torch.complex128  # what a row is moved in: 16 bytes at once, never read as a number
Spans = tuple[tuple[int, int], ...]  # first and last + 1


class Choice(NamedTuple):
    """Rows to take, in this order."""

    rows: Tensor  # int64 [N]
    words: Tensor  # int64 [N, W], the words that they consist of; W = 0 where that is no whole number

    def split(self, sizes: Sequence[int]) -> tuple["Choice", ...]:
        """The choice in parts of so many rows."""
        return tuple(map(Choice, self.rows.split(sizes), self.words.split(sizes)))


class Mix(NamedTuple):
    """How the N seeds of a slot are blended in, M of which multiply."""

    rows: Choice  # [N], rows of the features that they belong to
    factor: Tensor  # float [N], share of the delta that counts
    silent: Tensor  # bool [N], nothing is added, whatever the delta holds
    place: Tensor  # int64 [R], the seed that every row hears; N = none
    source: Choice  # [R], what it hears, among all deltas, nothing, and the products of those that multiply
    base: Choice  # [M], rows of those that multiply
    product: Choice  # [R], the product that a row hears; M = none


class Gates(NamedTuple):
    """Gates of seeds that are added."""

    openness: Tensor  # float [B, G], per sample
    at: Tensor  # int64 [G], places among the seeds; one behind the last belongs to nobody


class Deltas(NamedTuple):
    """What seeds add to the features, before it is blended."""

    blocks: Sequence[Tensor]  # float [B, ..., n, C] each; all together, one after the other, the N seeds
    multiplied: Spans = ()  # the seeds that multiply


def choice(rows: Tensor, channels: int, like: Tensor) -> Choice:
    """Rows to take from features of so many channels, fastest in the dtype of `like`.  rows int64 [N]."""
    words, rest = divmod(channels * like.element_size(), _WORD.itemsize)
    every = torch.arange(0 if rest else words, device=rows.device)
    return Choice(rows, rows.unsqueeze(-1) * words + every)


def joined(parts: Sequence[Choice]) -> Choice:
    """Choices one after the other, of rows of one length."""
    return parts[0] if len(parts) == 1 else Choice(*map(torch.cat, zip(*parts, strict=True)))


def take(x: Tensor, where: Choice) -> Tensor:
    """Chosen rows, in their order.  x [..., R, C] -> [..., N, C].

    The kernel that chooses rows runs on one core and moves a number at a time; that which gathers has neither fault.
    The compiler knows no words and fuses rows.
    """
    lead, (rows, channels) = x.shape[:_ROWS], x.shape[_ROWS:]
    if where.words.shape[1] * _WORD.itemsize != channels * x.itemsize or torch.compiler.is_compiling():
        return _of(x, where.rows)
    words = x.reshape(-1, rows * channels).view(_WORD)
    found = words.gather(1, where.words.view(1, -1).expand(words.shape[0], -1))
    return found.view(x.dtype).view(*lead, -1, channels)


def _of(x: Tensor, rows: Tensor) -> Tensor:
    """Rows number by number.  x [..., R, C], rows int64 [N] -> [..., N, C]."""
    return x.flatten(0, -3).index_select(1, rows).view(*x.shape[:_ROWS], -1, x.shape[-1])  # three axes: far faster


def mix(rows: Tensor, alpha: Tensor, training: Tensor, *, count: int, channels: int, multiplied: Spans = ()) -> Mix:
    """How seeds are blended into features of so many channels, fastest where they have the dtype of `alpha`.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; count: R; multiplied: those of the N that multiply.
    """
    silent, seeds = training | (alpha == 0), alpha.shape[0]
    order = torch.arange(seeds + 1, device=alpha.device)
    place = order[-1:].expand(count + 1).index_copy(0, torch.where(silent, count, rows), order[:-1])[:count]
    which = torch.cat([order[:0], *(order[start:end] for start, end in multiplied)])
    product = torch.full_like(order, which.shape[0]).index_copy(0, which, order[: which.shape[0]])[place]
    source = torch.where(product < which.shape[0], seeds + 1 + product, place)
    own, *chosen = (choice(one, channels, alpha) for one in (rows, source, rows[which], product))
    return Mix(own, torch.where(training, 1.0, alpha), silent, place, *chosen)


def blend(features: Tensor, deltas: Deltas, seeds: Mix, gates: Gates | None = None) -> Tensor:
    """The features with all seeds of a slot blended in; no gates = all open.

    Shapes: features [B, ..., R, C] -> the same.
    Promise: a silent row stays as it is, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    opened, at = (None, None) if gates is None else gates
    # The compiler can't trace a function of so many tensors where none of them asks for a gradient.
    run = _Blend.apply if torch.is_grad_enabled() else _Blend.forward
    return run(features, opened, at, seeds, deltas.multiplied, *deltas.blocks)[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once: passes over the features are what it costs, so they are few.

    Every row takes what it hears from all that could be heard, with zeros behind: what is silent is never touched.
    """

    @staticmethod
    def forward(
        features: Tensor, opened: Tensor | None, at: Tensor | None, seeds: Mix, spans: Spans, *blocks: Tensor
    ) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
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
        ctx.save_for_backward(*kept, at, seeds.factor, seeds.silent, *seeds.rows, *seeds.product)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        factor, turned, base, whole, at, share, silent, *chosen = ctx.saved_tensors
        rows, product, grad = Choice(*chosen[:2]), Choice(*chosen[2:]), grad.contiguous()
        push = take(grad, rows)
        opened = None if whole is None else _opening(push, whole, at, share, silent)
        push.mul_(_over(factor, push))
        if turned is not None:
            slope = _cut((push,), ctx.spans)
            grad = grad + take(torch.cat((slope * turned, _nothing(grad)), _ROWS), product)
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


def _opening(push: Tensor, whole: Tensor, at: Tensor, share: Tensor, silent: Tensor) -> Tensor:
    """The gradient of the gates.  push, whole [B, ..., N, C]; at [G]; share, silent [N] -> [B, G]."""
    place = at.clamp(max=push.shape[_ROWS] - 1)
    sums = (_of(push, place) * _of(whole, place)).sum(-1)  # [B, ..., G]
    found = sums.flatten(1, -2).sum(1) if sums.dim() > 2 else sums
    return torch.where(silent[place], 0.0, found * share[place])


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, for all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).expand(*rows.shape, like.shape[-1]).contiguous()
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
