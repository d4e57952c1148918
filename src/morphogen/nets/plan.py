"""The plan of an epoch: sizes of everything that runs beside the hosts, and who belongs to which group.

The structure of all envs is constant from `tick` to the end of the epoch.  From it, logits take four steps:

1. `plan`: the device counts the rows of every group (`plan_counts`), the host reads the counts once (`read_plan`).
2. `sites`: one `SlotIndex` per slot, index lists on the device: a stable argsort, cut at the sizes of the plan.
3. `blocks`: the parameters of all groups as one flat buffer, for one optimiser step over everything that runs.
4. `forward`: the hosts block by block; at a slot every group runs once, over its rows, and one call blends all deltas.

A *slot plan* lists what runs at one slot: its *blueprint groups* and the rows with a gate network.  A group has two
halves: added rows first, rows under MULTIPLY last.  Rows are picked among *candidates*, which are the envs in training
and (env, coalition) in validation; a *membership* says which candidate belongs to which group.  The sizes of a plan are
capacities: *padded rows* list the members of a half, then repeat the first one up to the capacity, unfilled.

    one slot of 5 envs      CONV_LIGHT              NORM       CONV_LIGHT added in envs 0 and 3,
    half                    added      multiplied   added      multiplied in env 4, NORM added in env 1,
    capacity                4          1            2          nothing in env 2
    candidate               0  3  0  0    4         1  1
    filled                  x  x  .  .    x         x  .
    written back to env     0  3  5  5    4         1  5       env 5 = E does not exist: the row is dropped

An unfilled row is blended with factor 0, its gradient is 0, and it is written back to no env.  So a plan can be padded
to a few sizes (`pad_plan`), for which there are compiled graphs.

Validation evaluates *coalitions*, sets of slots that are on, along the *coalition tree*: one row per env before the
first slot; at a slot a row splits where coalitions of the env differ.  Rows are the distinct prefixes of coalitions in
execution order, so no activation is computed twice.

    env 0   *----- r0c0 on ------ r0c1 on        coalitions {r0c0, r0c1}, {r0c1}, {}: 1, 2, then 3 rows
             \\---- r0c0 off ----- r0c1 on
                           \\----- r0c1 off
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.nets.net import Net
from morphogen.rules.attribution import players
from morphogen.rules.stages import active, blended
from morphogen.state.env import Slots
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.blueprint import COMPUTE_ORDER, Blueprint
from morphogen.vocab.field_docs import document_fields
from morphogen.vocab.stage import Algorithm

_CODES = len(Blueprint)
_WIDTH = 2 * len(Blueprint) - 1  # numbers of a slot plan
_GATES = 0  # the first of them
_SPARE_SHARE = 8  # spare capacity for one env in eight


@dataclass(frozen=True, slots=True)
class BlueprintGroup:
    """Capacities of the seeds of one blueprint in one slot: added rows first, rows under MULTIPLY last."""

    blueprint: Blueprint
    added: int
    multiplied: int

    @property
    def size(self) -> int:
        """Rows of both halves."""
        return self.added + self.multiplied


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Capacities of everything that runs at one slot."""

    groups: tuple[BlueprintGroup, ...]  # in the order of computation
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


