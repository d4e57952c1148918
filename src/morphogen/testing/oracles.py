"""Rules written by hand, in plain Python: slow, obvious, without the tables of the package.

    from morphogen.testing import oracles

    assert oracles.shapley(lambda m: float(m == 3), [0, 1]) == {0: 0.5, 1: 0.5}
    assert oracles.ramp(0.0, 1.0, 4) == [0.25, 0.5, 0.75, 1.0]

Codes of shapes are plain integers, as in the state.
"""

import itertools
import math
from collections.abc import Callable, Sequence

LINEAR, COSINE, SIGMOID = range(1, 4)


def curve(t: float, shape: int = LINEAR, steepness: float = 12.0) -> float:
    """Progress at the share t of a ramp: linear, cosine, or the logistic function scaled to the
    unit square.
    """
    if shape == COSINE:
        return (1 - math.cos(math.pi * t)) / 2
    if shape == SIGMOID:
        low, high, now = (_logistic(steepness * x) for x in (-0.5, 0.5, t - 0.5))
        return (now - low) / (high - low)
    return t


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def ramp(
    start: float, target: float, ticks: int, shape: int = LINEAR, steepness: float = 12.0
) -> list[float]:
    """Alpha after each tick of a ramp; the last alpha is the target exactly."""
    along = [start + (target - start) * curve(t / ticks, shape, steepness) for t in range(1, ticks)]
    return [*along, target] if ticks else []


CoalitionValue = Callable[[int], float]  # value of a coalition; bit s: player s is a member


def shapley(value: CoalitionValue, players: Sequence[int]) -> dict[int, float]:
    """Mean marginal value of each player over all permutations."""
    share = dict.fromkeys(players, 0.0)
    orders = list(itertools.permutations(players))
    for order in orders:
        coalition = 0
        for player in order:
            share[player] += value(coalition | 1 << player) - value(coalition)
            coalition |= 1 << player
    return {player: total / len(orders) for player, total in share.items()}
