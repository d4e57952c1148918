"""Ranks that hang end the job in one line; restarted ranks end with the bits of a run that nobody
killed.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.forked_commands import wait_for
from support.run_comparison import same_policy

from morphogen.cli import main
from tests.extras.ranks import rank_jobs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
ENDLESS = ("--rounds", "5000", "--set", "checkpoint.every_rounds=1")


def test_a_rank_that_hangs_is_named_in_one_line_and_ends_the_job(tmp_path):
    timeout_s = 3
    limit = f"engine.collective_timeout_s={timeout_s}"
    job = rank_jobs.fork_job(tmp_path, *ENDLESS, "--set", limit)
    rank_jobs.wait_for_checkpoint(tmp_path / "run")
    first, second = rank_jobs.child_processes(job.pid)
    started = time.monotonic()
    os.kill(second, signal.SIGSTOP)
    assert wait_for(job) == 8
    assert time.monotonic() - started < timeout_s + 12
    [line] = (tmp_path / "errors").read_text().splitlines()
    assert line.startswith("morphogen: error: rank 1 of 2 did not finish the collective ")
    assert not {first, second} & running_processes()


def running_processes() -> set[int]:
    """Numbers of all processes."""
    return {int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()}


NO_NETWORK = ("unshare", "-rn")  # a network whose loopback is down


def test_ranks_that_cannot_reach_each_other_end_soon_in_one_line(tmp_path):
    if subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode:
        pytest.skip("no network of its own can be made here")
    with rank_jobs.start_job(
        [*NO_NETWORK, *rank_jobs.COMMAND], tmp_path / "run", "--ranks", "2"
    ) as job:
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 8
    assert re.fullmatch(
        r"morphogen: error: rank 0 at 127.0.0.1:\d+ cannot be reached: .*\n", errors
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("early", [True, False], ids=["at the start", "in a run"])
def test_a_signal_to_the_command_stops_all_ranks(early, tmp_path):
    job = rank_jobs.fork_job(tmp_path, *ENDLESS)
    while len(rank_jobs.child_processes(job.pid)) < 2:
        time.sleep(0.02)
    if not early:
        rank_jobs.wait_for_checkpoint(tmp_path / "run")
    ranks = set(rank_jobs.child_processes(job.pid))
    os.kill(job.pid, signal.SIGTERM)
    assert wait_for(job) == 128 + signal.SIGTERM
    assert not ranks & running_processes()
    if not early:
        assert (tmp_path / "errors").read_text().splitlines()[
            -1
        ] == f"morphogen: note: stopped: `morphogen resume {tmp_path / 'run'}` continues the run"


def test_restarted_ranks_end_with_the_bits_of_a_run_that_nobody_killed(tmp_path):
    flags = ("--rounds", "3", "--set", "checkpoint.every_rounds=1")
    head = [*rank_jobs.TORCHRUN, "--max-restarts", "2", "-m", "morphogen"]
    with rank_jobs.start_job(head, tmp_path / "killed", *flags) as job:
        rank_jobs.wait_for_checkpoint(tmp_path / "killed")
        os.kill(rank_jobs.child_processes(job.pid)[-1], signal.SIGKILL)
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert "exitcode: -9" in errors
    words = [*rank_jobs.RUN, "--out", str(tmp_path / "whole"), *flags, "--ranks", "1"]
    assert not main.main(words)
    assert same_policy(tmp_path / "killed", tmp_path / "whole")
