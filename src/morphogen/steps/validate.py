"""validate: accuracy of every env under every requested coalition of its seeds, on one split for all envs."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets import cnn, sites
from morphogen.nets import plan as plans
from morphogen.nets.forward import SlotSeeds, forward
from morphogen.nets.net import Net
from morphogen.nets.plan import CoalitionTree, Plan
from morphogen.state.env import EnvState
from morphogen.state.measure import LabelledImages, Validation
from morphogen.state.tree_ops import unsafe_new

CHUNK = 128  # samples in one pass; constant, so that a result does not depend on other envs


class _SampleCounts(NamedTuple):
    correct: Tensor  # int64 [R]
    loss_sum: Tensor  # float [E], of the env as it is
    total: Tensor  # int64 [E], samples that count


class _OutputRows(NamedTuple):
    """Rows of the output, after the last slot."""

    env: Tensor  # int64 [R]
    current: Tensor  # int64 [E], row of the env as it is


@torch.no_grad()
def validate(
    state: EnvState,
    split: LabelledImages,
    coalition: Tensor,
    evaluated: Tensor,
    plan: Plan,
    *,
    net: Net,
    chunk: int = CHUNK,
) -> Validation:
    """Evaluate coalitions in one pass over a split.

    Shapes: state [E]; split [N]; coalition int64, evaluated bool [E, K], as given to `plan_counts` -> Validation [E].
    Promise: changes nothing; a sample whose label is not in use counts for nothing, a non-finite logit as wrong.
    """
    nothing = (None,) * len(net.slots)
    growth, ends, number = SlotSeeds(plan.evaluate, nothing, nothing), None, None
    if any(slot.groups for slot in plan.evaluate):
        tree = plans.build_tree(state.slots, coalition, evaluated, net=net)
        where = sites.validation_indices(state.slots, tree, plan, net=net)
        params = sites.gather_params(state.seeds, "params", plan.evaluate, where, net=net)
        growth = SlotSeeds(plan.evaluate, where, params)
        ends, number = _output_rows(tree, plan, coalition), tree.number[-1]
    frame = cnn.build_masks(state.instance, net.host, state.host.params)
    rows = cnn.HostRows(cnn.host_layout(net.host).split(state.host.params), frame, None)
    labels = state.instance.class_of.index_select(1, split.labels)  # [E, N]
    parts = math.ceil(split.labels.shape[0] / chunk)
    pieces = zip(split.images.tensor_split(parts), labels.tensor_split(parts, dim=1), strict=True)
    counts = [_count_correct(forward(images, rows, growth, net=net), piece, ends) for images, piece in pieces]
    correct, nats, total = (torch.stack(part).sum(0) for part in zip(*counts, strict=True))
    return _build_validation(_SampleCounts(correct, nats, total), number, state, (coalition, evaluated))


def _output_rows(tree: CoalitionTree, plan: Plan, coalition: Tensor) -> _OutputRows | None:
    """Rows of the output; None if every row is an env."""
    envs, width = coalition.shape
    if not plan.padded and plan.rows[-1] == envs:
        return None
    return _OutputRows(sites.row_candidates(tree, len(plan.rows), plan.rows[-1]) // width, tree.number[-1][:, 0])


def _count_correct(logits: Tensor, labels: Tensor, output_rows: _OutputRows | None) -> _SampleCounts:
    """Counts of one piece; without `output_rows` every row is an env.

    Shapes: logits [R, B, classes]; labels int64 [E, B], -1 not in use.
    """
    counted = labels >= 0
    expected, current = (
        (labels, logits) if output_rows is None else (labels[output_rows.env], logits[output_rows.current])
    )
    right = (expected == logits.argmax(-1)) & torch.isfinite(logits).all(-1)
    nats = F.cross_entropy(current.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none").view(labels.shape)
    return _SampleCounts(right.sum(-1), torch.where(counted, nats, 0.0).sum(-1), counted.sum(-1))


def _build_validation(
    counts: _SampleCounts, number: Tensor | None, state: EnvState, coalitions: tuple[Tensor, Tensor]
) -> Validation:
    """Shares of right answers.  number int64 [E, K]: row of every coalition; None = that of its env."""
    coalition, evaluated = coalitions
    total = counts.total.clamp(min=1)
    correct = counts.correct.unsqueeze(-1) if number is None else counts.correct[number.clamp(min=0)]
    points = 100.0 * correct.to(counts.loss_sum.dtype) / total.unsqueeze(-1)
    return unsafe_new(
        Validation,
        state,
        loss=counts.loss_sum / total,
        accuracy=torch.where(evaluated, points, 0.0),
        coalition=coalition,
        evaluated=evaluated,
    )
