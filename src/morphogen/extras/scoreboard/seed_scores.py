"""The monitor that counts the outcomes of the seeds of each blueprint."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from morphogen.extras.scoreboard.score_kinds import BlueprintScore, BlueprintScores
from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope, Json
from morphogen.log.kinds.epoch import REMOVALS
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.log.round_record import RoundRecord, in_stages
from morphogen.vocab.stage import OCCUPIED, Stage

# Blueprint -> group -> numbers: seeds by slot and pruned ones by reason; count, sum and squares of
# a quantity.
Tallies = dict[str, dict[str, dict[str, Any]]]
QUANTITIES = {  # kind of event -> quantity -> field
    "SeedGerminated": {"params": "params"},
    "SeedFossilized": {
        "fossil_age": "age",
        "contribution": "contribution",
        "shapley": "shapley",
        "change": "accuracy_change",
    },
    "SeedPruned": {"pruned_age": "age", "change": "accuracy_change"},
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
        count_seeds(self.state, record)
        macs = self._macs.get("seeds", {})
        scores = {
            name: _blueprint_score(self.state[name], macs.get(name, {}), self._macs.get("host"))
            for name in sorted(self.state)
        }
        return [Envelope(BlueprintScores(scores), round=record.round)]


def count_seeds(tallies: Tallies, record: RoundRecord) -> None:
    """Add the seeds of a round to the tallies."""
    for event in derive_events(record, QUANTITIES):
        data: Any = event.data
        if event.name == "SeedGerminated":
            _add(tallies, data.blueprint, "slots", {str(event.slot): 1})
        if event.name == "SeedPruned":
            _add(tallies, data.blueprint, "pruned", {data.reason: 1})
        for group, field in QUANTITIES[event.name].items():
            number = getattr(data, field)
            if number is not None:
                amounts = {"count": 1, "sum": number, "squares": number**2}
                _add(tallies, data.blueprint, group, amounts)
    stage = record.columns["stage"][-1]
    is_alive = in_stages(stage, OCCUPIED) & (stage != Stage.FOSSILIZED)
    codes = Counter(record.columns["blueprint"][-1][is_alive].tolist())
    for code, count in codes.items():
        _add(tallies, record.facts.blueprints[code], "alive", {"count": count})


def _add(tallies: Tallies, blueprint: str, group: str, numbers: Mapping[str, float]) -> None:
    """Add numbers to the sums of a group."""
    sums = tallies.setdefault(blueprint, {}).setdefault(group, {})
    for name, number in numbers.items():
        sums[name] = sums.get(name, 0) + number


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
        pruned={reason: removed.get(reason, 0) for reason in REMOVALS.values()},
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
