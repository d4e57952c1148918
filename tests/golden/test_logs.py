"""Logs of earlier runs: the rows that they give, and the rows of a run of the same settings today.

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
# Kinds with readings of a clock, or with facts of the process.
CLOCKED = {"Throughput", "PhaseProfile", "RunStarted", "RunCompleted", "CheckpointSaved"}
RETIRED = {"TelemetryEscalated", "HostGradients"}  # kinds that are gone
CLOCKED_FIELDS = ("seconds", "env_epochs_per_s", "update_s", "graphs")
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
SMALL = {
    "preset": "smoke",
    "envs": 4,
    "episode_length": 6,
    "rounds": 2,
    "final_episodes": 2,
    "data": {"batch": 8, "minibatches": 2, "val_samples": 32},
    "lifecycle": {"min_training_epochs": 1, "min_prune_age": 1, "embargo_epochs": 1},
    "policy": {"hidden": 16},
    "ppo": {"epochs": 2, "minibatches": 2},
    "evaluation": {"every_rounds": 2, "episodes": 2},
    "engine": {"threads": 1},
}
SETTINGS = {
    "whitebox-debug": {
        "preset": "whitebox",
        "rounds": 2,
        "envs": 4,
        "episode_length": 8,
        "policy_name": "random",
        "final_episodes": 2,
        "telemetry": {"level": "normal"},
    },
    "random-broken": {
        **SMALL,
        "policy_name": "random",
        "host": {"lr": 10.0, "max_grad_norm": None, "seed_lr": 10.0},
        "governor": {"panics": 2},
    },
    "heuristic-normal": {
        **SMALL,
        "policy_name": "heuristic",
        "heuristic": {"first_epoch": 0, "min_plateau": 0, "patience": 1},
        "regime": {"hazard": 0.4, "least": 2, "views": {"inverted": 1, "half": 1}},
    },
}


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


def comparable(rows):
    """Numbers of rows without readings of a clock, in order, by the rest of the row."""
    found = {}
    for row in rows:
        if row[0] not in CLOCKED:
            numbers = []
            form = json.dumps([*row[:-1], _form(row[-1], numbers)], sort_keys=True)
            found.setdefault(form, []).append(numbers)
    return found


def _form(value, numbers):
    """A value without its numbers, which are added to a list."""
    if isinstance(value, dict):
        kept = sorted(value.keys() - CLOCKED_FIELDS)
        return {name: _form(value[name], numbers) for name in kept}
    if isinstance(value, list):
        return [_form(inner, numbers) for inner in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    numbers.append(value)
    return "number"


def near(numbers):
    """Numbers up to the last digits, in which processors differ."""
    return pytest.approx(numbers, rel=1e-3, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_of_the_same_settings_has_the_rows_of_before_and_more_detail(name, tmp_path):
    mg.train_ppo_vectorized(mg.RunSpec(**SETTINGS[name]), out=tmp_path / "run")
    now, before = comparable(rows_of(tmp_path / "run")), comparable(recorded(name))
    assert name != "whitebox-debug" or now.keys() == before.keys()
    for form, rows in before.items():
        assert len(now[form]) == len(rows), form
        for found, wanted in zip(now[form], rows, strict=True):
            assert found == near(wanted), form
