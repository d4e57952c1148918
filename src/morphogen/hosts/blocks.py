"""Parameters of everything that runs alongside the hosts, as one flat buffer: per slot its groups,
then its gates.

A group is a block of equal rows, and so are the gates of a slot; the buffer holds one block after
the other, leaf by leaf.  So an optimiser step is a few operations on one tensor for any plan, and a
leaf is a contiguous part of the buffer.  A gate belongs to its seed.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.hosts.net import Net
from morphogen.hosts.plan import SlotPlan
from morphogen.hosts.sites import SlotIndex, SlotParams, slot_layouts
from morphogen.rules.health import GradStats


class ParamIndex(NamedTuple):
    """Owners of the N elements of the buffer, in L parameter tensors of one row each, which are
    contiguous.
    """

    tensor: Tensor  # int64 [N], tensor of an element
    owner: Tensor  # int64 [L], env * S + slot of a tensor
    ends: Tensor  # int64 [L + 1], 0, then the end of each tensor in the buffer
    order: Tensor  # int64 [L], tensors by owner
    owner_ends: Tensor  # int64 [E * S + 1], 0, then the end of each owner in `order`


def flatten_params(params: Iterable[SlotParams | None], like: Tensor) -> Tensor:
    """Flatten all blocks into one buffer.  -> [N], in dtype and device of `like`."""
    blocks = [block for slot in params if slot is not None for block in slot]
    leaves = [leaf.flatten() for block in blocks for leaf in block.values()]
    return torch.cat(leaves) if leaves else like.new_zeros(0)


def split_params(
    buffer: Tensor, plans: tuple[SlotPlan, ...], *, net: Net
) -> tuple[SlotParams | None, ...]:
    """Return views of the buffer, the inverse of `flatten_params`, per slot; None where nothing
    runs.
    """
    slots = [
        [*zip(plan.sizes, slot_layouts(plan, s, net=net), strict=True)] if plan.groups else []
        for s, plan in enumerate(plans)
    ]
    sizes = [rows * size for blocks in slots for rows, layout in blocks for size in layout.sizes]
    parts = iter(buffer.split_with_sizes(sizes))
    params = [
        tuple(
            [
                {leaf.name: next(parts).view(rows, *leaf.shape) for leaf in layout.leaves}
                for rows, layout in blocks
            ]
        )
        for blocks in slots
    ]
    return tuple([blocks or None for blocks in params])


def build_param_index(
    plans: tuple[SlotPlan, ...], indices: tuple[SlotIndex | None, ...], *, envs: int, net: Net
) -> ParamIndex | None:
    """Build the owners of all elements; None where nothing runs."""
    slots = len(net.slots)
    owners = []
    sizes = []
    for s, (plan, index) in enumerate(zip(plans, indices, strict=True)):
        if index is None:
            continue
        for env, layout in zip(index.owners, slot_layouts(plan, s, net=net), strict=True):
            owners += [env * slots + s for _ in layout.leaves]
            sizes += layout.sizes
    if not owners:
        return None
    owner = torch.cat(owners)
    numbers = torch.arange(owner.shape[0], device=owner.device).split(
        [part.shape[0] for part in owners]
    )
    tensor = torch.cat(
        [part.repeat_interleave(size) for part, size in zip(numbers, sizes, strict=True)]
    )
    return index_params(tensor, owner, owners=envs * slots)


def index_params(tensor: Tensor, owner: Tensor, *, owners: int) -> ParamIndex:
    """Complete the index of the elements.  tensor int64 [N], ascending; owner int64 [L] below
    `owners`.
    """
    count = owner.shape[0]
    ends = torch.searchsorted(tensor, torch.arange(count + 1, device=owner.device))
    by_owner, order = owner.sort(stable=True)
    return ParamIndex(
        tensor,
        owner,
        ends,
        order,
        torch.searchsorted(by_owner, torch.arange(owners + 1, device=owner.device)),
    )


def grad_stats(
    grad: Tensor, index: ParamIndex, like: Tensor, *, vanishing: float, exploding: float
) -> GradStats:
    """Gradient norms of all seeds, and counts of tensors beyond the limits.  grad [N]; like float
    [E, S].

    Promise: elements are added in their order, on a GPU too.
    """
    squares = _segment_sums(grad.square(), index.ends)
    norms = squares.sqrt()
    flags = (norms < vanishing, ~(norms <= exploding), torch.ones_like(norms, dtype=torch.bool))
    columns = torch.stack((squares, *(flag.to(norms.dtype) for flag in flags)), dim=-1)
    sums = _segment_sums(columns.index_select(0, index.order), index.owner_ends)
    square, *counts = sums.view(*like.shape, 4).unbind(-1)
    return GradStats(square.sqrt(), *counts)


def _segment_sums(values: Tensor, ends: Tensor) -> Tensor:
    """Sums of neighbours.  values [n, ...]; ends int64 [k + 1], from 0 to n -> [k, ...]."""
    # a check would read the device
    return torch.segment_reduce(values, "sum", offsets=ends, initial=0, unsafe=True)


def expand_to_params(values: Tensor, index: ParamIndex) -> Tensor:
    """Expand values per seed to the elements of the buffer.  values [E, S] -> [N]."""
    return values.flatten().index_select(0, index.owner).index_select(0, index.tensor)
