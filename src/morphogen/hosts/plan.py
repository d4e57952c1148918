"""The plan of an epoch: sizes of everything that runs alongside the hosts, and who belongs to which
group.

The structure of all envs is constant from `tick` to the end of the epoch.  From it, logits take
four steps:

1. `plan`: the device counts the rows of every group (`plan_counts`), the host reads the counts once
   (`read_plan`).
2. `sites`: one `SlotIndex` per slot, index lists on the device: a stable argsort, cut at the sizes
   of the plan.
3. `blocks`: the parameters of all groups as one flat buffer, for one optimiser step over everything
   that runs.
4. `forward`: the hosts block by block; at a slot every group runs once, over its rows, and one call
   blends all deltas.

A *slot plan* lists what runs at one slot: its *blueprint groups* and the rows with a gate network.
A group has two
halves: added rows first, rows under MULTIPLY last.  Rows are picked among *candidates*, which are
the envs in training and (env, coalition) in validation; a *membership* says which candidate belongs
to which group.

    one slot of 5 envs      CONV_LIGHT              NORM       CONV_LIGHT added in envs 0 and 3,
    half                    added      multiplied   added      multiplied in env 4, NORM added in
                            env 1,
    candidate               0  3       4            1          nothing in env 2

Validation evaluates *coalitions*, sets of slots that are on, along the *coalition tree*: one row
per env before the first slot; at a slot a row splits where coalitions of the env differ.  Rows are
the distinct prefixes of coalitions in execution order, so no activation is computed twice.

    env 0   *----- r0c0 on ------ r0c1 on        coalitions {r0c0, r0c1}, {r0c1}, {}: 1, 2, then 3
            rows
             \\---- r0c0 off ----- r0c1 on
                           \\----- r0c1 off
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.hosts.net import Net
from morphogen.rules.attribution import players
from morphogen.rules.stages import active, blended
from morphogen.state.env import Slots
from morphogen.state.tree_ops import choose, constant_table, positions
from morphogen.vocab.blueprint import COMPUTE_ORDER, Blueprint
from morphogen.vocab.stage import Algorithm
from morphogen.vocab.text import short_repr

_CODES = len(Blueprint)
GATES = 0  # group of the gates, in the place of the code that means no blueprint


class BlueprintGroup(NamedTuple):
    """Seeds of one blueprint in one slot: added rows first, rows under MULTIPLY last."""

    blueprint: Blueprint
    size: int  # rows of both halves
    multiplied: int


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Sizes of everything that runs at one slot."""

    groups: tuple[BlueprintGroup, ...]  # in the order of computation
    gates: int  # rows that run a gate network

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of every group, then of the gates."""
        return (*[group.size for group in self.groups], self.gates)

    @property
    def multiplied_spans(self) -> tuple[tuple[int, int], ...]:
        """First and last + 1 of the rows under MULTIPLY, among the rows of all groups."""
        ends = itertools.accumulate(group.size for group in self.groups)
        pairs = zip(ends, self.groups, strict=True)
        return tuple((end - group.multiplied, end) for end, group in pairs if group.multiplied)


@short_repr
@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of one epoch of some envs.  `train`, `evaluate`, `births` in slot order; terms: see the
    module docstring.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> grow = torch.tensor([[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT, *[0] * 5]] * 2)
        >>> (
        ...     env.plan(state, grow).births,
        ...     env.plan(state, mg.actions.wait(env)).births,
        ... )  # seeds per slot
        ((2, 0), (0, 0))
    """

    train: tuple[SlotPlan, ...]
    evaluate: tuple[SlotPlan, ...]
    births: tuple[int, ...]
    rows: tuple[int, ...]
    """Rows of the coalition tree after each slot, in execution order."""


