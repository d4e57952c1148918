"""Analytics: tables folded from events, wherever the log is split."""

import subprocess
import sys
from collections import Counter

from hypothesis import strategies as st
from support import generated_logs
from support.extras import needs_extra

from morphogen.extras.inspection.run_reader import TABLES, fold
from morphogen.extras.inspection.views import VIEWS, build_views, flatten_row


def known(events):
    return [event for event in events if event.name in TABLES]


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


@needs_extra("statistics")
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


def test_the_front_is_of_committed_accuracy():
    tables = fold(known(WHOLE))
    rows = build_views(tables)["front"]
    assert max(row["committed_accuracy"] for row in rows) == max(
        e["committed_accuracy"] for e in tables["episodes"]
    )
    assert min(row["params_ratio"] for row in rows) == min(
        e["params_ratio"] for e in tables["episodes"]
    )


@needs_extra("scoreboard")
@needs_extra("statistics")
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
    names = ("views", "run_reader", "inspect_run")
    code = "import sys\n" + "".join(
        f"import morphogen.extras.inspection.{name}\n" for name in names
    )
    code += "print(sorted({'torch', 'tensordict', 'torchrl', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == [b"[]"]
