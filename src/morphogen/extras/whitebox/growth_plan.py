"""The white-box task with regimes: accuracy by view, and the best plan by dynamic programming.

The view of a regime decides which blueprint helps.  A view stays until a new regime begins, which
draws one anew: the view of the last epoch is all that is known of the next ones.  A plan is over
the views and the codes of the slots.  It blends in the fastest way, because a seed counts from full
alpha on; it keeps no fossil, which gains nothing and cannot be pruned.
"""

from collections.abc import Sequence
from enum import IntEnum
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.extras.whitebox.formula import BASE_POINTS, GAIN_POINTS, members
from morphogen.rules.attribution import players
from morphogen.rules.counts import parameter_price
from morphogen.state.env import Instance, Slots
from morphogen.state.tree_ops import choose, computed_table, constant_table
from morphogen.vocab.blueprint import Blueprint

# The view of a regime alone decides; a seed counts from full alpha on, whenever it was germinated.
KINDS = tuple(map(int, (Blueprint.CONV_LIGHT, Blueprint.DEPTHWISE, Blueprint.CONV_HEAVY)))
# points of a host alone, for each step of the code of a view: it can be recognised
VIEW_POINTS = 5.0
FULL = 1.0 - 1e-6  # alpha from which a seed counts


class SeedStep(IntEnum):
    """Step of a seed at the end of an epoch."""

    TRAINING, STARTED, RISING, BLENDED = range(4)


EMPTY = 0  # code of a free slot; codes of a seed and of a cooling slot follow
COOLING = 1 + len(SeedStep) * len(KINDS)  # code of a slot whose seed was just pruned
CODES = COOLING + 3  # of a slot
ADVANCE = len(KINDS)
PRUNE = len(KINDS) + 1  # moves of a slot, after the germination of each kind
MOVES = PRUNE + 1  # of a slot


class PlanSpec(NamedTuple):
    """World of a plan."""

    horizon: int  # epochs
    hazard: float  # probability per epoch that a new regime begins
    views: tuple[int, ...]  # codes, each as often as its weight
    counts: tuple[tuple[int, ...], ...]  # [S][13] parameters
    param_budget: int


def seed_code(kind: int, step: SeedStep) -> int:
    """Code of a slot with a seed; `kind`: place in `KINDS`."""
    return 1 + len(SeedStep) * kind + step


BLENDED_CODES = tuple(seed_code(kind, SeedStep.BLENDED) for kind in range(len(KINDS)))


def view_accuracy(instance: Instance, slots: Slots, coalition: Tensor) -> Tensor:
    """Points of every coalition in the present regime: the points of the host, and more if
    a seed of it is the right one.

    Shapes: instance, slots [E]; coalition int64 [E, K], as in `rules.attribution` -> float32 [E,
    K].
    """
    view = instance.view_code
    right = constant_table(KINDS, torch.int64, view.device)[view]
    helps = players(slots) & (slots.alpha >= FULL) & (slots.blueprint == right.unsqueeze(-1))
    gains = members(coalition, helps).any(-1).to(torch.float32) * GAIN_POINTS
    return view_points(view).unsqueeze(-1) + gains


def view_points(view: Tensor) -> Tensor:
    """Points of a host alone in a regime.  view int64 [...] -> float32 [...]."""
    return BASE_POINTS + VIEW_POINTS * view.float()


def next_codes(slots: int) -> tuple[tuple[int, ...], ...]:
    """Configuration after an epoch, by configuration and move; -1 where the move is not legal.

    A configuration is a number of base `CODES` whose digits are the codes of the slots, the last
    slot first; move 0 waits, move 1 + s * `MOVES` + m is move m of slot s.
    """
    rows: list[tuple[int, ...]] = []
    for config in _config_codes(slots):
        waited = [_SLOT_MOVES[code][-1] for code in config]
        busy = not _BUSY.isdisjoint(config)
        row = [_number(waited)]
        for slot, move in product(range(slots), range(MOVES)):
            code = _SLOT_MOVES[config[slot]][move]
            legal = code >= 0 and not (busy and move < len(KINDS))
            row.append(_number([*waited[:slot], code, *waited[slot + 1 :]]) if legal else -1)
        rows.append(tuple(row))
    return tuple(rows)


def _number(codes: Sequence[int]) -> int:
    return sum(code * CODES**slot for slot, code in enumerate(codes))


