"""Kill random ranks at random moments under torchrun, and print a table: `python -m tests.tools.kill_ranks [N] [SEED]`.

Every run ends, and its policy has the bits of the run that nobody killed.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file

from tests.support import rank_jobs

FLAGS = ("--rounds", "8", "--set", "checkpoint.every_rounds=1")
HEAD = [*rank_jobs.TORCHRUN, "--max-restarts", "3", "-m", "morphogen"]
LATEST_S = 12.0  # of a kill, after the start


def run_killed(out: Path, rank: int, after_s: float) -> tuple[int, bool]:
    """Run with one kill; return the exit code, and whether a rank was killed."""
    with rank_jobs.start_job(HEAD, out, *FLAGS) as job:
        deadline = time.monotonic() + after_s
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        ranks = rank_jobs.child_processes(job.pid)[-2:]
        if job.poll() is None and len(ranks) == 2:
            os.kill(ranks[rank], signal.SIGKILL)
        job.communicate(timeout=120)
    return job.returncode, len(ranks) == 2


def main() -> int:
    """Print a row per kill; return 1 unless all runs end with equal bits."""
    count, seed = (int(word) for word in [*sys.argv[1:], *("20", "0")[len(sys.argv) - 1 :]])
    draw, faults = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        with rank_jobs.start_job(rank_jobs.COMMAND, whole, *FLAGS, "--ranks", "1") as job:
            job.communicate(timeout=120)
        expected = load_file(whole / "policy.safetensors")
        for number in range(count):
            rank, after_s, out = draw.randrange(2), draw.uniform(1, LATEST_S), Path(folder, str(number))
            code, killed = run_killed(out, rank, after_s)
            policy = load_file(out / "policy.safetensors") if code == 0 else {}
            equal = policy.keys() == expected.keys() and all(policy[name].equal(expected[name]) for name in policy)
            faults += not equal
            print(
                f"{number:3} rank {rank} at {after_s:5.1f} s  killed {killed}  exit {code}  equal {equal}", flush=True
            )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