@short_repr
class EpochPlan(NamedTuple):
    """Sizes of one epoch of all envs, which train and validate in pieces (`env.pieces`).

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> plan = env.plan(env.reset()[0], mg.actions.wait(env))
        >>> plan.pieces[0].rows, plan.births  # of the only piece; seeds per slot
        ((2, 2), (0, 0))
    """

    pieces: tuple[Plan, ...]
    """Plan of every piece, in the order of the envs."""
    ended: bool = False
    """An env has reached its horizon before the epoch, and has to keep its state."""
    position: tuple[int, ...] = ()
    """Of streamed data, see `data.feed`."""

    @property
    def births(self) -> tuple[int, ...]:
        """New seeds per slot, of all pieces."""
        return tuple(map(sum, zip(*(piece.births for piece in self.pieces), strict=True)))


class Membership(NamedTuple):
    """Members of every group among N candidates per slot; group `GATES` holds the gates."""

    member: Tensor  # bool [S, 13, N]
    multiplied: Tensor  # bool [S, 1, N]

    def group_sizes(self) -> Tensor:
        """Rows per group, and those under MULTIPLY.  int64 [2, S, 13]."""
        return torch.stack((self.member.sum(-1), (self.member & self.multiplied).sum(-1)))

    def order(self) -> Tensor:
        """Candidates with the members of every group first, those under MULTIPLY last among them.
        int64 [S, 13, N].
        """
        return choose(self.member, self.multiplied.long(), 2).argsort(dim=-1, stable=True)


class CoalitionTree(NamedTuple):
    """Rows of validation; level j is before the j-th slot in execution order, level S is the
    end.
    """

    row: Tensor  # bool [S + 1, E, K], is the first coalition of the env with its prefix
    on: Tensor  # bool [S, E, K], the j-th slot is on
    number: Tensor  # int64 [S + 1, E, K], row of an evaluated coalition


def _membership(runs: Tensor, blueprint: Tensor, algorithm: Tensor, stage: Tensor) -> Membership:
    """Membership of the candidates that run.  runs bool, other leaves of the candidates' slots
    int64 [S, N].
    """
    gated = runs & (algorithm == int(Algorithm.GATE)) & blended(stage)
    codes = torch.arange(1, _CODES, device=runs.device).unsqueeze(-1)
    seeds = runs.unsqueeze(1) & (blueprint.unsqueeze(1) == codes)
    multiplied = algorithm == int(Algorithm.MULTIPLY)
    return Membership(torch.cat((gated.unsqueeze(1), seeds), dim=1), multiplied.unsqueeze(1))


def training_membership(slots: Slots) -> Membership:
    """Seeds that run in training; candidates are the envs."""
    return _membership(active(slots.stage).T, slots.blueprint.T, slots.algorithm.T, slots.stage.T)


def build_tree(slots: Slots, coalition: Tensor, evaluated: Tensor, *, net: Net) -> CoalitionTree:
    """Build the coalition tree.  coalition int64 [E, K], bit s = player in slot s is on; evaluated
    bool [E, K].
    """
    device = coalition.device
    count = len(net.slots)
    weight = constant_table(tuple(1 << s for s in range(count)), torch.int64, device)
    on_bits = coalition & (players(slots) * weight).sum(-1, keepdim=True)
    prefixes = tuple(sum(1 << s for s in net.execution[:level]) for level in range(count + 1))
    code = on_bits & constant_table(prefixes, torch.int64, device).view(-1, 1, 1)  # [S + 1, E, K]
    same = (code.unsqueeze(-1) == code.unsqueeze(-2)) & evaluated.unsqueeze(-2)
    representative = same.to(torch.uint8).argmax(-1)
    row = evaluated & (representative == positions(coalition.shape[1], device))
    number = (row.flatten(1).cumsum(1) - 1).view_as(row.long()).gather(-1, representative)
    slot_bit = weight[constant_table(net.execution, torch.int64, device)].view(-1, 1, 1)
    return CoalitionTree(row, (on_bits & slot_bit) != 0, number)


def validation_membership(slots: Slots, tree: CoalitionTree, *, net: Net) -> Membership:
    """Rows on which a seed runs in validation; candidates are (env, coalition), flattened."""
    runs = (tree.row[1:] & tree.on).flatten(1)
    levels = tuple(net.execution.index(s) for s in range(len(net.slots)))
    level = constant_table(levels, torch.int64, runs.device)
    leaves = (
        leaf.T.repeat_interleave(tree.row.shape[-1], dim=1)
        for leaf in (slots.blueprint, slots.algorithm, slots.stage)
    )
    return _membership(runs.index_select(0, level), *leaves)


