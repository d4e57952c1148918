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

    env: tuple[Tensor, ...]  # int64 [n] per group, env of each seed
    seeds: SeedIndex  # all groups; rows of the features after a split
    input_rows: Tensor  # int64 [N + G], rows of the features that seeds read, and then gates
    gate_env: Tensor  # int64 [G]
    # int64 [rows after], row before the slot that each row continues; None: nothing splits
    parent_row: Tensor | None
    row_env: Tensor | None  # int64 [rows after], env of each row after a split


class SlotParams(NamedTuple):
    """Parameters of everything that runs at one slot."""

    seeds: tuple[Leaves, ...]  # [n, *shape] per group
    gates: Leaves  # [G, *shape]


class _Candidates(NamedTuple):
    """Candidates of a membership at one slot."""

    env: Tensor  # int64 [N]
    row: Tensor  # int64 [N], row of the features after the slot
    alpha: Tensor  # float [N]
    training: Tensor  # bool [N]


def _candidates(slots: Slots, s: int, env: Tensor, row: Tensor) -> _Candidates:
    return _Candidates(
        env, row, slots.alpha[:, s][env], slots.stage[:, s][env] == int(Stage.TRAINING)
    )


def _slot_index(
    order: Tensor,
    plan: SlotPlan,
    candidates: _Candidates,
    rows: int,
    split: tuple[Tensor, Tensor] | None = None,
) -> SlotIndex:
    """Build the index lists of a slot.

    Shapes: order int64 [13, N], of `Membership.order`; rows: R, of the features after the slot;
    split int64 [R] each, parent and env of every row -> SlotIndex.
    """
    member = torch.cat([order[group.blueprint.value, : group.size] for group in plan.groups])
    gates = order[GATES, : plan.gates]
    feature_rows = candidates.row[member]
    position = torch.zeros_like(candidates.row).index_copy(
        0, member, torch.arange(len(member), device=member.device)
    )
    return SlotIndex(
        env=candidates.env[member].split([group.size for group in plan.groups]),
        seeds=build_seed_index(
            feature_rows,
            candidates.alpha[member],
            candidates.training[member],
            position[gates],
            count=rows,
        ),
        input_rows=torch.cat((feature_rows, candidates.row[gates])),
        gate_env=candidates.env[gates],
        parent_row=split and split[0],
        row_env=split and split[1],
    )


def training_indices(slots: Slots, plan: Plan, *, net: Net) -> tuple[SlotIndex | None, ...]:
    """Index lists of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    if not any(slot_plan.groups for slot_plan in plan.train):
        return (None,) * len(plan.train)
    order = training_membership(slots).order()
    envs = slots.stage.shape[0]
    env = torch.arange(envs, device=order.device)
    return tuple(
        _slot_index(order[s], slot_plan, _candidates(slots, s, env, env), envs)
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
    indices: dict[int, SlotIndex | None] = {}
    before = envs
    for level, s in enumerate(net.execution):
        after = plan.rows[level]
        slot_plan = plan.evaluate[s]
        split = None
        if after != before:
            first = row_candidates(tree, level + 1, after)
            split = tree.number[level].flatten()[first], first // width
        if slot_plan.groups:
            candidates = _candidates(slots, s, env, tree.number[level + 1].flatten())
            indices[s] = _slot_index(order[s], slot_plan, candidates, after, split)
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
    or "momentum".
    """
    params: list[SlotParams | None] = []
    for s, (slot, plan, index) in enumerate(zip(net.slots, plans, indices, strict=True)):
        if index is None:
            params.append(None)
            continue
        rows, (*layouts, gate) = storage[slot.name, leaf], slot_layouts(plan, s, net=net)
        groups = tuple(
            layout.split(rows[:, : layout.size].index_select(0, env))
            for layout, env in zip(layouts, index.env, strict=True)
        )
        gates = gate.split(rows[:, rows.shape[-1] - gate.size :].index_select(0, index.gate_env))
        params.append(SlotParams(groups, gates))
    return tuple(params)


def slot_layouts(plan: SlotPlan, s: int, *, net: Net) -> tuple[ParamLayout, ...]:
    """Layout of the seeds of every group in slot s, then of the gates."""
    return net.layouts(s, tuple([group.blueprint for group in plan.groups]))


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
    *groups, gate = layouts
    for layout, leaves, env in zip(groups, params.seeds, index.env, strict=True):
        out[:, : layout.size].index_copy_(0, env, layout.join(leaves))
    out[:, out.shape[-1] - gate.size :].index_copy_(0, index.gate_env, gate.join(params.gates))
    return out
