"""The scoreboard: outcomes of seeds, counted one seed at a time."""

from collections import Counter, defaultdict
from statistics import fmean, stdev

import pytest
from support import generated_logs

from morphogen.config.host import seed_macs
from morphogen.config.task import TASKS
from morphogen.vocab.blueprint import Blueprint

WHOLE = generated_logs.events(rounds=2, envs=3, epochs=8)
SCORES = [event.data for event in WHOLE if event.name == "BlueprintScores"][-1].scores


def test_the_scoreboard_is_what_happened_to_the_seeds_one_by_one():
    found = SCORES
    seen = defaultdict(list)
    for event in WHOLE:
        if event.name in ("SeedGerminated", "SeedFossilized", "SeedPruned"):
            seen[event.data.blueprint, event.name].append(event)
    assert set(found) == {name for name, _ in seen}
    for name, score in found.items():
        born, kept, gone = (
            seen[name, kind] for kind in ("SeedGerminated", "SeedFossilized", "SeedPruned")
        )
        worth = [event.data.contribution for event in kept if event.data.contribution is not None]
        assert (score["germinated"], score["fossilized"]) == (len(born), len(kept))
        assert {why: count for why, count in score["pruned"].items() if count} == Counter(
            e.data.reason for e in gone
        )
        assert score["rolled_back"] == score["pruned"]["governor"]
        ages = [event.data.age for event in gone]
        assert score["age_pruned"] == (pytest.approx(fmean(ages), rel=1e-6) if gone else None)
        if len(worth) > 1:
            error = stdev(worth) / len(worth) ** 0.5
            assert score["contribution_error"] == pytest.approx(error, rel=1e-5)
        assert score["contribution_mean"] == (pytest.approx(fmean(worth)) if worth else None)
        assert score["churn"] == pytest.approx(len(gone) / len(born), rel=1e-6)
        assert score["params"] == pytest.approx(fmean(e.data.params for e in born), rel=1e-6)
        changes = [event.data.accuracy_change for event in [*kept, *gone]]
        assert score["accuracy_change"] == (pytest.approx(fmean(changes)) if changes else None)
        if worth:
            per_param = fmean(worth) / fmean(event.data.params for event in born)
            assert score["contribution_per_1000_params"] == pytest.approx(1000 * per_param)


def test_seeds_that_are_neither_kept_nor_gone_are_alive_at_the_end():
    episodes = [event.data for event in WHOLE if event.name == "EpisodeCompleted"]
    assert sum(score["alive"] for score in SCORES.values()) == sum(one.live for one in episodes) > 0


def test_the_cost_of_a_blueprint_is_the_mean_over_its_seeds_relative_to_the_host():
    host = TASKS["digits"].host
    host_macs = host.macs()
    assert host_macs is not None
    start = WHOLE[0].data
    assert start.macs["seeds"].keys() == {
        name for name in start.blueprints if name in host.blueprints
    }
    places = {slot.name: slot for slot in host.all_slots}
    for name, score in SCORES.items():
        kind = Blueprint[name.upper()]
        slots = [e.slot for e in WHOLE if e.name == "SeedGerminated" and e.data.blueprint == name]
        wanted = fmean(seed_macs(kind, places[slot]) for slot in slots) / host_macs
        assert score["macs_share"] == pytest.approx(wanted, rel=1e-6)