@document_fields
@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of one epoch.  `train`, `evaluate`, `births` in slot order.  The module docstring explains the terms.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> grow = torch.tensor([[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT, *[0] * 5]] * 2)
        >>> env.plan(state, grow).births, env.plan(state, mg.actions.wait(env)).births  # seeds per slot
        ((2, 0), (0, 0))
    """

    train: tuple[SlotPlan, ...]
    evaluate: tuple[SlotPlan, ...]
    births: tuple[int, ...]
    rows: tuple[int, ...]  # rows of the coalition tree after each slot, in execution order
    padded: bool = False  # capacities may exceed the number of rows
    position: tuple[int, ...] = field(default=(), compare=False)  # of streamed data, see `data.feed`


class PaddedRows(NamedTuple):
    """Row assignment per half of a group: additive seeds first, multiplicative seeds last.  C: capacity."""

    candidate: Tensor  # int64 [2, S, 13, C], members in order; the first one where unfilled
    filled: Tensor  # bool [2, S, 13, C]


class Membership(NamedTuple):
    """Members of every group among N candidates per slot; group 0 (no blueprint) holds the gates."""

    member: Tensor  # bool [S, 13, N]
    multiplied: Tensor  # bool [S, 1, N]

    def group_sizes(self) -> Tensor:
        """Rows per group, and those under MULTIPLY.  int64 [2, S, 13]."""
        return torch.stack((self.member.sum(-1), (self.member & self.multiplied).sum(-1)))

    def order(self) -> Tensor:
        """Candidates with the members of every group first, those under MULTIPLY last among them.  int64 [S, 13, N]."""
        return torch.where(self.member, self.multiplied.long(), 2).argsort(dim=-1, stable=True)

    def padded_rows(self, plans: tuple[SlotPlan, ...]) -> PaddedRows:
        """List the members of every half, up to the largest capacity of the plans."""
        total, multiplied = self.group_sizes().unsqueeze(-1)
        count = torch.stack((total - multiplied, multiplied))
        first = torch.stack((torch.zeros_like(total), total - multiplied))
        row = torch.arange(max([plan.capacity for plan in plans]), device=count.device)
        filled = row < count
        position = (first + torch.where(filled, row, 0)).clamp(max=self.member.shape[-1] - 1)
        return PaddedRows(self.order().expand(2, -1, -1, -1).gather(-1, position), filled)


class CoalitionTree(NamedTuple):
    """Rows of validation; level j is before the j-th slot in execution order, level S is the end."""

    representative: Tensor  # int64 [S + 1, E, K], first coalition of the env with an equal prefix
    row: Tensor  # bool [S + 1, E, K], is a representative
    on: Tensor  # bool [S, E, K], the j-th slot is on
    number: Tensor  # int64 [S + 1, E, K], row of an evaluated coalition


def _membership(runs: Tensor, slots: Slots, env: Tensor) -> Membership:
    """Membership of the candidates that run.  runs bool [S, N]; env int64 [N], env of each candidate."""
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
    """Build the coalition tree.  coalition int64 [E, K], bit s = player in slot s is on; evaluated bool [E, K]."""
    device, count = coalition.device, len(net.slots)
    weight = constant_table(tuple(1 << s for s in range(count)), torch.int64, device)
    on_bits = coalition & (players(slots) * weight).sum(-1, keepdim=True)
    prefixes = tuple(sum(1 << s for s in net.execution[:level]) for level in range(count + 1))
    code = on_bits & constant_table(prefixes, torch.int64, device).view(-1, 1, 1)  # [S + 1, E, K]
    same = (code.unsqueeze(-1) == code.unsqueeze(-2)) & evaluated.unsqueeze(-2)
    representative = same.to(torch.uint8).argmax(-1)
    row = evaluated & (representative == torch.arange(coalition.shape[1], device=device))
    number = (row.flatten(1).cumsum(1) - 1).view_as(row.long()).gather(-1, representative)
    slot_bit = weight[constant_table(net.execution, torch.int64, device)].view(-1, 1, 1)
    return CoalitionTree(representative, row, (on_bits & slot_bit) != 0, number)


def validation_membership(slots: Slots, tree: CoalitionTree, *, net: Net) -> Membership:
    """Rows on which a seed runs in validation; candidates are (env, coalition), flattened."""
    levels, envs, width = tree.row.shape
    runs = (tree.row[1:] & tree.on).flatten(1)
    position = constant_table(tuple(net.execution.index(s) for s in range(levels - 1)), torch.int64, runs.device)
    env = torch.arange(envs * width, device=runs.device) // width
    return _membership(runs.index_select(0, position), slots, env)


def plan_counts(slots: Slots, coalition: Tensor, evaluated: Tensor, born: Tensor, *, net: Net) -> Tensor:
    """Count everything that the host needs for this epoch, in one buffer.

    Shapes: slots [E, S] after `tick`; coalition int64, evaluated bool [E, K]; born bool [E, S] -> int32 [54 S].

    Args:
        coalition: coalitions to validate; bit s is set where slot s is on.
        evaluated: coalitions that are validated; the others are ignored.
        born: seeds that germinated in this epoch.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=2, seed=0)
        >>> (state, _), all_on = env.reset(), torch.tensor([[3], [3]])  # both slots on, in both envs
        >>> evaluated, born = torch.ones(2, 1, dtype=torch.bool), torch.zeros(2, 2, dtype=torch.bool)
        >>> counts = mg.nets.plan_counts(state.slots, all_on, evaluated, born, net=env.net)
        >>> counts.shape, mg.nets.read_plan(counts.tolist(), env.net).rows  # no seed yet: a row per env
        (torch.Size([108]), (2, 2))
    """
    tree = build_tree(slots, coalition, evaluated, net=net)
    train = training_membership(slots).group_sizes()
    evaluate = validation_membership(slots, tree, net=net).group_sizes()
    parts = (train, evaluate, born.sum(0), tree.row[1:].sum((1, 2)))
    return torch.cat([part.flatten() for part in parts]).to(torch.int32)


def read_plan(numbers: list[int], net: Net) -> Plan:
    """Build the plan from the numbers of `plan_counts`, followed by a position of streamed data, if any.

    Args:
        numbers: 54 S integers on the host; further ones become `Plan.position`.

    Example:
        >>> import morphogen as mg
        >>> net = mg.make("whitebox", envs=2, seed=0).net
        >>> plan = mg.nets.read_plan([0] * 104 + [1, 0] + [2, 2], net)  # no groups, births, rows
        >>> plan.births, plan.rows
        ((1, 0), (2, 2))
    """
    slots = len(net.slots)
    width = slots * _CODES
    tables = [numbers[i * width : (i + 1) * width] for i in range(4)]
    train, evaluate = _read_slot_plans(*tables[:2]), _read_slot_plans(*tables[2:])
    births, rows, position = (
        tuple(numbers[4 * width + at :][:count]) for at, count in ((0, slots), (slots, slots), (2 * slots, None))
    )
    return Plan(train, evaluate, births, rows, position=position)


def _read_slot_plans(sizes: list[int], multiplied: list[int]) -> tuple[SlotPlan, ...]:
    plans: list[SlotPlan] = []
    for at in range(0, len(sizes), _CODES):
        halves = {b: (sizes[at + b] - multiplied[at + b], multiplied[at + b]) for b in COMPUTE_ORDER}
        plans.append(build_slot_plan(sizes[at], halves))
    return tuple(plans)


def build_slot_plan(gates: int, halves: Mapping[Blueprint, tuple[int, int]]) -> SlotPlan:
    """Build a slot plan from the rows of gates, and the added and multiplied rows of every blueprint."""
    return SlotPlan(tuple(BlueprintGroup(b, *halves[b]) for b in COMPUTE_ORDER if any(halves[b])), gates)


def empty_plan(envs: int, net: Net) -> Plan:
    """Return the plan of envs without seeds, for validation after a reset; it needs no counts from the device.

    Example:
        >>> import morphogen as mg
        >>> plan = mg.nets.empty_plan(4, mg.make("whitebox", envs=4, seed=0).net)
        >>> plan.train[0].groups, plan.rows  # one row per env behind each of the two slots
        ((), (4, 4))
    """
    slots = len(net.slots)
    return read_plan([0] * (4 * slots * _CODES + slots) + [envs] * slots, net)


def bucket(rows: int, envs: int) -> int:
    """Return the smallest size of 0, 1, 2, 4 .. envs, 2 envs, 4 envs .. with capacity for these rows."""
    if rows > envs:
        return envs << (-(-rows // envs) - 1).bit_length()
    return min(1 << (rows - 1).bit_length(), envs) if rows else 0


def pad_plan(plan: Plan, envs: int) -> Plan:
    """Return the plan with every size at its bucket, and spare capacity.  Padding changes results by rounding only.

    From plan to plan, the kinds of seeds change less than their places.  So a kind that occurs anywhere gets capacity
    everywhere: in every slot, under every algorithm, in training and in validation, for one env in eight.  Gates, which
    come late, get capacity wherever anything grows.  A plan without seeds gets none.
    """
    spare = max(1, envs // _SPARE_SHARE)
    sizes = [capacity(plans) for plans in (plan.train, plan.evaluate)]
    kinds = {_row_kind(at) for numbers in sizes for at, rows in enumerate(numbers) if rows}
    least = tuple(spare if kinds and _row_kind(at) in {_GATES, *kinds} else 0 for at in range(len(sizes[0])))
    rows = [max(count, envs + spare) if kinds else count for count in plan.rows]
    parts = (*(map(max, numbers, least) for numbers in sizes), plan.births, rows)
    return build_plan(*(tuple(bucket(size, envs) for size in part) for part in parts))


def _row_kind(at: int) -> int:
    """Kind of a number of `capacity`, the gates or a blueprint, for any slot and half."""
    return (at % _WIDTH + 1) // 2


def join_plans(plans: Sequence[Plan]) -> Plan:
    """Return the smallest plan with capacity for all of these plans."""
    parts = zip(*map(plan_sizes, plans), strict=True)
    return build_plan(*(tuple(map(max, zip(*sizes, strict=True))) for sizes in parts))


def plan_sizes(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return all sizes of a plan: for training, for validation, births and rows."""
    return capacity(plan.train), capacity(plan.evaluate), plan.births, plan.rows


