"""`morphogen resume`, and what signals do to a run, as a user meets them."""

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest
from support.forked_commands import start_command, wait_for
from support.run_comparison import differences

from morphogen.cli import main
from morphogen.train import checkpoint_store

SMALL = [
    "--task",
    "tiny",
    "--rounds",
    "3",
    "--envs",
    "4",
    "--episode-length",
    "4",
    "--threads",
    "1",
    "--quiet",
    "--set",
    "final_episodes=2",
    "--set",
    "ppo.epochs=1",
    "--set",
    "telemetry.level=normal",
]


def start(*words, folder):
    """A command in a process of its own, and the file of its messages."""
    said = folder / "said"
    return start_command(folder, words, (os.devnull, os.devnull, said)), said


def running(run, event="RoundCompleted"):
    """Wait until a run has reported its first round."""
    deadline = time.monotonic() + 60
    while not (run / "events.jsonl").is_file() or event not in (run / "events.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main.main(["train", *SMALL, "--out", str(run)]) == 0
    return run


@pytest.mark.slow
def test_a_signal_ends_the_epoch_saves_the_run_and_leaves_with_its_code(alone, tmp_path):
    process, messages = start("train", *SMALL, "--out", "run", folder=tmp_path)
    running(tmp_path / "run")
    os.kill(process.pid, signal.SIGINT)
    assert wait_for(process) == 130
    said = messages.read_text()
    assert "stopping after this epoch; once more stops at once" in said
    assert "morphogen: note: stopped: `morphogen resume run` continues the run" in said
    assert json.loads((tmp_path / "run" / "manifest.json").read_bytes())["status"] == "stopped"
    assert (
        checkpoint_store.find_damage(
            checkpoint_store.list_checkpoints(tmp_path / "run" / "checkpoints")[0]
        )
        is None
    )
    assert main.main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert not list(differences(alone, tmp_path / "run"))


@pytest.mark.slow
def test_a_second_signal_stops_at_once_and_leaves_nothing_broken(alone, tmp_path):
    long = [*SMALL, "--set", "data.minibatches=4000"]
    process, messages = start("train", *long, "--out", "run", folder=tmp_path)
    running(tmp_path / "run", "RunStarted")
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    assert wait_for(process) == 130
    said = messages.read_text()
    assert "Traceback" not in said
    assert json.loads((tmp_path / "run" / "manifest.json").read_bytes())["status"] == "stopped"
    assert [
        path.name for path in (tmp_path / "run").iterdir() if path.name.startswith((".tmp", "lock"))
    ] == []


@pytest.mark.slow
def test_a_run_that_is_over_is_told_and_can_be_extended(alone, tmp_path, capsys):
    os.symlink(alone.parent, tmp_path / "place")
    run = str(tmp_path / "place" / "run")
    assert main.main(["resume", run, "--quiet"]) == 0
    assert (
        "all 3 rounds are completed; add rounds with --extend-rounds N" in capsys.readouterr().err
    )


REFUSED = {
    "--rounds 2": (4, "rounds: expected "),
    "--extend-rounds 0": (2, "--extend-rounds: expected an integer in 1"),
    "--extend-rounds 1 --rounds 9": (
        2,
        "--rounds, --extend-rounds: expected one of them, got both",
    ),
    "--set seed=5 --set ppo.lr=0.1": (4, "ppo.lr: expected "),
    "--checkpoint x": (2, "--checkpoint, --out: expected both or neither, got one"),
    "--checkpoint x --out other": (4, "--checkpoint: expected one of round-000003-epoch-0000"),
    "--envs 3": (2, "unrecognized arguments"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"), [(w, *m) for w, m in REFUSED.items()], ids=REFUSED
)
def test_what_cannot_be_resumed_is_refused(
    alone, capsys, monkeypatch, tmp_path, words, code, message
):
    monkeypatch.chdir(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in alone.rglob("*"))
    assert main.main(["resume", str(alone), "--quiet", *words.split()]) == code
    assert message in capsys.readouterr().err
    assert sorted(
        (path, path.stat().st_mtime_ns) for path in alone.rglob("*") if path != alone
    ) == [one for one in before if one[0] != alone]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_that_may_restart_are_given_a_total_of_rounds_and_none_to_add(
    alone, capsys, monkeypatch
):
    launcher = SimpleNamespace(restarts=lambda: (0, 3))
    monkeypatch.setattr("morphogen.cli.resume.find_launcher", lambda: launcher)
    assert main.main(["resume", str(alone), "--extend-rounds", "1"]) == 2
    assert (
        "--extend-rounds: expected --rounds, the total, where the run may be restarted"
        in capsys.readouterr().err
    )
