"""Index lists of an epoch: which rows meet which seeds at every slot, in training and in the validation tree."""

from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.net import Net
from morphogen.nets.plan import Crew, Plan, Tree, training_roster, validation_roster
from morphogen.state.env import Slots
from morphogen.vocab.stage import Stage


class Half(NamedTuple):
    """The seeds of a slot that are blended in one way."""

    rows: Tensor  # int64 [N], rows of the features
    alpha: Tensor  # float [N]
    training: Tensor  # bool [N]


class Site(NamedTuple):
    """Who runs at one slot.  Groups in the order of the crew; within a group the multiplied rows come last."""

    rows: tuple[Tensor, ...]  # int64 [n] per group, rows of the features (those after a split)
    env: tuple[Tensor, ...]  # int64 [n] per group, envs whose seed it is
    added: Half
    multiplied: Half
    gated: Tensor  # int64 [G], positions among the added rows
    gate_env: Tensor  # int64 [G]
    children: Tensor | None  # int64 [rows after], row that each row after continues; None: nothing splits here
    row_env: Tensor | None  # int64 [rows after], env of each row after a split


class Grown(NamedTuple):
    """Parameters of what runs at one slot."""

    seeds: tuple[Tensor, ...]  # [n, P_b] per group
    gates: Tensor  # [G, gate parameters]


class _Candidates(NamedTuple):
    """What a place in a roster stands for."""

    env: Tensor  # int64 [N]
    row: Tensor  # int64 [N], row of the features after the slot
    alpha: Tensor  # float [N]
    training: Tensor  # bool [N]


def _candidates(slots: Slots, s: int, env: Tensor, row: Tensor) -> _Candidates:
    return _Candidates(env, row, slots.alpha[:, s][env], slots.stage[:, s][env] == int(Stage.TRAINING))


def _site(order: Tensor, crew: Crew, of: _Candidates, split: tuple[Tensor, Tensor] | None = None) -> Site:
    """The site of one slot.  order int64 [13, N]; split: parent and env of every row after the slot."""
    picks = [order[group.blueprint.value, : group.size] for group in crew.groups]
    first = torch.cat([pick[: group.added] for pick, group in zip(picks, crew.groups, strict=True)])
    last = torch.cat([pick[group.added :] for pick, group in zip(picks, crew.groups, strict=True)])
    place = torch.zeros_like(of.row).index_copy(0, first, torch.arange(first.shape[0], device=first.device))
    gates = order[0, : crew.gates]
    return Site(
        rows=tuple(of.row[pick] for pick in picks),
        env=tuple(of.env[pick] for pick in picks),
        added=Half(of.row[first], of.alpha[first], of.training[first]),
        multiplied=Half(of.row[last], of.alpha[last], of.training[last]),
        gated=place[gates],
        gate_env=of.env[gates],
        children=split and split[0],
        row_env=split and split[1],
    )


def training_sites(slots: Slots, plan: Plan) -> tuple[Site | None, ...]:
    """Sites of an epoch's training, per slot; None where nothing runs.  Rows are envs."""
    order = training_roster(slots).order()
    envs = torch.arange(order.shape[-1], device=order.device)
    return tuple(
        _site(order[s], crew, _candidates(slots, s, envs, envs)) if crew.groups else None
        for s, crew in enumerate(plan.train)
    )


def validation_sites(slots: Slots, limbs: Tree, plan: Plan, *, net: Net) -> tuple[Site | None, ...]:
    """Sites of a validation pass, per slot; None where nothing runs."""
    order = validation_roster(slots, limbs, net=net).order()
    width = limbs.row.shape[-1]
    env = torch.arange(order.shape[-1], device=order.device) // width
    sites: dict[int, Site | None] = {}
    before = limbs.row.shape[1]
    for level, s in enumerate(net.execution):
        after, crew = plan.rows[level], plan.evaluate[s]
        of = _candidates(slots, s, env, limbs.number[level + 1].flatten())
        split = None if after == before else _split(limbs, level, after)
        sites[s] = _site(order[s], crew, of, split) if crew.groups else None
        before = after
    return tuple(sites[s] for s in range(len(net.slots)))


def _split(limbs: Tree, level: int, after: int) -> tuple[Tensor, Tensor]:
    """Parent row and env of every row after a slot.  int64 [after] each."""
    first = row_candidates(limbs, level + 1, after)
    return limbs.number[level].flatten()[first], first // limbs.row.shape[-1]


def row_candidates(limbs: Tree, level: int, count: int) -> Tensor:
    """The (env, coalition) that stands for each row of a level, flattened.  int64 [count]."""
    return (~limbs.row[level]).flatten().to(torch.uint8).argsort(stable=True)[:count]


def gather(
    seeds: TensorDict, leaf: str, crews: tuple[Crew, ...], sites: tuple[Site | None, ...], *, net: Net
) -> tuple[Grown | None, ...]:
    """Rows of the storage for everything that runs, per slot.  leaf: "params" or "momentum"."""
    found: list[Grown | None] = []
    for s, (crew, site) in enumerate(zip(crews, sites, strict=True)):
        found.append(site and _gather(seeds[net.names[s], leaf], crew, site, net.counts[s], net.gate_counts[s]))
    return tuple(found)


def _gather(storage: Tensor, crew: Crew, site: Site, sizes: tuple[int, ...], gate: int) -> Grown:
    pairs = zip(crew.groups, site.env, strict=True)
    seeds = tuple(storage[:, : sizes[group.blueprint.value]].index_select(0, env) for group, env in pairs)
    return Grown(seeds, storage[:, storage.shape[-1] - gate :].index_select(0, site.gate_env))


def scatter(storage: Tensor, grown: Grown | None, site: Site | None) -> Tensor:
    """The storage of a slot with the rows of everything that ran put back.  storage [E, P_s] -> [E, P_s]."""
    if grown is None or site is None:
        return storage
    out = storage.clone()
    for rows, env in zip(grown.seeds, site.env, strict=True):
        out[:, : rows.shape[-1]].index_copy_(0, env, rows)
    out[:, out.shape[-1] - grown.gates.shape[-1] :].index_copy_(0, site.gate_env, grown.gates)
    return out
