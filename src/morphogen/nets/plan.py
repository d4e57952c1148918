"""The plan: who runs what in an epoch, as numbers for the host and as index lists on the device.

Structure is constant from `tick` to the end of the epoch.  The host reads group *sizes* once (`plan_counts` ->
`read_plan`); the lists themselves are a stable argsort on the device, cut at those sizes.

Validation walks a tree: before the first slot there is one row per env, and at a slot a row splits where an env needs
it both on and off.  So rows are the distinct prefixes of the coalitions in execution order, and no activation is
computed twice.  In each table of sizes column 0 (no blueprint) counts the rows that run a gate network.

The sizes of a plan are room for rows, not their number, which stays on the device: room that is left over repeats the
first row and counts for nothing.  So a plan can be padded to a few sizes, for which there are compiled graphs.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.nets.net import Net
from morphogen.rules.attribution import players
from morphogen.rules.stages import active, blended
from morphogen.state.env import Slots
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.blueprint import COMPUTE_ORDER, Blueprint
from morphogen.vocab.stage import Algorithm

_CODES = len(Blueprint)


@dataclass(frozen=True, slots=True)
class BlueprintGroup:
    """Seeds of one blueprint in one slot: rows that are added, and rows under MULTIPLY, which come last."""

    blueprint: Blueprint
    added: int
    multiplied: int

    @property
    def size(self) -> int:
        """All rows."""
        return self.added + self.multiplied


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """All that runs at one slot."""

    groups: tuple[BlueprintGroup, ...]  # in the order in which they are computed
    gates: int  # rows that run a gate network

    @property
    def size(self) -> int:
        """Rows of all groups."""
        return sum(group.size for group in self.groups)

    @property
    def multiplied_spans(self) -> tuple[tuple[int, int], ...]:
        """First and last + 1 of the rows under MULTIPLY, among those of all groups."""
        ends = itertools.accumulate(group.size for group in self.groups)
        pairs = zip(ends, self.groups, strict=True)
        return tuple((end - group.multiplied, end) for end, group in pairs if group.multiplied)

    @property
    def capacity(self) -> int:
        """Rows of the largest half of a group, or of the gates."""
        return max([self.gates, *(max(group.added, group.multiplied) for group in self.groups)])


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of one epoch.  `train`, `evaluate`, `births` in slot order."""

    train: tuple[SlotPlan, ...]
    evaluate: tuple[SlotPlan, ...]
    births: tuple[int, ...]
    rows: tuple[int, ...]  # rows of the validation tree after each slot, in execution order
    padded: bool = False  # there may be room for more rows than there are


class PaddedRows(NamedTuple):
    """Who sits in the room of every half of a group: what is added first, then what multiplies."""

    candidate: Tensor  # int64 [2, S, 13, C], in order; the first one again where the room is left over
    filled: Tensor  # bool [2, S, 13, C]


class Membership(NamedTuple):
    """Who is in which group of which slot; N candidates per slot."""

    member: Tensor  # bool [S, 13, N]
    multiplied: Tensor  # bool [S, 1, N]

    def group_sizes(self) -> Tensor:
        """Rows per group, and those under MULTIPLY.  int64 [2, S, 13]."""
        return torch.stack((self.member.sum(-1), (self.member & self.multiplied).sum(-1)))

    def order(self) -> Tensor:
        """Candidates of every group first, those under MULTIPLY last among them.  int64 [S, 13, N]."""
        return torch.where(self.member, self.multiplied.long(), 2).argsort(dim=-1, stable=True)

    def padded_rows(self, plans: tuple[SlotPlan, ...]) -> PaddedRows:
        """The members of every group, with room for the largest of the crews."""
        every, multiplied = self.group_sizes().unsqueeze(-1)
        count = torch.stack((every - multiplied, multiplied))
        first = torch.stack((torch.zeros_like(every), every - multiplied))
        seat = torch.arange(max([crew.capacity for crew in plans]), device=count.device)
        taken = seat < count
        at = (first + torch.where(taken, seat, 0)).clamp(max=self.member.shape[-1] - 1)
        return PaddedRows(self.order().expand(2, -1, -1, -1).gather(-1, at), taken)


class CoalitionTree(NamedTuple):
    """Rows of the validation tree; level j is before the j-th slot in execution order, level S is the end."""

    representative: Tensor  # int64 [S + 1, E, K], first coalition of the env with the same prefix
    row: Tensor  # bool [S + 1, E, K], is a representative
    on: Tensor  # bool [S, E, K], the j-th slot is on
    number: Tensor  # int64 [S + 1, E, K], row that an evaluated coalition belongs to


