"""How the deltas of seeds enter the host's features h, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns as if it added its
full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds, in the axis before the channels; the sizes before
it are free.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_ROWS = -2


class Mix(NamedTuple):
    """The seeds of a slot: those that are added, then those that multiply."""

    rows: Tensor  # int64 [N], rows of the features that they belong to
    factor: Tensor  # float [N], share of the delta that counts
    silent: Tensor  # bool [N], nothing is added, whatever the delta holds
    place: Tensor  # int64 [R], the seed that every row of the features hears; N = none


class Gates(NamedTuple):
    """Gates of added rows."""

    openness: Tensor  # float [B, G], per sample
    at: Tensor  # int64 [G], places among the added rows; one behind the last belongs to nobody


class Deltas(NamedTuple):
    """What seeds add to the features, before it is blended; in parts, as they were computed."""

    added: Sequence[Tensor]  # float [B, ..., n, C] each
    multiplied: Sequence[Tensor]  # float [B, ..., m, C] each


def take(x: Tensor, where: Tensor) -> Tensor:
    """Chosen rows, in the order of `where`.  x [..., R, C], where int64 [N] -> [..., N, C]."""
    return x.flatten(0, -3).index_select(1, where).view(*x.shape[:_ROWS], -1, x.shape[-1])  # three axes: far faster


def mix(rows: Tensor, alpha: Tensor, training: Tensor, *, count: int) -> Mix:
    """How seeds are blended in.  rows int64 [N]; alpha float [N]; training bool [N]; count: rows of the features."""
    silent, seeds = training | (alpha == 0), rows.shape[0]
    order = torch.arange(seeds, device=rows.device)
    place = torch.full_like(rows[:1], seeds).expand(count + 1)
    place = place.index_copy(0, torch.where(silent, count, rows), order)[:count]
    return Mix(rows, torch.where(training, 1.0, alpha), silent, place)


def blend(features: Tensor, deltas: Deltas, seeds: Mix, gates: Gates | None = None) -> Tensor:
    """The features with all seeds of a slot blended in; no gates = all open.

    Shapes: features [B, ..., R, C] -> the same.
    Promise: a silent row stays as it is, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    opened, at = (None, None) if gates is None else gates
    return _Blend.apply(features, opened, at, seeds, len(deltas.added), *deltas.added, *deltas.multiplied)[0]


class _Blend(torch.autograd.Function):
    """All seeds of a slot at once: passes over the features are what it costs, so they are few.

    Every row takes what its seed adds from all of it laid together, with zeros behind: what is silent is never touched.
    """

    @staticmethod
    def forward(
        features: Tensor, opened: Tensor | None, at: Tensor | None, seeds: Mix, first: int, *deltas: Tensor
    ) -> tuple[Tensor | None, ...]:
        turned, base, parts = None, None, list(deltas[:first])
        count = _size(parts)
        if _size(deltas[first:]):
            turned = torch.tanh(torch.cat(deltas[first:], _ROWS))
            base = take(features, seeds.rows[count:])
            parts.append(turned * base)
        factor = _factor(seeds, opened, at, samples=features.shape[0]).to(features.dtype)
        whole = torch.cat((*parts, torch.zeros_like(features[..., :1, :])), _ROWS)
        heard = torch.cat((factor, factor[..., :1] * 0), -1).index_select(-1, seeds.place)
        out = torch.addcmul(features, take(whole, seeds.place), _over(heard, features))
        return out, factor, turned, base, whole if opened is not None else None

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, _, at, seeds, first, *deltas = inputs
        _, *kept = output
        ctx.sizes = [part.shape[_ROWS] for part in deltas]
        ctx.added = sum(ctx.sizes[:first])
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
            slope = push[..., ctx.added :, :]
            share = torch.cat((slope * turned, torch.zeros_like(grad[..., :1, :])), _ROWS)
            place = torch.where(seeds.place < ctx.added, turned.shape[_ROWS], seeds.place - ctx.added)
            grad = grad + take(share, place)
            slope.copy_(torch.ops.aten.tanh_backward(slope * base, turned))
        return grad, opened, None, None, None, *push.split(ctx.sizes, _ROWS)


def _size(parts: Sequence[Tensor]) -> int:
    return sum(part.shape[_ROWS] for part in parts)


def _factor(seeds: Mix, opened: Tensor | None, at: Tensor | None, *, samples: int) -> Tensor:
    """What the delta of every seed is multiplied by.  [N], or [B, N] with gates."""
    if opened is None or at is None:
        return seeds.factor
    whole = torch.cat((seeds.factor, seeds.factor.new_zeros(1))).to(opened.dtype)
    return whole.repeat(samples, 1).index_copy_(1, at, whole[at] * opened)[:, :-1]


def _opening(push: Tensor, whole: Tensor, seeds: Mix, at: Tensor) -> Tensor:
    """The gradient of the gates.  push, whole [B, ..., N, C] -> [B, G]."""
    place = at.clamp(max=push.shape[_ROWS] - 1)
    pair = take(push, place) * take(whole, place)
    found = pair.sum(-1).flatten(1, -2).sum(1) if pair.dim() > 3 else pair.sum(-1)
    return torch.where(seeds.silent[place], 0.0, found * seeds.factor[place])


def _over(rows: Tensor, like: Tensor) -> Tensor:
    """Values per row, or per sample and row, for all channels.  [R] or [B, R] -> [..., R, C]."""
    wide = rows.unsqueeze(-1).repeat(*(1,) * rows.dim(), like.shape[-1])
    return wide if rows.dim() == 1 else wide.view(rows.shape[0], *(1,) * (like.dim() - 3), *wide.shape[1:])
