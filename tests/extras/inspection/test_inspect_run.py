"""Output of `morphogen inspect` for a run directory and for a checkpoint."""

import json
import shutil
import subprocess
import sys

import pytest
from support import generated_logs
from support.extras import needs_extra
from support.made_up_checkpoints import made_up

import morphogen as mg
from morphogen.cli import main
from morphogen.config.fields import to_settings
from morphogen.config.spec import RunSpec
from morphogen.extras.inspection.inspect_run import MAX_ROWS, TABLE_COLUMNS, inspect_path, tables
from morphogen.extras.inspection.views import VIEWS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return generated_logs.write(
        tmp_path_factory.mktemp("runs") / "first", rounds=12, envs=2, epochs=4
    )


def test_a_run_is_told_in_a_few_facts(run):
    facts = inspect_path(run).facts
    assert facts["run"] == "first"
    assert facts["task"] == "digits"
    assert (facts["policy"], facts["reward rule"]) == ("ppo", "delta")
    assert [facts[name] for name in ("rounds", "envs", "episode_length")] == ["12", "2", "4"]
    assert facts["status"] == "completed, 12 rounds done"
    assert "classes 4 to 10" in facts["instances"]
    assert facts["wall time"] == "12:34"
    best = max(tables(run)["rounds"], key=lambda row: row["committed_mean"])
    assert facts["best round"] == str(best["round"])


def test_a_run_that_has_just_begun_has_facts_too(tmp_path):
    begun = generated_logs.write(
        tmp_path / "run", generated_logs.events(rounds=1, envs=1, epochs=2)[:1]
    )
    facts = inspect_path(begun).facts
    assert facts["status"] == "running, 0 rounds done"
    assert (facts["best round"], facts["held-out accuracy"]) == ("not known", "not evaluated")
    (begun / "events.jsonl").unlink()
    (begun / "manifest.json").unlink()
    assert inspect_path(begun).facts["seed"] == "0"


def test_a_run_without_events_says_so_and_counts_no_rounds(tmp_path):
    silent = generated_logs.write(tmp_path / "run", rounds=2, envs=1, epochs=2)
    config = json.loads((silent / "config.json").read_text())
    config["telemetry"]["level"] = "off"
    (silent / "config.json").write_text(json.dumps(config))
    (silent / "events.jsonl").unlink()
    facts = inspect_path(silent).facts
    assert facts["status"] == "completed"
    assert (
        facts["events"] == "none, because telemetry.level is off: no table or picture of the rounds"
    )


def test_long_tables_are_cut_to_the_latest_rows(run):
    found = inspect_path(run).tables
    assert set(TABLE_COLUMNS) <= set(VIEWS)
    rounds = found[f"rounds, the last {MAX_ROWS} of 12"]
    assert [row["round"] for row in rounds] == list(range(3, 13))
    headings = {heading.format(score="accuracy") for heading in TABLE_COLUMNS["rounds"]}
    assert all(set(row) == headings for row in rounds)


@needs_extra("scoreboard")
@needs_extra("statistics")
def test_every_column_that_is_shown_exists(run):
    for name, columns in TABLE_COLUMNS.items():
        assert set(columns.values()) <= set(tables(run)[name][0]), name


def test_tables_of_a_run_are_at_hand_in_python(run):
    found = mg.tables(run)
    assert len(found["episodes"]) == 24
    assert found["rounds"][3]["round"] == 4
    assert json.loads(json.dumps(found)) is not None


def test_the_command_prints_the_tables_and_loads_no_torch(run):
    code = "import sys\nfrom morphogen.cli import main as cli\nassert cli.main(sys.argv[1:]) == 0\n"
    code += "assert not {'torch', 'tensordict', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(run)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for heading in (
        "completed, 12 rounds done",
        "rounds, the last 10 of 12",
        "took effect",
    ):
        assert heading in done.stdout
    assert "…" not in done.stdout


def test_a_checkpoint_says_where_it_stands_and_whether_it_is_whole(tmp_path, capsys):
    config = to_settings(RunSpec(rounds=7))
    path = made_up(3, run_id="x7", config=config).save(tmp_path)
    assert main.main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    for text in (
        "round-000003-epoch-0000",
        "every file is as it was saved",
        "x7",
        "rounds",
    ):
        assert text in shown
    assert "episode_length" not in shown
    (path / "state.safetensors").write_bytes(b"")
    assert main.main(["inspect", str(path)]) == 0
    assert "is damaged: state.safetensors has 0 bytes" in capsys.readouterr().out
    (path / "manifest.json").write_text("{}")
    assert main.main(["inspect", str(path)]) == 4
    assert "has format null: expected" in capsys.readouterr().err


def test_what_is_neither_is_refused(run, tmp_path, capsys):
    assert main.main(["inspect", str(tmp_path / "nowhere")]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (other / "config.json").write_text("[")
    assert main.main(["inspect", str(other)]) == 3
    assert "config.json is damaged" in capsys.readouterr().err


def test_a_document_has_the_facts_and_all_rows(run, capsys):
    assert main.main(["inspect", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["policy"] == "ppo"
    assert [row["round"] for row in found["tables"]["rounds"]] == list(range(1, 13))