def _membership(runs: Tensor, slots: Slots, env: Tensor) -> Membership:
    """Roster of candidates that run.  runs bool [S, N]; env int64 [N], env of each candidate."""
    blueprint, algorithm, stage = (
        leaf.T.index_select(1, env) for leaf in (slots.blueprint, slots.algorithm, slots.stage)
    )
    gated = runs & (algorithm == int(Algorithm.GATE)) & blended(stage)
    codes = torch.arange(1, _CODES, device=env.device).unsqueeze(-1)
    seeds = runs.unsqueeze(1) & (blueprint.unsqueeze(1) == codes)
    multiplied = algorithm == int(Algorithm.MULTIPLY)
    return Membership(torch.cat((gated.unsqueeze(1), seeds), dim=1), multiplied.unsqueeze(1))


def training_membership(slots: Slots) -> Membership:
    """Seeds that run in training; candidates are the envs."""
    runs = active(slots.stage)
    return _membership(runs.T, slots, torch.arange(runs.shape[0], device=runs.device))


def build_tree(slots: Slots, coalition: Tensor, evaluated: Tensor, *, net: Net) -> CoalitionTree:
    """The validation tree.  coalition int64 [E, K], bit s = player in slot s is on; evaluated bool [E, K]."""
    device = coalition.device
    weight = constant_table(tuple(1 << s for s in range(len(net.slots))), torch.int64, device)
    on_bits = coalition & (players(slots) * weight).sum(-1, keepdim=True)
    prefix = constant_table(tuple(_prefix_mask(net, j) for j in range(len(net.slots) + 1)), torch.int64, device)
    code = on_bits & prefix.view(-1, 1, 1)  # [S + 1, E, K]
    same = (code.unsqueeze(-1) == code.unsqueeze(-2)) & evaluated.unsqueeze(-2)
    representative = same.to(torch.uint8).argmax(-1)
    row = evaluated & (representative == torch.arange(coalition.shape[1], device=device))
    number = (row.flatten(1).cumsum(1) - 1).view_as(row.long()).gather(-1, representative)
    own = weight[constant_table(net.execution, torch.int64, device)].view(-1, 1, 1)
    return CoalitionTree(representative, row, (on_bits & own) != 0, number)


def _prefix_mask(net: Net, level: int) -> int:
    return sum(1 << s for s in net.execution[:level])


def validation_membership(slots: Slots, tree: CoalitionTree, *, net: Net) -> Membership:
    """Rows on which a seed runs in validation; candidates are (env, coalition), flattened."""
    levels, envs, width = tree.row.shape
    runs = (tree.row[1:] & tree.on).flatten(1)
    position = constant_table(tuple(net.execution.index(s) for s in range(levels - 1)), torch.int64, runs.device)
    env = torch.arange(envs * width, device=runs.device) // width
    return _membership(runs.index_select(0, position), slots, env)


def plan_counts(slots: Slots, coalition: Tensor, evaluated: Tensor, born: Tensor, *, net: Net) -> Tensor:
    """All numbers that the host needs for this epoch, in one buffer.

    Shapes: slots [E, S] after `tick`; coalition int64, evaluated bool [E, K]; born bool [E, S] -> int32 [54 S].
    """
    limbs = build_tree(slots, coalition, evaluated, net=net)
    train = training_membership(slots).group_sizes()
    evaluate = validation_membership(slots, limbs, net=net).group_sizes()
    parts = (train, evaluate, born.sum(0), limbs.row[1:].sum((1, 2)))
    return torch.cat([part.flatten() for part in parts]).to(torch.int32)


def read_plan(numbers: list[int], net: Net) -> Plan:
    """The plan from the numbers of `plan_counts`."""
    slots = len(net.slots)
    width = slots * _CODES
    tables = [numbers[i * width : (i + 1) * width] for i in range(4)]
    births, rows = numbers[4 * width : 4 * width + slots], numbers[4 * width + slots :]
    return Plan(
        _read_slot_plans(tables[0], tables[1]), _read_slot_plans(tables[2], tables[3]), tuple(births), tuple(rows)
    )


def _read_slot_plans(sizes: list[int], multiplied: list[int]) -> tuple[SlotPlan, ...]:
    starts = range(0, len(sizes), _CODES)
    return tuple(_read_slot_plan(sizes[at : at + _CODES], multiplied[at : at + _CODES]) for at in starts)


def _read_slot_plan(sizes: list[int], multiplied: list[int]) -> SlotPlan:
    return build_slot_plan(sizes[0], {b: (sizes[b] - multiplied[b], multiplied[b]) for b in COMPUTE_ORDER})


def build_slot_plan(gates: int, halves: Mapping[Blueprint, tuple[int, int]]) -> SlotPlan:
    """All that runs at a slot, from its gates and the rows of every blueprint that are added and that multiply."""
    return SlotPlan(tuple(BlueprintGroup(b, *halves[b]) for b in COMPUTE_ORDER if any(halves[b])), gates)


def empty_plan(envs: int, net: Net) -> Plan:
    """The plan of envs without seeds: what a reset validates under.  No crossing is needed to know it."""
    slots = len(net.slots)
    return read_plan([0] * (4 * slots * _CODES + slots) + [envs] * slots, net)
