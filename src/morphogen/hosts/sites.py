"""Slot indices: which rows meet which seeds at every slot, in training and in the coalition tree of
validation.
"""

from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.hosts.layout import Leaves, ParamLayout
from morphogen.hosts.net import Net
from morphogen.hosts.plan import (
    GATES,
    CoalitionTree,
    Plan,
    SlotPlan,
    training_membership,
    validation_membership,
)
from morphogen.kernels.blend import SeedIndex, build_seed_index
from morphogen.state.env import Slots
from morphogen.vocab.stage import Stage


class SlotIndex(NamedTuple):
    """Index lists of one slot.  Groups in the order of the slot plan; in a group multiplied rows
    come last.
    """

    owners: tuple[Tensor, ...]  # int64 [n] per group, then [G] of the gates: env of each
    seeds: SeedIndex  # all groups; rows of the features after a split
    input_rows: Tensor  # int64 [N + G], rows of the features that seeds read, and then gates
    # int64 [rows after], row before the slot that each row continues; None: nothing splits
    parent_row: Tensor | None = None
    row_env: Tensor | None = None  # int64 [rows after], env of each row after a split


# Parameters of everything that runs at one slot: [n, *shape] per group, then [G, *shape] of the
# gates.
SlotParams = tuple[Leaves, ...]


def _slot_index(
    slots: Slots, s: int, plan: SlotPlan, order: Tensor, *, env: Tensor, row: Tensor, rows: int
) -> SlotIndex:
    """Build the index lists of a slot.

    Shapes: order int64 [13, N], of `Membership.order`; env, row int64 [N], of the candidates; rows:
    R, of the features after the slot.
    """
    member = torch.cat([order[group.blueprint.value, : group.size] for group in plan.groups])
    gates = order[GATES, : plan.gates]
    owner = env[member]
    position = torch.zeros_like(row).index_copy(
        0, member, torch.arange(len(member), device=member.device)
    )
    return SlotIndex(
        owners=(*owner.split([group.size for group in plan.groups]), env[gates]),
        seeds=build_seed_index(
            row[member],
            slots.alpha[:, s][owner],
            slots.stage[:, s][owner] == int(Stage.TRAINING),
            position[gates],
            count=rows,
        ),
        input_rows=torch.cat((row[member], row[gates])),
    )


def training_indices(slots: Slots, plan: Plan) -> tuple[SlotIndex | None, ...]:
    """Index lists of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    if not any(slot_plan.groups for slot_plan in plan.train):
        return (None,) * len(plan.train)
    order = training_membership(slots).order()
    envs = slots.stage.shape[0]
    env = torch.arange(envs, device=order.device)
    return tuple(
        _slot_index(slots, s, slot_plan, order[s], env=env, row=env, rows=envs)
        if slot_plan.groups
        else None
        for s, slot_plan in enumerate(plan.train)
    )


def validation_indices(
    slots: Slots, tree: CoalitionTree, plan: Plan, *, net: Net
) -> tuple[SlotIndex | None, ...]:
    """Index lists of a validation pass, per slot; None where nothing runs.  Rows belong to the
    tree.
    """
    if not any(slot_plan.groups for slot_plan in plan.evaluate):
        return (None,) * len(plan.evaluate)
    order = validation_membership(slots, tree, net=net).order()
    envs, width = tree.row.shape[1:]
    env = torch.arange(envs * width, device=slots.stage.device) // width
    indices: dict[int, SlotIndex] = {}
    before = envs
    for level, s in enumerate(net.execution):
        after = plan.rows[level]
        if plan.evaluate[s].groups:
            row = tree.number[level + 1].flatten()
            index = _slot_index(slots, s, plan.evaluate[s], order[s], env=env, row=row, rows=after)
            if after != before:
                first = row_candidates(tree, level + 1, after)
                parent = tree.number[level].flatten()[first]
                index = index._replace(parent_row=parent, row_env=first // width)
            indices[s] = index
        before = after
    return tuple(indices.get(s) for s in range(len(net.slots)))


def row_candidates(tree: CoalitionTree, level: int, size: int) -> Tensor:
    """(Env, coalition), flattened, that represents each of the `size` rows of a level.  int64
    [size].
    """
    return (~tree.row[level].flatten()).to(torch.uint8).argsort(stable=True)[:size]


def gather_params(
    storage: TensorDict,
    leaf: str,
    plans: tuple[SlotPlan, ...],
    indices: tuple[SlotIndex | None, ...],
    *,
    net: Net,
) -> tuple[SlotParams | None, ...]:
    """Gather the rows of everything that runs, per slot; None where nothing runs.  leaf: "params"
    or a moment of the optimiser.
    """
    params: list[SlotParams | None] = []
    for s, index in enumerate(indices):
        if index is None:
            params.append(None)
            continue
        layouts = slot_layouts(plans[s], s, net=net)
        columns = _block_columns(storage[net.names[s], leaf], layouts)
        blocks = zip(columns, layouts, index.owners, strict=True)
        params.append(
            tuple([layout.split(part.index_select(0, env)) for part, layout, env in blocks])
        )
    return tuple(params)


def slot_layouts(plan: SlotPlan, s: int, *, net: Net) -> tuple[ParamLayout, ...]:
    """Layout of the seeds of every group in slot s, then of the gates."""
    return net.layouts(s, tuple([group.blueprint for group in plan.groups]))


def _block_columns(storage: Tensor, layouts: tuple[ParamLayout, ...]) -> list[Tensor]:
    """Columns of every block of a slot: seeds are stored first in a row, a gate last.  [E, P_s] ->
    views.
    """
    *groups, gate = layouts
    seeds = [storage[:, : layout.size] for layout in groups]
    return [*seeds, storage[:, storage.shape[-1] - gate.size :]]


def scatter_params(
    storage: Tensor,
    params: SlotParams | None,
    index: SlotIndex | None,
    layouts: tuple[ParamLayout, ...],
) -> Tensor:
    """Return the storage of a slot with the rows of everything that ran written back.

    Shapes: storage [E, P_s]; layouts: of `slot_layouts` -> [E, P_s].
    """
    if params is None or index is None:
        return storage
    out = storage.clone()
    columns = _block_columns(out, layouts)
    for part, layout, leaves, env in zip(columns, layouts, params, index.owners, strict=True):
        part.index_copy_(0, env, layout.join(leaves))
    return out
