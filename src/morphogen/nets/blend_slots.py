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

from morphogen import kernels
from morphogen.kernels.blend import BlendIndex, BlendSaved, BlendSizes, Spans
from morphogen.kernels.native import AutogradFunction

_ROWS = -2


class Mix(NamedTuple):
    """How the N seeds of a slot are blended in, M of which multiply."""

    rows: Tensor  # int64 [N], rows of the features that they belong to
    factor: Tensor  # float [N], share of the delta that counts
    silent: Tensor  # bool [N], nothing is added, whatever the delta holds
    place: Tensor  # int64 [R], the seed that every row hears; N = none
    product: Tensor  # int64 [R], the same among those that multiply; M = none


class Gates(NamedTuple):
    """Gates of seeds that are added."""

    openness: Tensor  # float [B, G], per sample
    at: Tensor  # int64 [G], places among the seeds; one behind the last belongs to nobody


class Deltas(NamedTuple):
    """What seeds add to the features, before it is blended."""

    blocks: Sequence[Tensor]  # float [B, ..., n, C] each; all together, one after the other, the N seeds
    multiplied: Spans = ()  # the seeds that multiply


def mix(rows: Tensor, alpha: Tensor, training: Tensor, *, count: int, multiplied: Spans = ()) -> Mix:
    """How seeds are blended in.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; count: R; multiplied: those of the N that multiply.
    """
    silent, seeds = training | (alpha == 0), alpha.shape[0]
    order = torch.arange(seeds + 1, device=alpha.device)
    place = order[-1:].expand(count + 1).index_copy(0, torch.where(silent, count, rows), order[:-1])[:count]
    which = torch.cat([order[:0], *(order[start:end] for start, end in multiplied)])
    product = torch.full_like(order, which.shape[0]).index_copy(0, which, order[: which.shape[0]])[place]
    return Mix(rows, torch.where(training, 1.0, alpha), silent, place, product)


def blend(features: Tensor, deltas: Deltas, seeds: Mix, gates: Gates | None = None, *, pooled: bool = False) -> Tensor:
    """The features with all seeds of a slot blended in, pooled 2x2 at once if asked; no gates = all open.

    Shapes: features [B, ..., R, C] -> the same; pooled, [B, H, W, R, C] -> [B, H // 2, W // 2, R, C].
    Promise: a silent row stays as it is, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    opened, at = (None, None) if gates is None else gates
    # The compiler can't trace a function of so many tensors where none of them asks for a gradient.
    run = _Blend.apply if torch.is_grad_enabled() else _Blend.forward
    return run(features, opened, at, seeds, (deltas.multiplied, pooled), *deltas.blocks)[0]


class _Blend(AutogradFunction):
    """All seeds of a slot at once.  What is silent is never heard, so it is never touched."""

    @staticmethod
    def forward(
        features: Tensor,
        opened: Tensor | None,
        at: Tensor | None,
        seeds: Mix,
        how: tuple[Spans, bool],
        *blocks: Tensor,
    ) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
        spans, pooled = how
        factor = _factor(seeds, opened, at, samples=features.shape[0]).to(features.dtype)
        where = BlendIndex(seeds.rows, seeds.place, seeds.product, factor)
        out, turned, winner = kernels.blend(features, blocks, where, spans, pooled=pooled)
        return out, factor, turned, winner

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        features, opened, at, seeds, (spans, _), *blocks = inputs
        _, factor, turned, winner = output
        ctx.of = BlendSizes(spans, [block.shape[_ROWS] for block in blocks], features.shape[1:_ROWS])
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.set_materialize_grads(False)
        gates = None if opened is None else at.clamp(max=seeds.rows.shape[0] - 1)
        places = (seeds.rows, seeds.place, seeds.product, factor)
        own = features if spans else None, turned, winner, *(blocks if opened is not None else ())
        ctx.save_for_backward(seeds.factor, seeds.silent, gates, *places, *own)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        share, silent, gates, home, heard, product, factor, features, turned, winner, *blocks = ctx.saved_tensors
        kept, where = BlendSaved(features, blocks, turned, gates, winner), BlendIndex(home, heard, product, factor)
        found = kernels.blend_backward(grad.contiguous(), kept, where, ctx.of)
        opened = None
        if found.sums is not None:
            opened = torch.where(silent[gates], 0.0, found.sums * share[gates])
        return found.features, opened, None, None, None, *found.blocks


def _factor(seeds: Mix, opened: Tensor | None, at: Tensor | None, *, samples: int) -> Tensor:
    """What the delta of every seed is multiplied by.  [N], or [B, N] with gates."""
    if opened is None or at is None:
        return seeds.factor
    whole = F.pad(seeds.factor, (0, 1)).to(opened.dtype)
    return whole.repeat(samples, 1).index_copy_(1, at, whole[at] * opened)[:, :-1]
