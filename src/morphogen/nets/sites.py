"""Index lists of an epoch: which rows meet which seeds at every slot, in training and in the validation tree."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.blend_slots import SeedBlend, build_seed_blend
from morphogen.nets.layout import Leaves, ParamLayout
from morphogen.nets.net import Net
from morphogen.nets.plan import CoalitionTree, PaddedRows, Plan, SlotPlan, training_membership, validation_membership
from morphogen.nets.seeds import cnn as seeds
from morphogen.state.env import Slots
from morphogen.vocab.stage import Stage


class SlotIndex(NamedTuple):
    """Who runs at one slot.  Groups in the order of the crew; within a group the multiplied rows come last.

    A padded row repeats the first of its half, silent.  Its home is no env: what becomes of it is dropped.
    """

    env: tuple[Tensor, ...]  # int64 [n] per group, envs whose seed it is
    target_env: tuple[Tensor, ...]  # int64 [n] per group, the same; E where padded
    mix: SeedBlend  # all groups; rows of the features after a split
    input_rows: Tensor  # int64 [N + G], rows that the seeds see, and then the gates
    gate_position: Tensor  # int64 [G], positions among these; one behind the last where padded
    gate_env: Tensor  # int64 [G]
    gate_target_env: Tensor  # int64 [G]
    parent_row: Tensor | None  # int64 [rows after], row that each row after continues; None: nothing splits here
    row_env: Tensor | None  # int64 [rows after], env of each row after a split


class SlotParams(NamedTuple):
    """Parameters of what runs at one slot."""

    seeds: tuple[Leaves, ...]  # [n, *shape] per group
    gates: Leaves  # [G, *shape]


class _Candidates(NamedTuple):
    """What a place in a roster stands for."""

    env: Tensor  # int64 [N]
    row: Tensor  # int64 [N], row of the features after the slot
    alpha: Tensor  # float [N]
    training: Tensor  # bool [N]


def _candidates(slots: Slots, s: int, env: Tensor, row: Tensor) -> _Candidates:
    return _Candidates(env, row, slots.alpha[:, s][env], slots.stage[:, s][env] == int(Stage.TRAINING))


def _half_rows(seats: PaddedRows, part: int, code: int, size: int) -> PaddedRows:
    """The seats of one half of a group.  seats [2, 13, C] -> [size]."""
    return PaddedRows(seats.candidate[part, code, :size], seats.filled[part, code, :size])


def _concat_rows(parts: Sequence[PaddedRows]) -> PaddedRows:
    return PaddedRows(*(torch.cat(column) for column in zip(*parts, strict=True)))


class _FeatureRows(NamedTuple):
    """The features that a slot changes."""

    envs: int
    rows: int  # after the slot
    split: tuple[Tensor, Tensor] | None = None  # int64 [rows after] each: parent and env of every row


def _blend_rows(candidates: _Candidates, seats: PaddedRows, plan: SlotPlan, features: _FeatureRows) -> SeedBlend:
    at, taken = seats
    alpha, training = torch.where(taken, candidates.alpha[at], 0.0), candidates.training[at] & taken
    return build_seed_blend(candidates.row[at], alpha, training, count=features.rows, multiplied=plan.multiplied_spans)


def _slot_index(seats: PaddedRows, plan: SlotPlan, candidates: _Candidates, features: _FeatureRows) -> SlotIndex:
    """The site of one slot.  seats [2, 13, C] of the slot."""
    pairs = [
        [
            _half_rows(seats, part, group.blueprint.value, size)
            for part, size in enumerate((group.added, group.multiplied))
        ]
        for group in plan.groups
    ]
    whole, gates = _concat_rows([part for pair in pairs for part in pair]), _half_rows(seats, 0, 0, plan.gates)
    sizes, (nobody, count) = [group.size for group in plan.groups], (candidates.row.shape[0], whole.filled.shape[0])
    place = candidates.row.new_zeros(nobody + 1).index_copy(
        0, torch.where(whole.filled, whole.candidate, nobody), torch.arange(count, device=candidates.row.device)
    )
    own = _blend_rows(candidates, whole, plan, features)
    return SlotIndex(
        env=candidates.env[whole.candidate].split(sizes),
        target_env=torch.where(whole.filled, candidates.env[whole.candidate], features.envs).split(sizes),
        mix=own,
        input_rows=torch.cat((own.rows, candidates.row[gates.candidate])),
        gate_position=torch.where(gates.filled, place[gates.candidate], count),
        gate_env=candidates.env[gates.candidate],
        gate_target_env=torch.where(gates.filled, candidates.env[gates.candidate], features.envs),
        parent_row=features.split and features.split[0],
        row_env=features.split and features.split[1],
    )


def _select_slot(seats: PaddedRows, s: int) -> PaddedRows:
    return PaddedRows(seats.candidate[:, s], seats.filled[:, s])


def training_indices(slots: Slots, plan: Plan, *, net: Net) -> tuple[SlotIndex | None, ...]:
    """Sites of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    if not any(crew.groups for crew in plan.train):
        return (None,) * len(plan.train)
    seats = training_membership(slots).padded_rows(plan.train)
    envs = slots.stage.shape[0]
    own = torch.arange(envs, device=slots.stage.device)
    return tuple(
        _slot_index(_select_slot(seats, s), crew, _candidates(slots, s, own, own), _FeatureRows(envs, envs))
        if crew.groups
        else None
        for s, (crew, slot) in enumerate(zip(plan.train, net.slots, strict=True))
    )


