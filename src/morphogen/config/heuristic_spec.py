"""Thresholds of the hand-written rules: when a seed is germinated, which one, and when it is pruned
or kept.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from morphogen.config.fields import (
    Count,
    Names,
    Natural,
    NonNegative,
    Spec,
    spec,
)
from morphogen.config.parts import BLUEPRINTS


@spec
class HeuristicSpec(Spec):
    """Thresholds of the policy `heuristic`.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.HeuristicSpec(max_cost=0.05).max_cost
        0.05
        >>> mg.HeuristicSpec(patience=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: heuristic.patience: expected a number
            greater than or equal to 1, got 0
    """

    PATH: ClassVar[str] = "heuristic"

    blueprints: Annotated[tuple[str, ...], Names(among=BLUEPRINTS, ranked=True)] = ()
    """kinds of seeds in order of preference; none named = all that the run allows, the largest
    first
    """
    slots: Annotated[tuple[str, ...], Names()] = ()
    """slots in order of preference, in which alone seeds are germinated; none named = all, in
    order
    """
    max_cost: NonNegative = 0.1
    """price of all seeds together, as a share of 1, above which no seed is germinated"""
    max_seeds: Natural = 0
    """seeds of a host from which on no other is germinated; 0 = no limit"""
    first_epoch: Natural = 5
    """epoch of the first germination"""
    min_plateau: Natural = 3
    """epochs on a plateau after which a seed is germinated"""
    min_fall: NonNegative | None = None
    """points of accuracy below its best from which a host gets a seed at once; null = never"""
    min_loss: NonNegative | None = None
    """training loss, in nats, below which no seed is germinated; null = no limit"""
    min_worth: Annotated[float, Field(ge=-100, le=100)] = 0.5
    """points of contribution less price from which a seed is kept, and below which it is pruned"""
    patience: Count = 5
    """consecutive measurements below min_worth after which a seed is pruned"""
