"""Blending of deltas into the host's features h, for every stage and algorithm.

ADD and GATE add `a g d`, MULTIPLY adds `h a tanh(d)`.  A seed in TRAINING adds exactly 0 and learns as if it added its
full contribution; a seed at alpha 0 adds exactly 0.  Rows are seeds, in the axis before the channels; any axes may lie
between them and the samples.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen import kernels
from morphogen.kernels.blend import BlendIndex, BlendSaved, BlendSizes, Spans
from morphogen.kernels.native import AutogradFunction, apply_function
from morphogen.state.tree_ops import choose

_ROW_AXIS = -2


class SeedBlend(NamedTuple):
    """Index and weights of the N seeds of a slot, M of which multiply, among R rows of features."""

    rows: Tensor  # int64 [N], row of the features of each seed
    factor: Tensor  # float [N], weight of the delta
    silent: Tensor  # bool [N], the delta is not added, whatever its values
    source: Tensor  # int64 [R], seed that is blended into a row; N = no seed
    product_source: Tensor  # int64 [R], that seed's position among those that multiply; M = not one of them


class GateIndex(NamedTuple):
    """Seeds with a gate, which are added: positions among the N seeds, and what `SeedBlend` says of them."""

    position: Tensor  # int64 [G]
    weight: Tensor  # float [G], weight of the delta
    silent: Tensor  # bool [G], the delta is not added


class SeedGates(NamedTuple):
    """Gates of seeds that are added."""

    openness: Tensor  # float [B, G], per sample, or [B, n, G], per place of a sequence
    index: GateIndex


class SeedDeltas(NamedTuple):
    """Outputs of the seeds before they are blended."""

    blocks: Sequence[Tensor]  # float [B, ..., n, C] each; together, one after the other, the N seeds
    multiplied: Spans = ()  # seeds that multiply


def build_seed_blend(rows: Tensor, alpha: Tensor, training: Tensor, *, count: int, multiplied: Spans = ()) -> SeedBlend:
    """Build the index and weights of seeds.

    Shapes: rows int64 [N]; alpha float [N]; training bool [N]; count: R; multiplied: spans of seeds that multiply.
    """
    silent, seeds = training | (alpha == 0), alpha.shape[0]
    order = torch.arange(seeds + 1, device=alpha.device)
    nobody = order.new_full((count + 1,), seeds)  # inductor writes an expanded base at one place
    source = nobody.index_copy(0, torch.where(silent, count, rows), order[:-1])[:count]
    products = torch.cat([order[:0], *(order[start:end] for start, end in multiplied)])
    size = products.shape[0]
    product_source = torch.full_like(order, size).index_copy(0, products, order[:size])[source]
    return SeedBlend(rows, choose(training, 1.0, alpha), silent, source, product_source)


def build_gate_index(seeds: SeedBlend, position: Tensor) -> GateIndex:
    """Build the index of the seeds with a gate.  position int64 [G], positions among the N seeds."""
    return GateIndex(position, seeds.factor[position], seeds.silent[position])


def blend(
    features: Tensor, deltas: SeedDeltas, seeds: SeedBlend, gates: SeedGates | None = None, *, pooled: bool = False
) -> Tensor:
    """Blend all seeds of a slot into the features, and pool the result 2x2 if `pooled`; without gates all are open.

    Shapes: features [B, ..., R, C] -> like features; pooled, [B, H, W, R, C] -> [B, H // 2, W // 2, R, C].
    Promise: a silent row does not change, for any delta.  The gradient of an added delta is 1 in training, else alpha
    times gate; that of the features is 1, and `1 + a tanh(d)` where a row that is not silent multiplies.
    """
    openness, index = (None, None) if gates is None else gates
    options, blocks = (deltas.multiplied, pooled), deltas.blocks
    if openness is None or openness.dim() == 2:
        return apply_function(_Blend, features, openness, index, seeds, options, *blocks)[0]
    flat, *blocks = [part.flatten(0, 1) for part in (features, *blocks)]  # every place as a sample
    out = apply_function(_Blend, flat, openness.flatten(0, 1), index, seeds, options, *blocks)[0]
    return torch.unflatten(out, 0, features.shape[:2])


class _Blend(AutogradFunction):
    """All seeds of a slot at once.  SeedDeltas of silent seeds are never read."""

    @staticmethod
    def forward(
        features: Tensor,
        openness: Tensor | None,
        gates: GateIndex | None,
        seeds: SeedBlend,
        options: tuple[Spans, bool],
        *blocks: Tensor,
    ) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
        (spans, pooled), factor = options, seeds.factor
        if openness is not None and gates is not None:
            gated = gates.weight.to(openness.dtype) * openness
            factor = factor.to(openness.dtype).repeat(features.shape[0], 1).index_copy_(1, gates.position, gated)
        factor = factor.to(features.dtype)
        index = BlendIndex(seeds.rows, seeds.source, seeds.product_source, factor)
        out, tanh, argmax = kernels.blend(features, blocks, index, spans, pooled=pooled)
        return out, factor, tanh, argmax

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        features, _, gates, seeds, (spans, _), *blocks = inputs
        _, factor, tanh, argmax = output
        ctx.sizes = BlendSizes(spans, [block.shape[_ROW_AXIS] for block in blocks], features.shape[1:_ROW_AXIS])
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.set_materialize_grads(False)
        index = (seeds.rows, seeds.source, seeds.product_source, factor)
        tensors = features if spans else None, tanh, argmax, *(blocks if gates is not None else ())
        ctx.save_for_backward(*(gates or (None, None, None)), *index, *tensors)

    @staticmethod
    def backward(ctx, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        position, weight, silent, *rest = ctx.saved_tensors
        index, (features, tanh, argmax, *blocks) = BlendIndex(*rest[:4]), rest[4:]
        saved = BlendSaved(features, blocks, tanh, position, argmax)
        grads = kernels.blend_backward(grad.contiguous(), saved, index, ctx.sizes)
        openness = None
        if grads.sums is not None:
            openness = (grads.sums * weight).masked_fill_(silent, 0.0)
        return grads.features, openness, None, None, None, *grads.blocks