def plan_counts(
    slots: Slots, coalition: Tensor, evaluated: Tensor, born: Tensor, *, net: Net
) -> Tensor:
    """Count everything that the host needs for this epoch, in one buffer.

    Shapes: slots [E, S] after `tick`; coalition int64, evaluated bool [E, K]; born bool [E, S] ->
    int32 [54 S].

    Args:
        coalition: coalitions to validate; bit s is set where slot s is on.
        evaluated: coalitions that are validated; the others are ignored.
        born: seeds that germinated in this epoch.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> (state, _), all_on = (
        ...     env.reset(),
        ...     torch.tensor([[3], [3]]),
        ... )  # both slots on, in both envs
        >>> evaluated, born = (
        ...     torch.ones(2, 1, dtype=torch.bool),
        ...     torch.zeros(2, 2, dtype=torch.bool),
        ... )
        >>> counts = mg.hosts.plan_counts(state.slots, all_on, evaluated, born, net=env.net)
        >>> (
        ...     counts.shape,
        ...     mg.hosts.read_plan(counts.tolist(), env.net).rows,
        ... )  # no seed yet: a row per env
        (torch.Size([108]), (2, 2))
    """
    tree = build_tree(slots, coalition, evaluated, net=net)
    train = training_membership(slots).group_sizes()
    evaluate = validation_membership(slots, tree, net=net).group_sizes()
    parts = (train, evaluate, born.sum(0), tree.row[1:].sum((1, 2)))
    return torch.cat([part.flatten() for part in parts]).to(torch.int32)


def read_epoch_plan(numbers: list[int], net: Net, pieces: int) -> EpochPlan:
    """Build the plans of all pieces.

    numbers: 54 S of `plan_counts` for each piece, the number of envs that have ended, the position
    of streamed data.
    """
    width = len(net.slots) * (4 * _CODES + 2)
    parts = [numbers[piece * width : (piece + 1) * width] for piece in range(pieces)]
    ended, *position = numbers[pieces * width :]
    return EpochPlan(tuple(read_plan(part, net) for part in parts), ended > 0, tuple(position))


def read_plan(numbers: list[int], net: Net) -> Plan:
    """Build the plan from the numbers of `plan_counts`, 54 S integers on the host.

    Example:
        >>> import morphogen as mg
        >>> net = mg.make("tiny", envs=2, seed=0).net
        >>> plan = mg.hosts.read_plan([0] * 104 + [1, 0] + [2, 2], net)  # no groups, births, rows
        >>> plan.births, plan.rows
        ((1, 0), (2, 2))
    """
    slots = len(net.slots)
    end = 4 * slots * _CODES
    rows = [numbers[at : at + _CODES] for at in range(0, end, _CODES)]
    train, evaluate = (
        tuple(map(_read_slot_plan, rows[at : at + slots], rows[at + slots : at + 2 * slots]))
        for at in (0, 2 * slots)
    )
    return Plan(train, evaluate, tuple(numbers[end:][:slots]), tuple(numbers[end + slots :]))


def _read_slot_plan(sizes: list[int], multiplied: list[int]) -> SlotPlan:
    groups = [BlueprintGroup(b, sizes[b], multiplied[b]) for b in COMPUTE_ORDER if sizes[b]]
    return SlotPlan(tuple(groups), sizes[GATES])


def empty_plan(envs: int, net: Net) -> Plan:
    """Return the plan of envs without seeds, for validation after a reset; it needs no counts from
    the device.

    Example:
        >>> import morphogen as mg
        >>> plan = mg.hosts.empty_plan(4, mg.make("tiny", envs=4, seed=0).net)
        >>> plan.train[0].groups, plan.rows  # one row per env after each of the two slots
        ((), (4, 4))
    """
    slots = len(net.slots)
    nothing = (SlotPlan((), 0),) * slots
    return Plan(nothing, nothing, births=(0,) * slots, rows=(envs,) * slots)
