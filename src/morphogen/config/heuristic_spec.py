"""Thresholds of the hand-written rules: when a seed is germinated, which one, and when it is pruned
or kept.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from morphogen.config.fields import Count, Names, Natural, NonNegative, Null, Spec, option, spec
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
        morphogen.errors.ConfigError: heuristic.patience: expected an integer >= 1 and < 2^63, got 0
    """

    PATH: ClassVar[str] = "heuristic"

    blueprints: Annotated[tuple[str, ...], Names(among=BLUEPRINTS, ranked=True)] = option(
        default=(),
        text="kinds of seeds in order of preference; none named = all that the run allows, the "
        "largest first",
    )
    slots: Annotated[tuple[str, ...], Names()] = option(
        default=(),
        text="slots in order of preference, in which alone seeds are germinated; none named = "
        "all, in order",
    )
    max_cost: NonNegative = option(
        default=0.1,
        text="price of all seeds together, as a share of 1, above which no seed is germinated",
    )
    max_seeds: Natural = option(
        default=0, text="seeds of a host from which on no other is germinated; 0 = no limit"
    )
    first_epoch: Natural = option(default=5, text="epoch of the first germination")
    min_plateau: Natural = option(
        default=3, text="epochs on a plateau after which a seed is germinated"
    )
    min_fall: Annotated[NonNegative | None, Null("never")] = option(
        default=None, text="points of accuracy below its best from which a host gets a seed at once"
    )
    min_loss: Annotated[NonNegative | None, Null("no limit")] = option(
        default=None, text="training loss, in nats, below which no seed is germinated"
    )
    min_worth: Annotated[float, Field(ge=-100, le=100)] = option(
        default=0.5,
        text="points of contribution less price from which a seed is kept, and below which it is "
        "pruned",
    )
    patience: Count = option(
        default=5, text="consecutive measurements below min_worth after which a seed is pruned"
    )
