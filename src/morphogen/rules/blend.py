"""How the deltas of seeds enter the host's features h, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns as if it added its
full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds; sizes after them are free.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a number -> what its bits are read as


class Half(NamedTuple):
    """The seeds of a slot that are blended in one way."""

    rows: Tensor  # int64 [N], rows of the features that they belong to
    factor: Tensor  # float [N], share of the delta that counts
    silent: Tensor  # bool [N], nothing is added, whatever the delta holds


class Gates(NamedTuple):
    """Gates of added rows."""

    openness: Tensor  # float [B, G], per sample
    at: Tensor  # int64 [G], places among the added rows; one behind the last belongs to nobody


class Deltas(NamedTuple):
    """What seeds add to the features, before it is blended; None where there are no such seeds."""

    added: Tensor | None  # float [B, N, ...]
    multiplied: Tensor | None  # float [B, M, ...]


def half(rows: Tensor, alpha: Tensor, training: Tensor) -> Half:
    """How seeds are blended in.  rows int64 [N]; alpha float [N]; training bool [N]."""
    return Half(rows, torch.where(training, 1.0, alpha), training | (alpha == 0))


def blend(features: Tensor, deltas: Deltas, added: Half, multiplied: Half, gates: Gates | None = None) -> Tensor:
    """The features with all seeds of a slot blended in; no gates = all open.

    Shapes: features [B, R, ...] -> the same.
    Promise: a silent row stays as it is, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    opened, at = (None, None) if gates is None else gates
    return _Blend.apply(features, *deltas, opened, (at, added, multiplied))[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once: passes over the features are what it costs, so they are few."""

    @staticmethod
    def forward(features: Tensor, added: Tensor | None, multiplied: Tensor | None, opened: Tensor | None, fixed: tuple):
        at, first, last = fixed
        out, factor, turned, base = features, None, None, None
        if added is not None:
            factor = _factor(first, opened, at, samples=features.shape[0]).to(added.dtype)
            out = features.index_add(1, first.rows, _heard(added * _over(factor, added), first.silent))
        if multiplied is not None:
            turned, base = torch.tanh(multiplied), features.index_select(1, last.rows)
            share = _heard(turned * base * _over(last.factor.to(base.dtype), base), last.silent)
            out = features.index_add(1, last.rows, share) if added is None else out.index_add_(1, last.rows, share)
        return out, factor, turned, base

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, added, _, opened, (at, first, last) = inputs
        _, *kept = output
        ctx.mark_non_differentiable(*(part for part in kept if part is not None))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept, added if opened is not None else None, at, *first, *last)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        factor, turned, base, added, at, *halves = ctx.saved_tensors
        first, last = Half(*halves[:3]), Half(*halves[3:])
        push, own, opened = None, None, None
        grad = grad.contiguous()  # rows are chosen several times faster where their numbers lie together
        if factor is not None:
            push = grad.index_select(1, first.rows)
            opened = None if added is None else _opening(push, added, first, at)
            push = push.mul_(_over(factor, push))
        if turned is not None:
            slope = grad.index_select(1, last.rows).mul_(_over(last.factor.to(grad.dtype), grad))
            own = torch.ops.aten.tanh_backward(slope * base, turned)
            grad = grad.index_add(1, last.rows, _heard(slope.mul_(turned), last.silent))
        return grad, push, own, opened, None


def _factor(own: Half, opened: Tensor | None, at: Tensor | None, *, samples: int) -> Tensor:
    """What the delta of every added row is multiplied by.  [N], or [B, N] with gates."""
    if opened is None or at is None:
        return own.factor
    whole = torch.cat((own.factor, own.factor.new_zeros(1))).to(opened.dtype)
    return whole.repeat(samples, 1).index_copy_(1, at, whole[at] * opened)[:, :-1]


def _opening(push: Tensor, added: Tensor, own: Half, at: Tensor) -> Tensor:
    """The gradient of the gates.  push, added [B, N, ...] -> [B, G]."""
    place = at.clamp(max=added.shape[1] - 1)
    found = (push.index_select(1, place) * added.index_select(1, place)).flatten(2).sum(-1) * own.factor[place]
    return torch.where(own.silent[place], 0.0, found)


def _heard(share: Tensor, silent: Tensor) -> Tensor:
    """What is added, exactly 0 where a row is silent; in place.  share [B, N, ...]; silent bool [N].

    Bits are masked, several times faster than choosing numbers, and unlike a product it is 0 for numbers that are none.
    """
    bits = share.view(_BITS[share.itemsize])
    bits.bitwise_and_(_over(torch.where(silent, 0, -1).to(bits.dtype), share))
    return share


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, ready to broadcast.  [R] or [B, R] -> [..., R, 1, ...]."""
    return rows.reshape(*rows.shape, *(1,) * (like.dim() - 2))
