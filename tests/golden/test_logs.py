"""Logs of earlier runs: the rows that they give today.

`data/logs` holds logs, and next to each, as `NAME.json.xz`, the rows that `morphogen.events` gave
when its run was over.  The logs were brought to the present format with all that they held.  Three
of them lack columns, and are compared by the kinds of rows that they have.
"""

import json
import lzma
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest
from support.extras import has_extra

import morphogen as mg
from morphogen.cli.main import main
from morphogen.log.jsonl import event_kinds

LOGS = Path(__file__).parent / "data/logs"
NAMES = sorted(path.name for path in LOGS.iterdir() if path.is_dir())
PARTIAL = {"heuristic-normal", "stopped", "wait-minimal"}
FULL = sorted({*NAMES} - PARTIAL)
RETIRED = {"TelemetryEscalated", "HostGradients"}  # kinds that are gone
pytestmark = pytest.mark.skipif(
    not all(
        map(
            has_extra,
            (
                "alarms",
                "details",
                "inspection",
                "regimes",
                "scoreboard",
                "statistics",
            ),
        )
    ),
    reason="the logs hold events of extras",
)


def rows_of(path, kinds=None):
    """The events of a run as rows of plain values."""
    places = attrgetter("name", "severity", "round", "epoch", "env", "episode", "slot")
    rows = [[*places(event), event.data.payload()] for event in mg.events(path, kinds=kinds)]
    for row in rows:
        if row[0] == "HeldOutPlayed":
            del row[-1]["score"], row[-1]["params"]  # fields that are younger than the logs
    return json.loads(json.dumps(rows))


def recorded(name):
    with lzma.open(LOGS / f"{name}.json.xz", "rt") as file:
        rows = [row for row in json.load(file) if row[0] not in RETIRED]
    for row in rows:
        if row[0] == "PhaseBegan":  # today's name, with its field
            row[0] = "RegimeBegan"
            row[-1]["regime"] = row[-1].pop("phase")
        if row[0] == "EpisodeCompleted":
            del row[-1]["slot_rewards"]  # a field that is gone
    # a round that is not over has no record today
    over = {row[2] for row in rows if row[0] == "RoundCompleted"}
    return [row for row in rows if row[3] is None or row[2] in over]


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_before_gives_its_rows(name):
    wanted = recorded(name)
    kinds = {row[0] for row in wanted} if name in PARTIAL else None
    rows = rows_of(LOGS / name, kinds)
    if name in PARTIAL:  # these kept the ablations of the last of their six epochs
        rows = [row for row in rows if row[0] != "AblationsMeasured" or row[3] == 5]
    assert rows == wanted


def test_the_logs_hold_every_kind_that_a_run_on_a_cpu_can_have():
    found = {row[0] for name in NAMES for row in recorded(name)}
    assert set(event_kinds()) - found == {"MemoryUsed", "CheckpointFailed", "NetworksFailed"}


@pytest.mark.parametrize("name", FULL)
def test_a_log_of_before_is_inspected_and_has_its_tables(name, capsys):
    rows = Counter(row[0] for row in recorded(name))
    tables = mg.tables(LOGS / name)
    counts = {"rounds": "RoundCompleted", "episodes": "EpisodeCompleted", "rollbacks": "RolledBack"}
    assert {table: len(tables[table]) for table in counts} == {
        table: rows[kind] for table, kind in counts.items()
    }
    assert main(["inspect", str(LOGS / name)]) == 0
    assert f"{rows['RoundCompleted']} rounds done" in capsys.readouterr().out
