"""validate: score of every env under every requested coalition of its seeds, on one split for
all envs.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.hosts import plan as plans
from morphogen.hosts import sites
from morphogen.hosts.answers import NO_LABEL, Ends
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.net import Net
from morphogen.hosts.plan import Plan
from morphogen.state.env import EnvState
from morphogen.state.loops import Repeat, repeat
from morphogen.state.measure import LabelledInputs, Validation
from morphogen.state.tree_ops import (
    choose,
    get_leaf,
    nested_leaves,
    refuse_transforms,
    unsafe_new,
    unsafe_tensordict,
)

Show = Callable[[Tensor, Tensor, Tensor], Tensor]  # inputs, view, sample numbers -> inputs


class ChunkCounts(NamedTuple):
    """Counts of the chunks of a split so far, one after the other: a sum over [chunks, E] may
    depend on E.
    """

    start: Tensor  # int64 [1], first sample of the next chunk
    scores: Tensor  # [R], sums of the scores of the rows after the last slot
    losses: Tensor  # float [E], sums of the losses of the envs as they are
    total: Tensor  # int64 [E], samples that count


def validate(
    state: EnvState,
    split: LabelledInputs,
    coalition: Tensor,
    evaluated: Tensor,
    plan: Plan,
    *,
    net: Net,
    counted: int | None = None,
    show: Show | None = None,
    repeat: Repeat = repeat,
) -> Validation:
    """Evaluate coalitions in one pass over a split.

    Shapes: state [E]; split [N]; coalition int64, evaluated bool [E, K], as given to `plan_counts`
    -> Validation [E].
    counted: most samples whose label is in use of an env, only these are passed (an env with fewer
    repeats its first ones, which count once); None: all, of all envs;
    show: samples as each env sees them (`data.instance_process`), None: as they are; repeat: loop
    over the passes (`env.capture`).
    Promise: changes nothing; a sample whose label is not in use counts for nothing, a non-finite
    output as score 0.
    Raises: RuntimeError for a derivative with respect to parameters, and for `vmap`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> inputs, labels = torch.zeros(20, 1, 8, 8), torch.arange(20) % 10
        >>> split = mg.state.measure.LabelledInputs(inputs=inputs, labels=labels, batch_size=[])
        >>> requested = mg.rules.coalitions(state.slots, torch.zeros(2, 1, 2), pairs=1)
        >>> result = mg.steps.validate(
        ...     state, split, *requested, mg.hosts.empty_plan(2, env.net), net=env.net
        ... )
        >>> (
        ...     result.accuracy[:, 0].tolist(),
        ...     state.instance.classes.tolist(),
        ... )  # of blank images: the loss of guessing
        ([10.0, 10.0], [10, 10])
    """
    refuse_transforms(
        "validate", state.host.params, *nested_leaves(state.seeds), split.inputs, coalition
    )
    with torch.no_grad():
        in_use = net.criterion.targets_of(state.instance, split.labels)
        numbers, labels = _choose_samples(in_use, counted)
        growth, number, ends = _coalition_networks(state, coalition, evaluated, plan, net=net)
        host = net.precision.cast(state.host.params)
        used = used_classes(state.instance, net)
        masks = net.networks.masks(state.instance, host)
        rows = HostRows(net.host_layout.split(host), masks, None)

        def count_chunk(counts: ChunkCounts, size: int) -> ChunkCounts:
            part = counts.start + torch.arange(size, device=counts.start.device)
            samples = numbers.index_select(-1, part)
            shown = split.inputs[samples]
            if show is not None:
                shown = show(shown, state.instance.view_code, samples)
            output = forward(net.precision.cast(shown), rows, used, growth, net=net)
            output = output.to(state.host.params.dtype)
            scores, losses, total = net.criterion.count(output, labels.index_select(1, part), ends)
            return ChunkCounts(
                counts.start + size,
                counts.scores + scores,
                counts.losses + losses,
                counts.total + total,
            )

        envs, samples = labels.shape[:2]
        parts = math.ceil(samples / net.host.chunk)
        # chunks differ by a sample at most; the larger ones come first
        size, larger = divmod(samples, parts)
        zeros = partial(torch.zeros, dtype=torch.int64, device=labels.device)
        rows_at_end = envs if ends is None else ends[0].shape[0]
        no_loss = state.host.params.new_zeros(envs)
        no_scores = net.criterion.no_scores(rows_at_end, no_loss)
        counts = ChunkCounts(zeros(1), no_scores, no_loss, zeros(envs))
        counts = repeat(partial(count_chunk, size=size + 1), counts, larger)
        counts = repeat(partial(count_chunk, size=size), counts, parts - larger)
        total = counts.total.clamp(min=1)
        scores = counts.scores
        scores = scores.unsqueeze(-1) if number is None else scores[number.clamp(min=0)]
        points = net.criterion.percent(scores, counts.losses, total.unsqueeze(-1))
        return unsafe_new(
            Validation,
            state,
            loss=counts.losses / total,
            accuracy=choose(evaluated, points, 0.0),
            coalition=coalition,
            evaluated=evaluated,
        )


def _choose_samples(labels: Tensor, counted: int | None) -> tuple[Tensor, Tensor]:
    """Choose the samples of an env whose labels are in use, `counted` at most, then its first ones
    again; None: all.

    Shapes: labels int64 [E, N], -1 not in use -> numbers of samples and their labels, [E, counted];
    None: labels [E, N, ...] -> numbers [N] of all envs, and the labels.
    """
    if counted is None:
        return torch.arange(labels.shape[1], device=labels.device), labels
    unused = labels == NO_LABEL
    order = torch.argsort(unused, dim=-1, stable=True)
    place = torch.arange(counted, device=labels.device)
    count = (~unused).sum(-1, keepdim=True)
    index = order.gather(1, place % count.clamp(min=1))
    return index, choose(place < count, labels.gather(1, index), NO_LABEL)


def _coalition_networks(
    state: EnvState, coalition: Tensor, evaluated: Tensor, plan: Plan, *, net: Net
) -> tuple[SlotSeeds, Tensor | None, Ends | None]:
    """Networks that run side by side, every env under each of its coalitions.

    Returns: the seeds; int64 [E, K], row of a coalition, None: no seed runs; env of every row after
    the last slot, int64 [R], and row of every env as it is, int64 [E], None: a row is an env.
    """
    if not any(slot.groups for slot in plan.evaluate):
        nothing = (None,) * len(net.slots)
        return SlotSeeds(plan.evaluate, nothing, nothing), None, None
    tree = plans.build_tree(state.slots, coalition, evaluated, net=net)
    where = sites.validation_indices(state.slots, tree, plan, net=net)
    seeds = _cast_seeds(state.seeds, net)
    params = sites.gather_params(seeds, "params", plan.evaluate, where, net=net)
    envs, width = coalition.shape
    number = tree.number[-1]
    ends = None
    if plan.rows[-1] != envs:
        candidates = sites.row_candidates(tree, len(plan.rows), plan.rows[-1])
        ends = (candidates // width, number[:, 0])
    return SlotSeeds(plan.evaluate, where, params), number, ends


def _cast_seeds(seeds: TensorDict, net: Net) -> TensorDict:
    """Return the parameters of all seeds in the dtype of features."""
    cast = net.precision.cast
    rows = {
        name: unsafe_tensordict(seeds, {"params": cast(get_leaf(seeds, (name, "params")))})
        for name in net.names
    }
    return unsafe_tensordict(seeds, rows)
