"""Run directories of somebody else: nothing in them is followed or written through a link, or names
a place outside.
"""

import os
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
from support.extras import CSV, needs_extra
from support.small_runs import tiny

from morphogen.cli.command_table import list_commands
from morphogen.cli.main import main
from morphogen.config import files
from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.execution_spec import CheckpointSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError, ConfigError
from morphogen.log.log_file import LogFile
from morphogen.log.run_log import read_rounds
from morphogen.train.train import resume, train_ppo_vectorized

PATIENCE_S = 60
CHECKPOINT = "checkpoints/round-000002-epoch-0000"
READ = (
    "config.json",
    "manifest.json",
    "events.jsonl",
    f"{CHECKPOINT}/manifest.json",
    f"{CHECKPOINT}/state.safetensors",
)
WRITTEN = (
    "policy.safetensors",
    "result.json",
    "evaluation.json",
    *("metrics/csv/round.csv" for _ in CSV),
    "report/index.html",
)
FOLDERS = ("metrics", *("metrics/csv" for _ in CSV), "report", "checkpoints", CHECKPOINT)
ENTRIES = (*READ, *WRITTEN, "lock", *FOLDERS)
COMMANDS = {
    "inspect": "inspect {run}",
    "watch": "watch --once {run}",
    "report": "report {run}",
    "evaluate": "evaluate {run} --episodes 2 --arms wait",
    "resume": "resume {run} --extend-rounds 1 --quiet",
    "branch": "resume {run} --checkpoint round-000002-epoch-0000 --out {run}-branch --quiet",
    "compare": "compare {run} {other} --episodes 2",
}
COMMANDS = {name: words for name, words in COMMANDS.items() if words.split()[0] in list_commands()}


def spec(**fields):
    """Two rounds of two epochs, saved after each."""
    known = {"task": "tiny", "rounds": 2, "envs": 2, "episode_length": 2, "final_episodes": 2}
    return tiny(**{**known, "checkpoint": CheckpointSpec(every_rounds=1, keep=9), **fields})


