"""The monitor that counts the outcomes of the seeds of each blueprint."""

import math
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from morphogen.extras.scoreboard.score_kinds import BlueprintScore, BlueprintScores
from morphogen.log.derive import LIFE_RULES, find_places, round_columns
from morphogen.log.events import Envelope, Event, Json, tidy
from morphogen.log.kinds import epoch as kinds
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.log.round_record import RoundRecord, in_stages
from morphogen.vocab.stage import OCCUPIED, Stage

# Blueprint -> group -> numbers: seeds by slot and pruned ones by reason; count, sum and squares of
# a quantity.
Tallies = Mapping[str, Mapping[str, Mapping[str, int | float]]]
# Kind of event -> quantity -> field.
QUANTITIES: dict[type[Event], dict[str, str]] = {
    kinds.SeedGerminated: {"params": "params"},
    kinds.SeedFossilized: {
        "fossil_age": "age",
        "contribution": "contribution",
        "shapley": "shapley",
        "change": "accuracy_change",
    },
    kinds.SeedPruned: {"pruned_age": "age", "change": "accuracy_change"},
}


class Scoreboard:
    """The scoreboard of a run after each of its rounds."""

    KINDS = (BlueprintScores,)

    def __init__(self, plan: RunPlan) -> None:
        self._macs = plan.macs
        self.state: Json = {}  # `Tallies` of all rounds so far

    def end_round(self, finished: FinishedRound) -> list[Envelope]:
        """Return the scoreboard."""
        record = finished.record
        self.state = {**count_seeds(self.state, record)}
        scores = BlueprintScores(scoreboard(self.state, self._macs))
        return [Envelope(scores, round=record.round)]


def count_seeds(before: Tallies, record: RoundRecord) -> Tallies:
    """Return the tallies after a round, counted as in its events."""
    tallies = deepcopy({**before})
    columns = round_columns(record)
    for rule in LIFE_RULES:
        if rule.kind in QUANTITIES:
            places = find_places(rule, record, columns)
            for slot, row in zip(places.index[-1].tolist(), rule.rows(places), strict=True):
                _count_event(tallies, rule.kind, row, record.facts.slots[slot])
    stage = record.columns["stage"][-1]
    codes = record.columns["blueprint"][-1][
        in_stages(stage, OCCUPIED) & (stage != Stage.FOSSILIZED)
    ]
    for code, count in Counter(codes.tolist()).items():
        _add(tallies, record.facts.blueprints[code], "alive", count=count)
    return tallies


def _count_event(tallies: Any, kind: type[Event], row: Mapping[str, Any], slot: str) -> None:
    """Add one event in the life of a seed."""
    blueprint = row["blueprint"]
    if kind is kinds.SeedGerminated:
        _add(tallies, blueprint, "slots", **{slot: 1})
    if kind is kinds.SeedPruned:
        _add(tallies, blueprint, "pruned", **{row["reason"]: 1})
    for group, field in QUANTITIES[kind].items():
        number = tidy(row[field])
        if number is not None:
            _add(tallies, blueprint, group, count=1, sum=number, squares=number**2)


def _add(tallies: Any, blueprint: str, group: str, **numbers: float) -> None:
    """Add numbers to the sums of a group."""
    sums = tallies.setdefault(blueprint, {}).setdefault(group, {})
    for name, number in numbers.items():
        sums[name] = sums.get(name, 0) + number


def scoreboard(tallies: Tallies, macs: Mapping[str, Any]) -> dict[str, BlueprintScore]:
    """Return the scores of every blueprint, by name.  macs: of `RunStarted`; {} = not known."""
    seeds = macs.get("seeds", {})
    return {
        name: _blueprint_score(tallies[name], seeds.get(name, {}), macs.get("host"))
        for name in sorted(tallies)
    }


def _blueprint_score(
    tally: Mapping[str, Mapping[str, Any]], macs: Mapping[str, Any], host: float | None
) -> BlueprintScore:
    """Return the score of a blueprint.  macs: of its seeds, by slot; host: macs of the host."""

    def mean(group: str) -> float | None:
        sums = tally.get(group)
        return sums["sum"] / sums["count"] if sums else None

    def error(group: str) -> float | None:
        """Standard error of the mean; None below two numbers."""
        sums = tally.get(group, {"count": 0})
        count = sums["count"]
        if count < 2:
            return None
        variance = (sums["squares"] - sums["sum"] ** 2 / count) / (count - 1)
        return math.sqrt(max(variance, 0.0) / count)

    slots = tally.get("slots", {})
    germinated = sum(slots.values())
    removed = tally.get("pruned", {})
    macs_share = None
    if germinated and host and all(macs.get(slot) is not None for slot in slots):
        macs_share = sum(count * macs[slot] for slot, count in slots.items()) / germinated / host
    params = mean("params")
    contribution = mean("contribution")
    gain = 1000 * contribution / params if params and contribution is not None else None
    return BlueprintScore(
        germinated=germinated,
        fossilized=tally.get("fossil_age", {}).get("count", 0),
        pruned={reason: removed.get(reason, 0) for reason in kinds.REMOVALS.values()},
        alive=tally.get("alive", {}).get("count", 0),
        rolled_back=removed.get("governor", 0),
        age_fossilized=mean("fossil_age"),
        age_pruned=mean("pruned_age"),
        contribution_mean=contribution,
        contribution_error=error("contribution"),
        shapley_mean=mean("shapley"),
        shapley_error=error("shapley"),
        accuracy_change=mean("change"),
        params=params,
        macs_share=macs_share,
        contribution_per_1000_params=gain,
        churn=sum(removed.values()) / germinated if germinated else None,
    )
