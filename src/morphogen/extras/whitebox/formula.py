"""The white-box task: accuracy as a function of the observation, and the optimal value of an
instance.
"""

import torch
from torch import Tensor

from morphogen.rules.attribution import players
from morphogen.rules.counts import parameter_price
from morphogen.state.env import Instance, Slots
from morphogen.state.tree_ops import choose, constant_table
from morphogen.vocab.blueprint import Blueprint

BASE_POINTS = 20.0  # points of a host alone
# that the right blueprint adds at full alpha, if it was germinated as soon as its host was ripe
GAIN_POINTS = 60.0
DELAY_PENALTY = 0.05  # share of it that is lost per epoch of delay
MATURITY_EPOCHS = 10  # epochs until a host is ripe, per label noise of 1
# The right blueprint for hosts up to a width; they differ in size, so that one price does not suit
# all.
BEST_BLUEPRINT: tuple[tuple[float, Blueprint], ...] = (
    (0.5, Blueprint.CONV_LIGHT),
    (0.75, Blueprint.CONV_HEAVY),
    (1.0, Blueprint.BOTTLENECK),
)
_WIDTH_ENDS = tuple(end for end, _ in BEST_BLUEPRINT[:-1])
_BLUEPRINT_CODES = tuple(int(blueprint) for _, blueprint in BEST_BLUEPRINT)


def best_blueprint(width: Tensor) -> Tensor:
    """Best blueprint for a host of this width.  float32 [...], share -> int64 [...], a
    `Blueprint`.
    """
    place = torch.bucketize(
        width.contiguous(), constant_table(_WIDTH_ENDS, torch.float32, width.device)
    )
    return constant_table(_BLUEPRINT_CODES, torch.int64, width.device)[place]


def first_useful_epoch(label_noise: Tensor) -> Tensor:
    """First epoch from which a germinated seed gains accuracy.  float32 [...] -> int64 [...]."""
    return (label_noise * MATURITY_EPOCHS).round().to(torch.int64)


def seed_gain(width: Tensor, label_noise: Tensor, blueprint: Tensor, birth_epoch: Tensor) -> Tensor:
    """Gain of a seed at full alpha, in points.

    Shapes: width, label_noise float32 [E] (shares), blueprint and birth_epoch int64 [E, N] (a
    `Blueprint`, the epoch of germination) -> float32 [E, N].
    Promise: 0 for a wrong blueprint or an early birth; otherwise a later birth never gains more.
    """
    delay = (birth_epoch - first_useful_epoch(label_noise).unsqueeze(-1)).to(width.dtype)
    fits = (blueprint == best_blueprint(width).unsqueeze(-1)) & (delay >= 0)
    return choose(fits, GAIN_POINTS * (1.0 - DELAY_PENALTY * delay).clamp(min=0.0), 0.0)


def coalition_accuracy(
    instance: Instance, slots: Slots, epoch: Tensor, coalition: Tensor
) -> Tensor:
    """Points of every coalition: the points of the host plus the points of its best seed; further
    seeds add nothing.

    Shapes: instance, slots [E]; epoch int64 [E], the present one; coalition int64 [E, K], as in
    `rules.attribution` -> float32 [E, K].
    """
    born = epoch.unsqueeze(-1) - slots.age
    gain = slots.alpha * seed_gain(instance.width, instance.label_noise, slots.blueprint, born)
    on = members(coalition, players(slots))
    return BASE_POINTS + choose(on, gain.unsqueeze(1), 0.0).amax(-1)


def members(coalition: Tensor, able: Tensor) -> Tensor:
    """Seeds of each coalition that are able to help.  coalition int64 [E, K], able bool [E, S] ->
    bool [E, K, S].
    """
    place = torch.arange(able.shape[-1], device=able.device)
    return (coalition.unsqueeze(-1) >> place & 1).bool() & able.unsqueeze(1)


def optimal_value(
    instance: Instance,
    *,
    counts: tuple[tuple[int, ...], ...],
    blueprints: tuple[int, ...],
    last: int,
    param_budget: int,
) -> Tensor:
    """The largest network value of any plan: no seed, or one of any kind, in any slot, germinated
    at any time.

    `counts` [S][13], parameters; `last`: the last epoch from which a germinated seed can still be
    kept.
    Shapes: instance [E] -> float32 [E], a share of 1.
    """
    width = instance.width
    noise = instance.label_noise
    alone = torch.full_like(width.unsqueeze(-1), BASE_POINTS)
    plans = [
        (kind, born, row[kind]) for row in counts for kind in blueprints for born in range(last + 1)
    ]
    if not plans:
        return alone.squeeze(-1) / 100.0
    kinds, births, sizes = constant_table(
        tuple(zip(*plans, strict=True)), torch.int64, width.device
    )
    envs = width.shape[0]
    grown = seed_gain(width, noise, kinds.expand(envs, -1), births.expand(envs, -1))
    gain = (
        BASE_POINTS
        + grown
        - parameter_price(sizes, instance.param_price, param_budget=param_budget)
    )
    return torch.cat((alone, gain), dim=-1).amax(-1) / 100.0
