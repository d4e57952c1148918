"""Ranks of a command: which numbers are allowed, how their end is reported, and that none is
left.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import morphogen as mg
from morphogen.cli import main
from morphogen.errors import CheckpointError, DataError, RankError
from morphogen.extras.ranks import rank_launcher, workers
from tests.support.subprocess_env import OURS

REFUSED = {
    "ranks that do not divide the envs": (
        ["--ranks", "3"],
        "engine.ranks: expected a divisor of envs = 4",
    ),
    "a rank without a minibatch": (
        ["--ranks", "4", "--set", "engine.reduce=allreduce"],
        "ppo.minibatches: expected a divisor of the 1 envs of a rank",
    ),
    "a device of another rank": (
        ["--device", "cpu,cuda:0"],
        "one of the 0 CUDA devices of this machine",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_dry_run_refuses_ranks_that_a_run_refuses(tmp_path, monkeypatch, capsys, form):
    words, line = REFUSED[form]
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "--preset", "smoke", *words, "--dry-run"]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cores", "envs", "count"), [(1, 4, 1), (2, 4, 2), (3, 4, 2), (4, 6, 3), (64, 32, 4)]
)
def test_cores_that_can_share_the_envs_have_a_rank_each_if_asked_for(
    monkeypatch, cores, envs, count
):
    monkeypatch.setattr(rank_launcher, "count_cores", lambda: cores)
    engine = {"devices": ["cpu"], "rank_per_core": True}
    spec = mg.resolve(mg.RunSpec(task="tiny", envs=envs, engine=engine))
    assert rank_launcher.count_ranks(spec) == count
    for given in ({"ranks": 1}, {"rank_per_core": False}):
        other = mg.resolve(mg.RunSpec(task="tiny", envs=envs, engine=engine | given))
        assert rank_launcher.count_ranks(other) == 1


def test_ranks_that_may_restart_need_a_directory_that_they_find_again(monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    assert main.main(["train", "--preset", "smoke"]) == 2
    assert (
        "--out: expected a run directory, which a restarted process finds again"
        in capsys.readouterr().err
    )


def ended(folder, errors=()):
    """Ranks that have ended, as torch describes them; errors: rank -> text that it left."""
    files = {rank: str(folder / f"error-{rank}") for rank in range(3)}
    for rank, text in dict(errors).items():
        Path(files[rank]).write_text(text)
    (folder / "stderr").write_text("Traceback\nZeroDivisionError: division by zero\n")
    streams = {0: "", 1: folder / "stderr"}
    return SimpleNamespace(
        pids=lambda: dict.fromkeys(range(3), 1), error_files=files, stderrs=streams
    )


def test_the_exit_code_of_all_ranks_is_that_of_the_command(tmp_path):
    assert workers.command_code({0: 0, 1: 0, 2: 0}, [], ended(tmp_path)) == 0
    assert workers.command_code({2: 6, 0: 6, 1: 6}, [], ended(tmp_path)) == 6
    assert workers.command_code({0: 143, 1: 143, 2: 143}, [signal.SIGTERM], ended(tmp_path)) == 143


def test_a_rank_that_a_forwarded_signal_ended_ends_the_command_with_its_code(tmp_path):
    assert workers.command_code({1: -15, 0: 8}, [signal.SIGTERM], ended(tmp_path)) == 143


@pytest.mark.parametrize(
    ("codes", "errors", "kind", "line"),
    [
        (
            {2: -9, 0: 8, 1: 8},
            {0: "rank 2 of 3 did not answer"},
            RankError,
            "rank 2 of 3 ended by signal 9 (SIGKILL)",
        ),
        (
            {0: 8, 1: 4},
            {0: "rank 1 left", 1: "rank 1: disk full"},
            CheckpointError,
            "rank 1: disk full",
        ),
        (
            {1: 1, 0: 8},
            {},
            RankError,
            "rank 1 of 3 ended with exit code 1: ZeroDivisionError: division by zero",
        ),
        ({0: 8}, {0: "rank 1 of 3 did not finish"}, RankError, "rank 1 of 3 did not finish"),
    ],
)
def test_the_rank_that_did_not_end_because_of_another_one_is_reported(
    codes, errors, kind, line, tmp_path
):
    with pytest.raises(kind) as caught:
        workers.command_code(codes, [], ended(tmp_path, errors))
    assert (type(caught.value), str(caught.value)) == (kind, line)


def start_children(*programs):
    """Start programs of Python; return them as torch describes the ranks of a job."""
    children = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]

    def close(number):
        for child in children:
            if child.poll() is None:
                child.send_signal(number)
            child.wait()

    handlers = {rank: SimpleNamespace(proc=child) for rank, child in enumerate(children)}
    return SimpleNamespace(subprocess_handlers=handlers, close=close), children


def test_the_others_are_ended_soon_after_a_rank_has_failed(monkeypatch):
    monkeypatch.setattr(workers, "END_S", 0.3)
    context, children = start_children("raise SystemExit(4)", "import time; time.sleep(60)")
    started = time.monotonic()
    assert workers.wait_for_end(context) == {0: 4}
    assert time.monotonic() - started < 10
    assert children[1].returncode == -signal.SIGKILL


def test_ranks_that_succeed_may_take_as_long_as_they_like(monkeypatch):
    monkeypatch.setattr(workers, "END_S", 0.0)
    context, _ = start_children("", "import time; time.sleep(0.5)")
    assert workers.wait_for_end(context) == {0: 0, 1: 0}


def test_an_error_of_a_rank_that_all_have_is_printed_by_rank_0_alone(monkeypatch, capsys):
    def run(rank, error):
        def body(exchange):
            raise error

        class End(Exception):
            pass

        def leave(code):
            raise End(code)

        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("MASTER_ADDR", "here")
        monkeypatch.setenv("MASTER_PORT", "1")
        exchange = SimpleNamespace(first=rank == 0)
        monkeypatch.setattr(
            "morphogen.extras.ranks.process_group.join_ranks", lambda *_, **__: exchange
        )
        monkeypatch.setattr(os, "_exit", leave)
        with pytest.raises(End) as end:
            rank_launcher.run_rank(rank_launcher.RunSpec(), body)
        return end.value.args[0], capsys.readouterr().err

    common = DataError("no images")
    common.__dict__["common"] = True
    assert run(0, common) == (3, "morphogen: error: no images\n")
    assert run(1, common) == (3, "")
    assert run(1, CheckpointError("disk full")) == (4, "morphogen: error: rank 1: disk full\n")
    assert run(1, SystemExit(143)) == (143, "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="signals at the death of a parent are of Linux")
def test_a_rank_ends_with_the_command_even_if_that_is_killed():
    head = (
        "import os, subprocess, sys, time; from morphogen.extras.ranks import rank_launcher as "
        "ranks; "
    )
    rank = f"{head}ranks.follow_parent(); print(1, flush=True); time.sleep(60)"
    parent = (
        f"{head}subprocess.Popen([sys.executable, '-c', {rank!r}], env=os.environ | "
        f"{{ranks.PARENT: str(os.getpid())}}); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], env=OURS, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        # of the rank, which holds the pipe open as long as it lives
        assert started.stdout.readline() == b"1\n"
        moment = time.monotonic()
        started.kill()
        assert started.stdout.read() == b""
    assert time.monotonic() - moment < 10
