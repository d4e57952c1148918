"""Tallies of seeds counted from events, one by one: what a run counts from its records has to equal
them.
"""

from collections import Counter
from functools import reduce

from morphogen.log.kinds.epoch import EpisodeCompleted, SeedFossilized, SeedGerminated, SeedPruned
from morphogen.log.scores import BlueprintTally, ExactSums, add_tallies
from morphogen.vocab.stage import Stage

SUMS = {  # kind of event -> tally -> field
    SeedGerminated: {"params": "params"},
    SeedFossilized: {
        "fossil_age": "age",
        "contribution": "contribution",
        "shapley": "shapley",
        "change": "accuracy_change",
    },
    SeedPruned: {"pruned_age": "age", "change": "accuracy_change"},
}


def event_tallies(event):
    """The tallies of blueprints from one event."""
    data = event.data
    if isinstance(data, EpisodeCompleted):
        live = Counter(
            seed["blueprint"] for seed in data.topology if seed["stage"] != Stage.FOSSILIZED.name
        )
        return {name: BlueprintTally(alive=count) for name, count in live.items()}
    if type(data) not in SUMS:
        return {}
    slots = Counter([event.slot] if isinstance(data, SeedGerminated) else [])
    pruned = Counter([data.reason] if isinstance(data, SeedPruned) else [])
    sums = {
        name: ExactSums.from_values([getattr(data, field)])
        for name, field in SUMS[type(data)].items()
    }
    return {data.blueprint: BlueprintTally(slots=slots, pruned=pruned, **sums)}


def tallies_of(events):
    """The tallies of blueprints from many events."""
    return reduce(add_tallies, map(event_tallies, events), {})
