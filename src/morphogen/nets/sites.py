"""Slot indices: which rows meet which seeds at every slot, in training and in the coalition tree of validation."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.blend_slots import SeedBlend, build_seed_blend
from morphogen.nets.layout import Leaves, ParamLayout
from morphogen.nets.net import Net
from morphogen.nets.plan import CoalitionTree, PaddedRows, Plan, SlotPlan, training_membership, validation_membership
from morphogen.state.env import Slots
from morphogen.vocab.stage import Stage


class SlotIndex(NamedTuple):
    """Index lists of one slot.  Groups in the order of the slot plan; in a group multiplied rows come last.

    An unfilled row repeats the first of its half and is silent.  Its target env is E: its parameters are dropped.
    """

    env: tuple[Tensor, ...]  # int64 [n] per group, env of each seed
    target_env: tuple[Tensor, ...]  # int64 [n] per group, env to write back to; E where unfilled
    mix: SeedBlend  # all groups; rows of the features after a split
    input_rows: Tensor  # int64 [N + G], rows of the features that seeds read, and then gates
    gate_position: Tensor  # int64 [G], positions among the N seeds; N where unfilled
    gate_env: Tensor  # int64 [G]
    gate_target_env: Tensor  # int64 [G]
    parent_row: Tensor | None  # int64 [rows after], row before the slot that each row continues; None: nothing splits
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


class _FeatureRows(NamedTuple):
    """Rows of the features that a slot changes."""

    envs: int
    rows: int  # after the slot
    split: tuple[Tensor, Tensor] | None = None  # int64 [rows after] each: parent and env of every row


def _candidates(slots: Slots, s: int, env: Tensor, row: Tensor) -> _Candidates:
    return _Candidates(env, row, slots.alpha[:, s][env], slots.stage[:, s][env] == int(Stage.TRAINING))


def _slot_index(
    padded: PaddedRows, s: int, plan: SlotPlan, candidates: _Candidates, features: _FeatureRows
) -> SlotIndex:
    """Build the index lists of slot s from the padded rows of all slots."""
    ranges = [(0, 0, plan.gates)]  # half, blueprint, capacity
    for group in plan.groups:
        ranges += [(0, group.blueprint.value, group.added), (1, group.blueprint.value, group.multiplied)]
    gates, *halves = (
        PaddedRows(padded.candidate[half, s, code, :size], padded.filled[half, s, code, :size])
        for half, code, size in ranges
    )
    rows = PaddedRows(*(torch.cat(column) for column in zip(*halves, strict=True)))
    sizes, total, count = [group.size for group in plan.groups], candidates.row.shape[0], rows.filled.shape[0]
    position = candidates.row.new_zeros(total + 1).index_copy(
        0, torch.where(rows.filled, rows.candidate, total), torch.arange(count, device=candidates.row.device)
    )
    env, gate_env = candidates.env[rows.candidate], candidates.env[gates.candidate]
    alpha = torch.where(rows.filled, candidates.alpha[rows.candidate], 0.0)
    training = candidates.training[rows.candidate] & rows.filled
    feature_rows = candidates.row[rows.candidate]
    return SlotIndex(
        env=env.split(sizes),
        target_env=torch.where(rows.filled, env, features.envs).split(sizes),
        mix=build_seed_blend(feature_rows, alpha, training, count=features.rows, multiplied=plan.multiplied_spans),
        input_rows=torch.cat((feature_rows, candidates.row[gates.candidate])),
        gate_position=torch.where(gates.filled, position[gates.candidate], count),
        gate_env=gate_env,
        gate_target_env=torch.where(gates.filled, gate_env, features.envs),
        parent_row=features.split and features.split[0],
        row_env=features.split and features.split[1],
    )


def training_indices(slots: Slots, plan: Plan, *, net: Net) -> tuple[SlotIndex | None, ...]:
    """Index lists of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    if not any(slot_plan.groups for slot_plan in plan.train):
        return (None,) * len(plan.train)
    padded = training_membership(slots).padded_rows(plan.train)
    envs = slots.stage.shape[0]
    env, features = torch.arange(envs, device=slots.stage.device), _FeatureRows(envs, envs)
    return tuple(
        _slot_index(padded, s, slot_plan, _candidates(slots, s, env, env), features) if slot_plan.groups else None
        for s, slot_plan in enumerate(plan.train)
    )


def validation_indices(slots: Slots, tree: CoalitionTree, plan: Plan, *, net: Net) -> tuple[SlotIndex | None, ...]:
    """Index lists of a validation pass, per slot; None where nothing runs.  Rows are those of the tree."""
    if not any(slot_plan.groups for slot_plan in plan.evaluate):
        return (None,) * len(plan.evaluate)
    padded = validation_membership(slots, tree, net=net).padded_rows(plan.evaluate)
    envs, width = tree.row.shape[1:]
    env = torch.arange(envs * width, device=slots.stage.device) // width
    indices: dict[int, SlotIndex | None] = {}
    before = envs
    for level, s in enumerate(net.execution):
        after, slot_plan, split = plan.rows[level], plan.evaluate[s], None
        if after != (envs if plan.padded else before):  # equal sizes of a padded plan may hold a split
            first = row_candidates(tree, level + 1, after)
            split = tree.number[level].flatten()[first], first // width
        if slot_plan.groups:
            candidates = _candidates(slots, s, env, tree.number[level + 1].flatten())
            indices[s] = _slot_index(padded, s, slot_plan, candidates, _FeatureRows(envs, after, split))
        before = after
    return tuple(indices.get(s) for s in range(len(net.slots)))


def row_candidates(tree: CoalitionTree, level: int, size: int) -> Tensor:
    """(Env, coalition), flattened, that represents each row of a level; padded with the first.  int64 [size]."""
    row = tree.row[level].flatten()
    position = torch.arange(size, device=row.device)
    return (~row).to(torch.uint8).argsort(stable=True)[torch.where(position < row.sum(), position, 0)]


def gather_params(
    storage: TensorDict, leaf: str, plans: tuple[SlotPlan, ...], indices: tuple[SlotIndex | None, ...], *, net: Net
) -> tuple[SlotParams | None, ...]:
    """Gather the rows of everything that runs, per slot; None where nothing runs.  leaf: "params" or "momentum"."""
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
    """Layout of the seeds of every group in slot s, then that of the gates."""
    return net.layouts(s, tuple(group.blueprint for group in plan.groups))


def scatter_params(
    storage: Tensor, params: SlotParams | None, index: SlotIndex | None, layouts: tuple[ParamLayout, ...]
) -> Tensor:
    """Return the storage of a slot with the rows of everything that ran written back.

    Shapes: storage [E, P_s]; layouts: of `slot_layouts` -> [E, P_s].
    """
    if params is None or index is None:
        return storage
    out = F.pad(storage, (0, 0, 0, 1))  # row E takes the unfilled rows
    *groups, gate = layouts
    for layout, leaves, env in zip(groups, params.seeds, index.target_env, strict=True):
        out[:, : layout.size].index_copy_(0, env, layout.join(leaves))
    out[:, out.shape[-1] - gate.size :].index_copy_(0, index.gate_target_env, gate.join(params.gates))
    return out[:-1]
