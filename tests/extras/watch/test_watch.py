"""The command `watch`: a table of the rounds of a run, while the log grows, is cut or is of an
earlier format.
"""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import generated_logs

from morphogen.cli import main
from morphogen.errors import ConfigError, DataError
from morphogen.extras.watch.rounds_table import draw, watch
from morphogen.log.events import Envelope
from morphogen.log.kinds.run import RunResumed

LOGS = Path(__file__).parents[2] / "golden/data/logs"
SMALL = {"rounds": 3, "envs": 2, "epochs": 4}


@pytest.fixture
def run(tmp_path):
    return generated_logs.write(tmp_path / "run", **SMALL)


class Terminal(io.StringIO):
    """A terminal as wide as the table."""

    def isatty(self):
        return True


def shown(path, **more):
    out = io.StringIO()
    watch(path, out=out, **{"once": True, **more})
    return out.getvalue()


def rounds_of(text):
    """Numbers in the first column of the table."""
    return [
        int(words[0])
        for line in text.splitlines()
        if (words := line.split()) and words[0].isdigit()
    ]


def test_a_run_is_a_row_per_round_and_its_status(run):
    text = shown(run)
    assert rounds_of(text) == [1, 2, 3]
    assert "completed, 3 of 3 rounds" in text
    summary = next(
        event.data for event in generated_logs.events(**SMALL) if event.name == "RoundCompleted"
    )
    assert f"{summary.accuracy_mean:.1f}" in text


@pytest.mark.parametrize(("name", "rounds"), [("ppo-debug", 4), ("two-ranks", 1)])
def test_a_log_of_before_is_shown(name, rounds):
    assert rounds_of(shown(LOGS / name)) == [*range(1, rounds + 1)]


def test_a_folder_in_which_no_run_has_begun_yet_is_waited_for(tmp_path):
    begun = tmp_path / "run"
    begun.mkdir()
    assert "not started, 0 of 0 rounds" in shown(begun)
    source = generated_logs.write(tmp_path / "source", **SMALL)

    def begin(seconds):
        shutil.copytree(source, begun, dirs_exist_ok=True)

    assert rounds_of(shown(begun, once=False, wait=begin)) == [1, 2, 3]


def test_the_table_of_a_terminal_follows_a_log_that_grows_and_is_cut(run):
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    third = len(lines) // 3
    parts = [lines[:third], lines[: 2 * third], lines[:third], lines]
    (run / "events.jsonl").write_text("".join(parts.pop(0)))
    terminal = Terminal()
    watch(
        run,
        out=terminal,
        wait=lambda seconds: (run / "events.jsonl").write_text("".join(parts.pop(0))),
    )
    assert parts == []
    assert "completed, 3 of 3 rounds" in terminal.getvalue()


def test_the_last_rounds_are_shown_where_all_do_not_fit():
    table, is_over = draw(generated_logs.events(**SMALL, ended=False), "run", 2)
    assert (table.row_count, is_over) == (2, False)


def test_a_resumed_run_has_its_new_number_of_rounds():
    resumed = Envelope(RunResumed(checkpoint="c", cut_bytes=0, skipped=(), rounds=9))
    table, is_over = draw([*generated_logs.events(**SMALL), resumed], "run")
    assert (str(table.caption), is_over) == ("running, 3 of 9 rounds", False)


def test_watching_ends_when_nobody_reads(run):
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(lines[:5]))
    looks = []
    watch(run, out=io.StringIO(), wait=looks.append, is_over=lambda: len(looks) == 3)
    assert len(looks) == 3


def test_a_path_that_is_no_run_is_refused_with_exit_code_2(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "file"):
        assert main.main(["watch", str(path)]) == 2
    assert capsys.readouterr().err.count("is not a run directory") == 3


def test_a_run_without_a_log_is_refused(run):
    config = json.loads((run / "config.json").read_text())
    config["telemetry"]["level"] = "off"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ConfigError, match=r"expected a run with telemetry.level normal, got .* with off"
    ):
        watch(run, once=True)


def test_a_damaged_log_is_named(run):
    with (run / "events.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(DataError, match=r"events.jsonl is damaged in line"):
        watch(run, once=True)


def test_events_outside_of_the_run_directory_are_named(run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["telemetry"]["dir"] = str(tmp_path / "else")
    (run / "config.json").write_text(json.dumps(config))
    (tmp_path / "else").mkdir()
    (run / "events.jsonl").rename(tmp_path / "else/events.jsonl")
    text = shown(run)
    assert f"events are read from {tmp_path / 'else/events.jsonl'}" in text
    assert rounds_of(text) == [1, 2, 3]


def test_the_command_is_found_by_its_entry_point_and_loads_no_torch(run):
    code = "import sys\nfrom morphogen.cli import main as cli\nassert cli.main(sys.argv[1:]) == 0\n"
    code += "assert not {'torch', 'tensordict', 'matplotlib'} & set(sys.modules)"
    words = [sys.executable, "-c", code, "watch", "--once", str(run)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert rounds_of(done.stdout) == [1, 2, 3]
