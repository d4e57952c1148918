"""Analytics: tables folded from events, wherever the log is split; scores counted one seed at a
time.
"""

import subprocess
import sys
from collections import Counter, defaultdict
from statistics import fmean, stdev

import pytest
from hypothesis import strategies as st
from support import generated_logs

from morphogen.config.host import seed_macs
from morphogen.config.task import TASKS
from morphogen.log.tables import KINDS, fold
from morphogen.log.views import VIEWS, build_views, flatten_row
from morphogen.vocab.blueprint import Blueprint


def known(events):
    return [event for event in events if event.name in KINDS]


def scores_of(events):
    return fold(known(events))["scores"][-1]["scores"]


WHOLE = generated_logs.events(rounds=2, envs=3, epochs=8)
numbers = st.floats(-1e6, 1e6).map(lambda value: float(f"{value:.7g}"))


def test_rows_stand_in_the_order_of_the_log():
    tables = fold(known(WHOLE))
    for event, table in (
        ("RoundCompleted", "rounds"),
        ("EpisodeCompleted", "episodes"),
        ("AblationsMeasured", "ablations"),
    ):
        wanted = [((one.round or 0) + 1, one.epoch, one.env) for one in WHOLE if one.name == event]
        assert [(row["round"], row.get("epoch"), row.get("env")) for row in tables[table]] == wanted


def test_the_scoreboard_is_what_happened_to_the_seeds_one_by_one():
    found = scores_of(WHOLE)
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
    scores = scores_of(WHOLE)
    episodes = [event.data for event in WHOLE if event.name == "EpisodeCompleted"]
    assert sum(score["alive"] for score in scores.values()) == sum(one.live for one in episodes) > 0


def test_the_cost_of_a_blueprint_is_the_mean_over_its_seeds_relative_to_the_host():
    tables = fold(known(WHOLE))
    host = TASKS["digits"].host
    host_macs = host.macs()
    assert host_macs is not None
    (start,) = tables["starts"]
    assert start["macs"]["seeds"].keys() == {
        name for name in start["blueprints"] if name in host.blueprints
    }
    places = {slot.name: slot for slot in host.all_slots}
    for row in build_views(tables)["blueprints"]:
        kind = Blueprint[row["blueprint"].upper()]
        slots = [
            e.slot
            for e in WHOLE
            if e.name == "SeedGerminated" and e.data.blueprint == row["blueprint"]
        ]
        wanted = fmean(seed_macs(kind, places[slot]) for slot in slots) / host_macs
        assert row["macs_share"] == pytest.approx(wanted, rel=1e-6)


def test_success_is_a_share_of_what_was_chosen():
    found = {row["op"]: row for row in build_views(fold(known(WHOLE)))["ops"]}
    counts = [event.data for event in WHOLE if event.name == "ActionCounts"]
    taken = Counter(
        op for event in WHOLE if event.name == "EpochCompleted" for op in event.data.op_effective
    )
    for op, row in found.items():
        assert row["effective"] == taken[op]
        chosen = sum(one.sampled[op] for one in counts)
        assert row["sampled"] == chosen
        assert row["success_share"] == (
            sum(one.succeeded[op] for one in counts) / chosen if chosen else None
        )


def test_verdicts_are_those_that_were_given_most_frequent_first():
    found = build_views(fold(known(WHOLE)))["verdicts"]
    given = Counter()
    for event in WHOLE:
        if event.name == "ActionCounts":
            given.update({("outcome", name): count for name, count in event.data.outcomes.items()})
            given.update({("reason", name): count for name, count in event.data.reasons.items()})
    assert {(row["what"], row["name"]): row["steps"] for row in found} == +given
    reasons = [row["steps"] for row in found if row["what"] == "reason"]
    assert reasons == sorted(reasons, reverse=True)


def test_the_front_is_of_committed_accuracy():
    tables = fold(known(WHOLE))
    rows = build_views(tables)["front"]
    assert max(row["committed_accuracy"] for row in rows) == max(
        e["committed_accuracy"] for e in tables["episodes"]
    )
    assert min(row["params_ratio"] for row in rows) == min(
        e["params_ratio"] for e in tables["episodes"]
    )


def test_tables_are_plain_and_have_the_same_columns_in_every_row():
    found = build_views(fold(known(WHOLE)))
    assert set(found) == set(VIEWS)
    for name, rows in found.items():
        assert rows, name
        assert not any(isinstance(value, dict) for row in rows for value in row.values())
        assert len({tuple(row) for row in rows}) == 1, name


def test_tables_of_nothing_are_empty_or_count_nothing():
    for name, rows in build_views(fold([])).items():
        assert not rows or name == "ops"
    assert {(row["effective"], row["sampled"]) for row in build_views(fold([]))["ops"]} == {
        (0, None)
    }


def test_flat_rows_name_what_was_inside():
    assert flatten_row({"a": {"b": {"c": 1}, "d": 2}, "e": 3}) == {"a.b.c": 1, "a.d": 2, "e": 3}
    assert flatten_row({"a": 1, "b": 2}, "b", "z") == {"b": 2, "z": None}


def test_reading_a_run_loads_no_torch():
    names = ("log.tables", "log.views", "log.run_log", "train.inspect_run")
    code = "import sys\n" + "".join(f"import morphogen.{name}\n" for name in names)
    code += "print(sorted({'torch', 'tensordict', 'torchrl', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == [b"[]"]
