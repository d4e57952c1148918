"""Kill random ranks at random moments under torchrun, and print a table.

`python -m tests.extras.ranks.kill_ranks [N] [SEED]`

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

from tests.extras.ranks import rank_jobs

FLAGS = ("--rounds", "8", "--set", "checkpoint.every_rounds=1")
HEAD = [*rank_jobs.TORCHRUN, "--max-restarts", "3", "-m", "morphogen"]
EARLIEST_S = 1.0  # of a kill, after the start; the latest is the end of a run that nobody kills
TRIES = 3  # jobs at most, times the kills that are asked for


def run_whole(head: list[str], out: Path, *flags: str) -> float:
    """Run without a kill; return its seconds."""
    started = time.monotonic()
    with rank_jobs.start_job(head, out, *FLAGS, *flags) as job:
        _, errors = job.communicate(timeout=120)
    if job.returncode:
        raise RuntimeError(
            f"a run that nobody killed ended with exit code {job.returncode}: {errors}"
        )
    return time.monotonic() - started


def run_killed(out: Path, rank: int, after_s: float) -> tuple[int, bool]:
    """Run with one kill; return the exit code, and whether a rank was killed before the end."""
    with rank_jobs.start_job(HEAD, out, *FLAGS) as job:
        deadline = time.monotonic() + after_s
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        ranks = rank_jobs.child_processes(job.pid)[-2:]
        hit = job.poll() is None and len(ranks) == 2
        if hit:
            os.kill(ranks[rank], signal.SIGKILL)
        job.communicate(timeout=120)
    return job.returncode, hit


def main() -> int:
    """Print a row per job until enough kills have hit; return 1 unless all jobs end with equal
    bits.
    """
    count, seed = (int(word) for word in [*sys.argv[1:], *("20", "0")[len(sys.argv) - 1 :]])
    draw, faults, hits = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        run_whole(rank_jobs.COMMAND, Path(folder, "whole"), "--ranks", "1")
        latest_s = run_whole(HEAD, Path(folder, "pair"))
        expected = load_file(Path(folder, "whole", "policy.safetensors"))
        for number in range(TRIES * count):
            rank, after_s, out = (
                draw.randrange(2),
                draw.uniform(EARLIEST_S, latest_s),
                Path(folder, str(number)),
            )
            code, hit = run_killed(out, rank, after_s)
            policy = load_file(out / "policy.safetensors") if code == 0 else {}
            equal = policy.keys() == expected.keys() and all(
                policy[name].equal(expected[name]) for name in policy
            )
            hits, faults = hits + hit, faults + (not equal)
            reported = "killed" if hit else "ended before"
            print(
                f"{number:3} rank {rank} at {after_s:5.1f} s  {reported}  exit {code}  equal {equal}",
                flush=True,
            )
            if hits == count:
                break
    print(
        f"{hits} kills hit; of {number + 1} jobs {number + 1 - faults} ended with the bits "
        "of a run that nobody killed"
    )
    return int(faults > 0 or hits < count)


if __name__ == "__main__":
    sys.exit(main())
