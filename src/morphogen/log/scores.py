"""Outcomes of the seeds of each blueprint, counted from the records of rounds.

Sums are exact, so that the tallies of two parts of a log add up to the tally of the whole, wherever
it is split.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, Self

import numpy as np

from morphogen.log.codec import Array, Ratio
from morphogen.log.events import tidy
from morphogen.log.kinds.epoch import REMOVALS
from morphogen.log.kinds.round import BlueprintScore
from morphogen.log.round_record import (
    STAGE_POINTS,
    RoundRecord,
    history_before,
    in_stages,
    slot_history,
)
from morphogen.vocab.stage import OCCUPIED, Stage


@dataclass(frozen=True, slots=True)
class ExactSums:
    """Count, sum and sum of squares of numbers, without rounding."""

    count: int = 0
    total: Ratio = Fraction()
    squares: Ratio = Fraction()

    @classmethod
    def from_values(cls, values: Iterable[float | None]) -> Self:
        """Sums of numbers; None is left out."""
        ratios = [value.as_integer_ratio() for value in values if value is not None]
        if not ratios:
            return cls()
        whole = max(below for _, below in ratios)  # all are powers of 2
        shares = [above * (whole // below) for above, below in ratios]
        return cls(
            len(ratios),
            Fraction(sum(shares), whole),
            Fraction(sum(n * n for n in shares), whole**2),
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    @property
    def mean(self) -> float | None:
        """The mean; None without a number."""
        return float(self.total / self.count) if self.count else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None below two numbers."""
        if self.count < 2:
            return None
        variance = (self.squares - self.total**2 / self.count) / (self.count - 1)
        return math.sqrt(variance / self.count)


@dataclass(frozen=True, slots=True)
class BlueprintTally:
    """The seeds of one blueprint."""

    slots: Counter[str] = field(default_factory=Counter)  # germinated in each
    pruned: Counter[str] = field(default_factory=Counter)  # by reason
    alive: int = 0  # at the end of an episode, not fossilized
    params: ExactSums = ExactSums()  # at germination
    fossil_age: ExactSums = ExactSums()  # epochs
    pruned_age: ExactSums = ExactSums()
    contribution: ExactSums = ExactSums()  # at fossilization, points
    shapley: ExactSums = ExactSums()
    change: ExactSums = ExactSums()  # of accuracy from germination to the end, points

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, item.name) + getattr(other, item.name) for item in fields(self))
        )


def round_tallies(record: RoundRecord) -> dict[str, BlueprintTally]:
    """Return the tallies of blueprints from the record of a round, as in its events."""
    columns = record.columns
    memory = history_before(slot_history(record.columns))
    names = record.facts.blueprints
    slots = np.array(record.facts.slots)
    parts = list[dict[str, BlueprintTally]]()
    with np.errstate(invalid="ignore"):  # numbers that are not finite do not count
        change = (
            columns["acc_before"][..., None].astype(np.float64) - memory["germination_accuracy"]
        )
    age = np.where(columns["stage_before"] != Stage.DORMANT, memory["age"], 0)
    for reason, (start, end) in zip(REMOVALS.values(), pairwise(STAGE_POINTS), strict=True):
        moved = columns[start] != columns[end]
        to = columns[end]
        for code in np.unique(columns["blueprint"][moved]).tolist():
            of_kind = moved & (columns["blueprint"] == code)
            born, kept, gone = (
                of_kind & (to == stage)
                for stage in (Stage.GERMINATED, Stage.FOSSILIZED, Stage.PRUNED)
            )
            measured = kept & memory["contribution_valid"]
            tally = BlueprintTally(
                slots=Counter(slots[np.nonzero(born)[2]].tolist()),
                pruned=Counter([reason] * int(gone.sum())),
                params=_exact(columns["params"][born]),
                fossil_age=_exact(age[kept]),
                pruned_age=_exact(age[gone]),
                contribution=_exact(memory["contribution"][measured]),
                shapley=_exact(memory["shapley"][measured]),
                change=_exact(change[kept | gone]),
            )
            parts += [{names[code]: tally}] if tally != BlueprintTally() else []
    stage = columns["stage"][-1]
    blueprint = columns["blueprint"][-1]
    live = blueprint[in_stages(stage, OCCUPIED) & (stage != Stage.FOSSILIZED)]
    parts += [
        {names[code]: BlueprintTally(alive=count)} for code, count in Counter(live.tolist()).items()
    ]
    return reduce(add_tallies, parts, {})


def _exact(values: Array) -> ExactSums:
    """Sums of numbers as events hold them."""
    return ExactSums.from_values(tidy(values))


def add_tallies(
    one: Mapping[str, BlueprintTally], other: Mapping[str, BlueprintTally]
) -> dict[str, BlueprintTally]:
    """Both together, blueprint by blueprint; what the other lacks is not added again."""
    return {
        **one,
        **{name: one.get(name, BlueprintTally()) + tally for name, tally in other.items()},
    }


def scoreboard(
    tallies: Mapping[str, BlueprintTally], macs: Mapping[str, Any]
) -> dict[str, BlueprintScore]:
    """The scores of every blueprint, by name.  macs: of `RunStarted`; {} = not known."""
    return {name: _blueprint_score(name, tallies[name], macs) for name in sorted(tallies)}


def _blueprint_score(name: str, tally: BlueprintTally, macs: Mapping[str, Any]) -> BlueprintScore:
    germinated = tally.slots.total()
    pruned = tally.pruned.total()
    macs_share = None
    by_slot = macs.get("seeds", {}).get(name, {})
    if (
        germinated
        and macs.get("host")
        and all(by_slot.get(slot) is not None for slot in tally.slots)
    ):
        macs_share = (
            sum(count * by_slot[slot] for slot, count in tally.slots.items())
            / germinated
            / macs["host"]
        )
    params = tally.params.mean
    contribution = tally.contribution.mean
    return BlueprintScore(
        germinated=germinated,
        fossilized=tally.fossil_age.count,
        pruned={reason: tally.pruned[reason] for reason in REMOVALS.values()},
        alive=tally.alive,
        rolled_back=tally.pruned["governor"],
        age_fossilized=tally.fossil_age.mean,
        age_pruned=tally.pruned_age.mean,
        contribution_mean=contribution,
        contribution_error=tally.contribution.error,
        shapley_mean=tally.shapley.mean,
        shapley_error=tally.shapley.error,
        accuracy_change=tally.change.mean,
        params=params,
        macs_share=macs_share,
        contribution_per_1000_params=1000 * contribution / params
        if params and contribution is not None
        else None,
        churn=pruned / germinated if germinated else None,
    )
