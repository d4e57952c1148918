"""Index lists of an epoch: which rows meet which seeds at every slot, in training and in the validation tree."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.blend_slots import Mix, mix
from morphogen.nets.layout import Layout, Leaves
from morphogen.nets.net import Net
from morphogen.nets.plan import Crew, Plan, Seats, Tree, training_roster, validation_roster
from morphogen.nets.seeds import cnn as seeds
from morphogen.state.env import Slots
from morphogen.vocab.stage import Stage


class Site(NamedTuple):
    """Who runs at one slot.  Groups in the order of the crew; within a group the multiplied rows come last.

    A padded row repeats the first of its half, silent.  Its home is no env: what becomes of it is dropped.
    """

    env: tuple[Tensor, ...]  # int64 [n] per group, envs whose seed it is
    home: tuple[Tensor, ...]  # int64 [n] per group, the same; E where padded
    mix: Mix  # all groups; rows of the features after a split
    fed: Tensor  # int64 [N + G], rows that the seeds see, and then the gates
    gated: Tensor  # int64 [G], positions among these; one behind the last where padded
    gate_env: Tensor  # int64 [G]
    gate_home: Tensor  # int64 [G]
    children: Tensor | None  # int64 [rows after], row that each row after continues; None: nothing splits here
    row_env: Tensor | None  # int64 [rows after], env of each row after a split


class Grown(NamedTuple):
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


def _cut(seats: Seats, part: int, code: int, size: int) -> Seats:
    """The seats of one half of a group.  seats [2, 13, C] -> [size]."""
    return Seats(seats.candidate[part, code, :size], seats.taken[part, code, :size])


def _joined(parts: Sequence[Seats]) -> Seats:
    return Seats(*(torch.cat(column) for column in zip(*parts, strict=True)))


class _Place(NamedTuple):
    """The features that a slot changes."""

    envs: int
    rows: int  # after the slot
    split: tuple[Tensor, Tensor] | None = None  # int64 [rows after] each: parent and env of every row


def _mix(of: _Candidates, seats: Seats, crew: Crew, where: _Place) -> Mix:
    at, taken = seats
    alpha, training = torch.where(taken, of.alpha[at], 0.0), of.training[at] & taken
    return mix(of.row[at], alpha, training, count=where.rows, multiplied=crew.multiplied)


def _site(seats: Seats, crew: Crew, of: _Candidates, where: _Place) -> Site:
    """The site of one slot.  seats [2, 13, C] of the slot."""
    pairs = [
        [_cut(seats, part, group.blueprint.value, size) for part, size in enumerate((group.added, group.multiplied))]
        for group in crew.groups
    ]
    whole, gates = _joined([part for pair in pairs for part in pair]), _cut(seats, 0, 0, crew.gates)
    sizes, (nobody, count) = [group.size for group in crew.groups], (of.row.shape[0], whole.taken.shape[0])
    place = of.row.new_zeros(nobody + 1).index_copy(
        0, torch.where(whole.taken, whole.candidate, nobody), torch.arange(count, device=of.row.device)
    )
    own = _mix(of, whole, crew, where)
    return Site(
        env=of.env[whole.candidate].split(sizes),
        home=torch.where(whole.taken, of.env[whole.candidate], where.envs).split(sizes),
        mix=own,
        fed=torch.cat((own.rows, of.row[gates.candidate])),
        gated=torch.where(gates.taken, place[gates.candidate], count),
        gate_env=of.env[gates.candidate],
        gate_home=torch.where(gates.taken, of.env[gates.candidate], where.envs),
        children=where.split and where.split[0],
        row_env=where.split and where.split[1],
    )


def _of_slot(seats: Seats, s: int) -> Seats:
    return Seats(seats.candidate[:, s], seats.taken[:, s])


def training_sites(slots: Slots, plan: Plan, *, net: Net) -> tuple[Site | None, ...]:
    """Sites of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    if not any(crew.groups for crew in plan.train):
        return (None,) * len(plan.train)
    seats = training_roster(slots).seats(plan.train)
    envs = slots.stage.shape[0]
    own = torch.arange(envs, device=slots.stage.device)
    return tuple(
        _site(_of_slot(seats, s), crew, _candidates(slots, s, own, own), _Place(envs, envs)) if crew.groups else None
        for s, (crew, slot) in enumerate(zip(plan.train, net.slots, strict=True))
    )