def build_plan(train: Sequence[int], evaluate: Sequence[int], births: tuple[int, ...], rows: tuple[int, ...]) -> Plan:
    """Return the padded plan of these sizes, the inverse of `plan_sizes`."""
    return Plan(build_slot_plans(train), build_slot_plans(evaluate), births, rows, padded=True)


def capacity(plans: tuple[SlotPlan, ...]) -> tuple[int, ...]:
    """Return the sizes of slot plans as comparable numbers: per slot gates, then added, multiplied per blueprint."""
    sizes: list[int] = []
    for plan in plans:
        halves = {group.blueprint: (group.added, group.multiplied) for group in plan.groups}
        sizes += [plan.gates, *(half for b in Blueprint if b is not Blueprint.NOOP for half in halves.get(b, (0, 0)))]
    return tuple(sizes)


def build_slot_plans(numbers: Sequence[int]) -> tuple[SlotPlan, ...]:
    """Return the slot plans of these sizes, the inverse of `capacity`."""
    plans: list[SlotPlan] = []
    for at in range(0, len(numbers), _WIDTH):
        gates, *sizes = numbers[at : at + _WIDTH]
        halves = zip(sizes[::2], sizes[1::2], strict=True)
        plans.append(build_slot_plan(gates, dict(zip(list(Blueprint)[1:], halves, strict=True))))
    return tuple(plans)