def validation_indices(slots: Slots, tree: CoalitionTree, plan: Plan, *, net: Net) -> tuple[SlotIndex | None, ...]:
    """Sites of a validation pass, per slot; None where nothing runs."""
    if not any(crew.groups for crew in plan.evaluate):
        return (None,) * len(plan.evaluate)
    seats = validation_membership(slots, tree, net=net).padded_rows(plan.evaluate)
    envs, width = tree.row.shape[1:]
    env = torch.arange(envs * width, device=slots.stage.device) // width
    sites: dict[int, SlotIndex | None] = {}
    before = envs
    for level, s in enumerate(net.execution):
        after, crew = plan.rows[level], plan.evaluate[s]
        of = _candidates(slots, s, env, tree.number[level + 1].flatten())
        whole = after == (envs if plan.padded else before)  # equal sizes with room left over may hold a split
        where = _FeatureRows(envs, after, None if whole else _split_rows(tree, level, after))
        sites[s] = _slot_index(_select_slot(seats, s), crew, of, where) if crew.groups else None
        before = after
    return tuple(sites[s] for s in range(len(net.slots)))


def _split_rows(tree: CoalitionTree, level: int, after: int) -> tuple[Tensor, Tensor]:
    """Parent row and env of every row after a slot.  int64 [after] each."""
    first = row_candidates(tree, level + 1, after)
    return tree.number[level].flatten()[first], first // tree.row.shape[-1]


def row_candidates(tree: CoalitionTree, level: int, size: int) -> Tensor:
    """The (env, coalition), flattened, that stands for each row of a level; padded with the first.  int64 [size]."""
    row = tree.row[level].flatten()
    place = torch.arange(size, device=row.device)
    return (~row).to(torch.uint8).argsort(stable=True)[torch.where(place < row.sum(), place, 0)]


def gather_params(
    storage: TensorDict, leaf: str, crews: tuple[SlotPlan, ...], sites: tuple[SlotIndex | None, ...], *, net: Net
) -> tuple[SlotParams | None, ...]:
    """Rows of the storage for everything that runs, per slot.  leaf: "params" or "momentum"."""
    found: list[SlotParams | None] = []
    for s, (crew, site) in enumerate(zip(crews, sites, strict=True)):
        found.append(site and _gather_slot(storage[net.names[s], leaf], crew, site, channels=net.slots[s].channels))
    return tuple(found)


def _gather_slot(storage: Tensor, crew: SlotPlan, site: SlotIndex, *, channels: int) -> SlotParams:
    *kinds, gate = slot_layouts(crew, channels)
    grown = tuple(
        kind.split(storage[:, : kind.size].index_select(0, env)) for kind, env in zip(kinds, site.env, strict=True)
    )
    return SlotParams(grown, gate.split(storage[:, storage.shape[-1] - gate.size :].index_select(0, site.gate_env)))


def slot_layouts(crew: SlotPlan, channels: int) -> tuple[ParamLayout, ...]:
    """Layout of the seeds of every group, then that of the gates."""
    return (*(seeds.seed_layout(group.blueprint, channels) for group in crew.groups), seeds.gate_layout(channels))


def scatter_params(
    storage: Tensor, grown: SlotParams | None, site: SlotIndex | None, crew: SlotPlan, *, channels: int
) -> Tensor:
    """The storage of a slot with the rows of everything that ran put back.  storage [E, P_s] -> [E, P_s]."""
    if grown is None or site is None:
        return storage
    out = F.pad(storage, (0, 0, 0, 1))  # one row more: the home of what is padded
    *kinds, gate = slot_layouts(crew, channels)
    for kind, leaves, home in zip(kinds, grown.seeds, site.target_env, strict=True):
        out[:, : kind.size].index_copy_(0, home, kind.join(leaves))
    out[:, out.shape[-1] - gate.size :].index_copy_(0, site.gate_target_env, gate.join(grown.gates))
    return out[:-1]