def validation_sites(slots: Slots, limbs: Tree, plan: Plan, *, net: Net) -> tuple[Site | None, ...]:
    """Sites of a validation pass, per slot; None where nothing runs."""
    if not any(crew.groups for crew in plan.evaluate):
        return (None,) * len(plan.evaluate)
    seats = validation_roster(slots, limbs, net=net).seats(plan.evaluate)
    envs, width = limbs.row.shape[1:]
    env = torch.arange(envs * width, device=slots.stage.device) // width
    sites: dict[int, Site | None] = {}
    before = envs
    for level, s in enumerate(net.execution):
        after, crew = plan.rows[level], plan.evaluate[s]
        of = _candidates(slots, s, env, limbs.number[level + 1].flatten())
        whole = after == (envs if plan.padded else before)  # equal sizes with room left over may hold a split
        where = _Place(envs, after, None if whole else _split(limbs, level, after))
        sites[s] = _site(_of_slot(seats, s), crew, of, where) if crew.groups else None
        before = after
    return tuple(sites[s] for s in range(len(net.slots)))


def _split(limbs: Tree, level: int, after: int) -> tuple[Tensor, Tensor]:
    """Parent row and env of every row after a slot.  int64 [after] each."""
    first = row_candidates(limbs, level + 1, after)
    return limbs.number[level].flatten()[first], first // limbs.row.shape[-1]


def row_candidates(limbs: Tree, level: int, size: int) -> Tensor:
    """The (env, coalition), flattened, that stands for each row of a level; padded with the first.  int64 [size]."""
    row = limbs.row[level].flatten()
    place = torch.arange(size, device=row.device)
    return (~row).to(torch.uint8).argsort(stable=True)[torch.where(place < row.sum(), place, 0)]


def gather(
    storage: TensorDict, leaf: str, crews: tuple[Crew, ...], sites: tuple[Site | None, ...], *, net: Net
) -> tuple[Grown | None, ...]:
    """Rows of the storage for everything that runs, per slot.  leaf: "params" or "momentum"."""
    found: list[Grown | None] = []
    for s, (crew, site) in enumerate(zip(crews, sites, strict=True)):
        found.append(site and _gather(storage[net.names[s], leaf], crew, site, channels=net.slots[s].channels))
    return tuple(found)


def _gather(storage: Tensor, crew: Crew, site: Site, *, channels: int) -> Grown:
    *kinds, gate = crew_layouts(crew, channels)
    grown = tuple(
        kind.split(storage[:, : kind.size].index_select(0, env)) for kind, env in zip(kinds, site.env, strict=True)
    )
    return Grown(grown, gate.split(storage[:, storage.shape[-1] - gate.size :].index_select(0, site.gate_env)))


def crew_layouts(crew: Crew, channels: int) -> tuple[Layout, ...]:
    """Layout of the seeds of every group, then that of the gates."""
    return (*(seeds.layout(group.blueprint, channels) for group in crew.groups), seeds.gate_layout(channels))


def scatter(storage: Tensor, grown: Grown | None, site: Site | None, crew: Crew, *, channels: int) -> Tensor:
    """The storage of a slot with the rows of everything that ran put back.  storage [E, P_s] -> [E, P_s]."""
    if grown is None or site is None:
        return storage
    out = F.pad(storage, (0, 0, 0, 1))  # one row more: the home of what is padded
    *kinds, gate = crew_layouts(crew, channels)
    for kind, leaves, home in zip(kinds, grown.seeds, site.home, strict=True):
        out[:, : kind.size].index_copy_(0, home, kind.join(leaves))
    out[:, out.shape[-1] - gate.size :].index_copy_(0, site.gate_home, gate.join(grown.gates))
    return out[:-1]
