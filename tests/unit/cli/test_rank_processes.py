"""Ranks of a command: which numbers are allowed, how their end is told, and that none is left."""

import os
import signal
import subprocess
import sys
import time

import pytest

from morphogen.cli import main, rank_processes
from morphogen.errors import ConfigError
from tests.support.subprocess_env import OURS


@pytest.mark.parametrize(("envs", "count", "near"), [(64, 3, "1, 2, 4, 8"), (6, 4, "2, 3, 6"), (7, 2, "1, 7")])
def test_ranks_that_do_not_divide_the_envs_are_refused_with_numbers_that_do(envs, count, near):
    with pytest.raises(ConfigError, match=f"divisor of envs = {envs}, such as {near}, got {count}"):
        rank_processes.check_ranks(envs, count)
    for number in map(int, near.split(", ")):
        rank_processes.check_ranks(envs, number)


def test_the_command_names_envs_and_ranks_that_do_not_fit_and_starts_none(tmp_path, capsys):
    out = tmp_path / "run"
    assert main.main(["train", "--preset", "tiny", "--envs", "8", "--ranks", "3", "--out", str(out)]) == main.USAGE
    assert "expected a divisor of envs = 8, such as 1, 2, 4, 8, got 3" in capsys.readouterr().err
    assert not out.exists()


def test_ranks_that_may_restart_need_a_directory_that_they_find_again(monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    assert main.main(["train", "--preset", "tiny"]) == main.USAGE
    assert "--out: expected a run directory, which restarted ranks find again" in capsys.readouterr().err


@pytest.fixture
def sleepers(monkeypatch):
    """Two child ranks that sleep."""
    monkeypatch.setattr(rank_processes, "COMMAND", (sys.executable, "-c"))
    children = rank_processes.ChildRanks(3, 'morphogen "import time; time.sleep(60)"')
    yield children
    children.end(0)


def wait_for_end(children):
    deadline = time.monotonic() + 5
    while not children.find_ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    return children.find_ended()


def test_a_killed_rank_is_named_with_its_signal(sleepers):
    assert sleepers.find_ended() == {}
    os.kill(sleepers.processes[2].pid, signal.SIGKILL)
    assert wait_for_end(sleepers) == {2: "ended by signal 9 (SIGKILL)"}
    assert sleepers.find_error() is None


def test_an_error_of_a_rank_keeps_its_class_and_is_told_before_ranks_that_ended_because_of_it(monkeypatch):
    program = (
        "import os, sys; code = {'1': 8, '2': 4}[os.environ['RANK']]; "
        "print('a note', 'morphogen: error: the disk is full', sep=chr(10), file=sys.stderr); sys.exit(code)"
    )
    monkeypatch.setattr(rank_processes, "COMMAND", (sys.executable, "-c"))
    children = rank_processes.ChildRanks(3, f'morphogen "{program}"')
    for process in children.processes.values():
        process.wait(10)
    first, *_ = children.find_ended().items()
    assert first == (2, "ended with exit code 4: the disk is full")
    error = children.find_error()
    assert (rank_processes.exit_code(error), str(error)) == (4, "rank 2: the disk is full")
    children.end(0)


def test_no_rank_outlives_the_command(sleepers):
    sleepers.end(0)
    assert all(process.returncode == -signal.SIGKILL for process in sleepers.processes.values())


def test_each_job_has_a_port_of_its_own(sleepers):
    other = rank_processes.ChildRanks(1, "morphogen")
    assert other.environment["MASTER_PORT"] != sleepers.environment["MASTER_PORT"]
    other.end(0)


@pytest.mark.skipif(sys.platform != "linux", reason="signals at the death of a parent are of Linux")
def test_a_rank_ends_with_the_command_even_if_that_is_killed():
    head = "import os, subprocess, sys, time; from morphogen.cli import rank_processes as ranks; "
    rank = f"{head}ranks.follow_parent(); print(1, flush=True); time.sleep(60)"
    parent = (
        f"{head}"
        f"subprocess.Popen([sys.executable, '-c', {rank!r}], env=os.environ | {{ranks.PARENT: str(os.getpid())}}); "
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], env=OURS, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"  # of the rank, which holds the pipe open as long as it lives
        started = time.monotonic()
        process.kill()
        assert process.stdout.read() == b""
    assert time.monotonic() - started < 10