@contextmanager
def in_time():
    """Raise if the body hangs."""

    def late(number, frame):
        raise AssertionError(f"not done after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder):
    """Everything below a folder, by path: bytes of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run with everything that a run directory can hold."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train_ppo_vectorized(spec(telemetry=TelemetrySpec(loggers=CSV)), out=run)
    for name in ("evaluation.json", "lock"):
        (run / name).write_text("{}")
    (run / "report").mkdir()
    (run / "report/index.html").write_text("mine")
    return run


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.mark.parametrize(
    ("target", "command"),
    [
        *(("the same", command) for command in COMMANDS),
        *product(("nothing", "device", "pipe"), ("resume",)),
    ],
)
def test_no_entry_of_a_run_may_be_a_link(run, whole, tmp_path, capsys, target, command):
    outside = tmp_path / "outside"
    outside.mkdir()
    os.mkfifo(outside / "pipe")
    shutil.copytree(whole, outside / "copy")
    targets = {"device": "/dev/zero", "pipe": outside / "pipe", "nothing": outside / "nothing"}
    before = contents(outside / "copy")
    for entry in ENTRIES:
        place, aside = run / entry, tmp_path / "aside"
        place.rename(aside)
        place.symlink_to(targets.get(target, outside / "copy" / entry))
        state = contents(run)
        words = COMMANDS[command].format(run=run, other=whole)
        with in_time():
            assert main(words.split()) == 2, entry
        said = capsys.readouterr().err
        refusals = (
            "is a link",
            "config.json not found",
            "expected a run directory, a folder of them",
        )
        assert any(text in said for text in refusals), entry
        assert str(run) in said or command == "compare"
        assert contents(run) == state
        place.unlink()
        aside.rename(place)
    assert contents(outside / "copy") == before
    assert not (outside / "nothing").exists()
    assert not (tmp_path / "run-branch").exists()


@pytest.mark.parametrize(
    ("entries", "command"),
    [
        *product(([entry] for entry in READ), ("inspect", "resume")),
        *product((WRITTEN,), ("inspect", "resume")),
        *product(
            (["config.json"], ["events.jsonl"]), sorted(COMMANDS.keys() - {"inspect", "resume"})
        ),
    ],
)
def test_a_pipe_in_place_of_a_file_is_refused_or_not_needed_and_never_waited_for(
    run, whole, capsys, entries, command
):
    for entry in entries:
        (run / entry).unlink()
        os.mkfifo(run / entry)
    with in_time():
        code = main(COMMANDS[command].format(run=run, other=whole).split())
    said = capsys.readouterr().err
    assert code in (0, 2, 3, 4), said
    named = [entry.rpartition("/")[2] for entry in entries]
    assert code == 0 or any(name in said for name in (*named, str(run), "side: expected a run"))


def test_a_link_to_the_run_directory_itself_is_followed(run, tmp_path, capsys):
    (tmp_path / "latest").symlink_to(run)
    assert main(["inspect", str(tmp_path / "latest")]) == 0
    assert main(["resume", str(tmp_path / "latest"), "--extend-rounds", "1", "--quiet"]) == 0
    assert f"files: {tmp_path / 'latest'}\n" in capsys.readouterr().out
    assert len(read_rounds(run)) == 3


@needs_extra("loggers")
def test_the_links_of_wandb_below_its_own_folder_are_its_own(run, whole, capsys):
    (run / "metrics/wandb").mkdir()
    (run / "metrics/wandb/latest-run").symlink_to("run-1")
    assert main(["inspect", str(run)]) == 0
    (run / "metrics/csv/wandb").mkdir()
    (run / "metrics/csv/wandb/latest-run").symlink_to("run-1")
    assert main(["inspect", str(run)]) == 2
    assert "latest-run is a link" in capsys.readouterr().err


def test_foreign_files_among_the_checkpoints_stay(run):
    mine = [".tmp-important", ".trash-mine", ".tmp-round-000001-epoch-0000-1234", "notes"]
    for name in mine:
        (run / "checkpoints" / name).mkdir()
    dead = run / "checkpoints/.tmp-round-000009-epoch-0000-0123456789abcdef"
    dead.mkdir()
    resume(run, rounds=3)
    assert {path.name for path in (run / "checkpoints").iterdir()} >= set(mine)
    assert not dead.exists()


# --- temporary files
# ----------------------------------------------------------------------------


def test_a_temporary_file_is_not_written_through_what_lies_at_its_name(tmp_path, monkeypatch):
    victim, target = tmp_path / "victim", tmp_path / "config.json"
    victim.write_text("kept")
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 2 * size)
    link = files.temporary_path(target)
    link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        files.write_atomic(target, b"mine")
    assert victim.read_text() == "kept"
    assert not target.exists()


# --- places outside
#
# ----------------------------------------------------------------------------


def rewrite(run, **telemetry):
    """Change the telemetry of the config of a run, as whoever hands on a run can."""
    changed = parse_config((run / "config.json").read_text())
    (run / "config.json").write_text(
        dump_config(replace(changed, telemetry=replace(changed.telemetry, **telemetry)))
    )


@pytest.mark.parametrize("shown", ["absolute", "relative", "through a link"])
def test_a_config_names_no_place_outside_without_being_asked(run, tmp_path, shown, capsys):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (run / "way").symlink_to(other)
    rewrite(
        run, dir={"absolute": str(other), "relative": "../other", "through a link": "way"}[shown]
    )
    before = contents(other)
    assert main(["resume", str(run), "--extend-rounds", "1", "--quiet"]) == 2
    assert "telemetry.dir: expected --telemetry-dir" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"telemetry\.dir: expected --telemetry-dir"):
        resume(run, rounds=3)
    assert contents(other) == before


def test_a_moved_run_finds_its_events_outside(tmp_path):
    run, events = tmp_path / "run", tmp_path / "events"
    train_ppo_vectorized(spec(telemetry=TelemetrySpec(dir=str(events))), out=run)
    before = (events / "events.jsonl").read_bytes()
    run.rename(tmp_path / "moved")
    more = ["--telemetry-dir", str(events), "--extend-rounds", "1", "--quiet"]
    assert main(["resume", str(tmp_path / "moved"), *more]) == 0
    assert (events / "events.jsonl").read_bytes().startswith(before[: len(before) // 2])
    assert len(read_rounds(tmp_path / "moved")) == 3


def test_an_event_file_has_one_writer_and_one_name(run, tmp_path):
    holder = LogFile(run / "events.jsonl")
    with pytest.raises(CheckpointError, match="another process writes it"):
        resume(run, rounds=3)
    holder.close()
    os.link(run / "events.jsonl", tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    with pytest.raises(CheckpointError, match="expected a file with one name"):
        resume(run, rounds=3)
    assert (tmp_path / "backup").read_bytes() == before
    os.unlink(tmp_path / "backup")
    assert len(resume(run, rounds=3).history) == 3


# --- texts and places that are hard to show
# ---------------------------------------------------------------------------

NAMES = {
    "escapes": b"x\x1b[31mRED\x1b]0;t\x07",
    "no UTF-8": b"caf\xe9\xff",
    "markup": b"<b>[red]$\\frac{$",
}


@pytest.mark.parametrize(
    "words", ["inspect .", "watch --once .", "report .", "evaluate . --episodes 2 --arms wait"]
)
def test_a_directory_of_any_name_is_shown_without_control_characters(
    whole, tmp_path, monkeypatch, capfd, words
):
    place = os.path.join(os.fsencode(tmp_path), b"".join(NAMES.values()))
    shutil.copytree(whole, os.fsdecode(place))
    monkeypatch.chdir(os.fsdecode(place))
    assert main(words.split()) == 0
    said = capfd.readouterr()
    for text in (said.out, said.err):
        assert all(line.isprintable() for line in text.splitlines())