def _slot_moves(code: int) -> tuple[int, ...]:
    """Return the code of a slot after an epoch with each move, and last without one; -1 where a
    move is not legal.
    """
    illegal = (-1,) * len(KINDS)
    if code == EMPTY:
        return *(seed_code(kind, SeedStep.TRAINING) for kind in range(len(KINDS))), -1, -1, EMPTY
    if code >= COOLING:
        return *illegal, -1, -1, EMPTY if code == CODES - 1 else code + 1
    step = SeedStep((code - 1) % len(SeedStep))
    advanced = code + 1 if step is SeedStep.TRAINING else -1
    pruned = COOLING if step in (SeedStep.TRAINING, SeedStep.BLENDED) else -1
    rises = step in (SeedStep.STARTED, SeedStep.RISING)
    return *illegal, advanced, pruned, code + rises


_SLOT_MOVES = tuple(map(_slot_moves, range(CODES)))
# of slots during which no other one germinates a seed
_BUSY = {seed_code(kind, SeedStep.TRAINING) for kind in range(len(KINDS))} | {
    *range(COOLING, CODES)
}


def _config_codes(slots: int) -> tuple[tuple[int, ...], ...]:
    """Codes of the slots in each configuration."""
    return tuple(codes[::-1] for codes in product(range(CODES), repeat=slots))


def epoch_rewards(price: Tensor, spec: PlanSpec) -> Tensor:
    """Value of an epoch that ends in each view and configuration.  price float32 [E] -> float64 [E,
    V, C].
    """
    device = price.device
    helps = computed_table(_helpful_configs, len(spec.counts), dtype=torch.bool, device=device)
    sizes = computed_table(_config_params, spec.counts, dtype=torch.int64, device=device)
    rent = parameter_price(sizes, price.double(), param_budget=spec.param_budget)
    points = (
        view_points(torch.arange(len(KINDS), device=device)).unsqueeze(-1) + GAIN_POINTS * helps
    )
    return (points - rent.unsqueeze(1)) / 100.0


def _helpful_configs(slots: int) -> tuple[tuple[bool, ...], ...]:
    """Mark the configurations in which a seed helps, by view and configuration."""
    return tuple(tuple(code in codes for codes in _config_codes(slots)) for code in BLENDED_CODES)


def _config_params(counts: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Parameters of the seeds, by configuration.  counts [S][13]."""
    return tuple(sum(map(_code_params, counts, codes)) for codes in _config_codes(len(counts)))


def _code_params(counts: tuple[int, ...], code: int) -> int:
    """Parameters that a slot with this code holds.  counts: of every blueprint in the slot."""
    return counts[KINDS[(code - 1) // len(SeedStep)]] if EMPTY < code < COOLING else 0


def view_transitions(spec: PlanSpec, device: torch.device) -> Tensor:
    """Probability of the next view, given the last one.  -> float64 [V, V]."""
    shares = tuple(spec.views.count(view) / len(spec.views) for view in range(len(KINDS)))
    stay = torch.eye(len(KINDS), dtype=torch.float64, device=device)
    return (1 - spec.hazard) * stay + spec.hazard * constant_table(shares, torch.float64, device)


def best_moves(price: Tensor, spec: PlanSpec) -> Tensor:
    """Best move of every epoch, by the view of the epoch before and the configuration, by backward
    induction.

    Shapes: price float32 [E] -> int64 [T, E, V, C].  In the first epoch the view belongs to the
    epoch itself.
    Source: Bellman, Dynamic Programming, 1957.
    """
    device = price.device
    after = computed_table(next_codes, len(spec.counts), dtype=torch.int64, device=device)
    reward = epoch_rewards(price, spec)
    change = view_transitions(spec, device)
    worth = torch.zeros_like(reward)
    moves: list[Tensor] = []
    for epoch in range(spec.horizon)[::-1]:
        ahead = reward + worth
        ahead = ahead if epoch == 0 else change @ ahead
        value = choose(after >= 0, ahead[..., after.clamp_min(0)], -torch.inf)  # [E, V, C, M]
        worth, move = value.max(-1)
        moves.append(move)
    return torch.stack(moves[::-1])


def planned_value(price: Tensor, views: Tensor, spec: PlanSpec) -> Tensor:
    """Anytime value of the best plan in a known course of views, none of which it knows ahead.

    Shapes: price float32 [E]; views int64 [T, E] -> float64 [E].
    """
    moves = best_moves(price, spec)
    reward = epoch_rewards(price, spec)
    after = computed_table(next_codes, len(spec.counts), dtype=torch.int64, device=price.device)
    env = torch.arange(len(price), device=price.device)
    config = torch.zeros_like(views[0])
    total = torch.zeros_like(reward[:, 0, 0])
    for epoch, view in enumerate(views):
        seen = views[max(epoch - 1, 0)]
        config = after[config, moves[epoch, env, seen, config]]
        total = total + reward[env, view, config]
    return total / spec.horizon
