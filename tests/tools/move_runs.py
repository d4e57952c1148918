"""The move test: a live run whose directory is taken away never writes into another run, and tells
the truth.

    python tests/tools/move_runs.py [--moves N] [--seed S] [--json FILE] [--folder DIR]

A run is left alone, and so is another one.  Then the first one is started again and again; at a
random moment its directory is moved or deleted, and the other run may be started under the same
name.  A moved run ends as the one that was left alone, to the bit, a deleted one with exit code 4
and one line; the other run ends as if it had been alone.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from support import run_comparison
from support.subprocess_env import OURS
from tools.kill_runs import CONFIG, MORPHOGEN

from morphogen.log import run_directory

MOVES = ("moved", "deleted", "moved, with a successor", "deleted, with a successor")
RUN, ELSEWHERE = "run", "elsewhere"
FIRST, OTHER = 3, 7  # seeds of the two runs
SHORT = {**CONFIG, "rounds": 2, "envs": 4, "episode_length": 8, "final_episodes": 4}
PATIENCE_S = 300.0
POLL_S = 0.002
FAILED = 4  # exit code of a run that lost its directory


class Trial:
    """Runs in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.alone = cache(self._alone)
        self.life_s = 0.0  # from the manifest to the end, of the run that is left alone

    def _alone(self, seed: int) -> Path:
        """A run that is left alone."""
        place = self._place(f"alone-{seed}")
        process = self._start(place, seed)
        began = self._wait_for_manifest(process, place)
        if process.wait(PATIENCE_S):
            raise RuntimeError((place / f"log-{seed}").read_text())
        self.life_s = time.monotonic() - began
        return place / RUN

    def taken(self, number: int, move: str) -> tuple[str, str | None]:
        """Take the directory of a live run away; the moment, and the fault that followed."""
        references = {seed: self.alone(seed) for seed in (OTHER, FIRST)}
        place = self._place(f"taken-{number}")
        process, other = self._start(place, FIRST), None
        began = self._wait_for_manifest(process, place)
        moment = self.rng.uniform(0, self.life_s * 0.8)
        while process.poll() is None and time.monotonic() - began < moment:
            time.sleep(POLL_S)
        (place / RUN).rename(place / ELSEWHERE)
        ended = (
            json.loads((place / ELSEWHERE / run_directory.MANIFEST).read_bytes())["status"]
            != "running"
        )
        if "deleted" in move:
            remove(place / ELSEWHERE)
        if "successor" in move:
            other = self._start(place, OTHER)
        code = process.wait(PATIENCE_S)
        told = f"{'after the end' if ended else f'{moment:.2f} s'}, exit code {code}"
        fault = self._fault(place, code, "moved" in move, ended, references[FIRST])
        if other is not None and fault is None:
            if (last := other.wait(PATIENCE_S)) != 0:
                return (
                    told,
                    f"the successor ended with {last}: {(place / f'log-{OTHER}').read_text()}",
                )
            fault = next(run_comparison.differences(references[OTHER], place / RUN), None)
        elif fault is None and (place / RUN).exists():
            fault = f"{RUN} was made again"
        return told, fault

    def _fault(
        self, place: Path, code: int, moved: bool, ended: bool, reference: Path
    ) -> str | None:
        """Fault of the run whose directory was taken; None without one."""
        log = (place / f"log-{FIRST}").read_text()
        if code != (0 if moved or ended else FAILED):
            return f"exit code {code}\n{log}"
        if not moved:
            line = f"morphogen: error: run directory {RUN} was deleted while it was in use\n"
            return None if ended or log.endswith(line) else f"no line: {log}"
        if (
            not ended
            and f"files: {place / ELSEWHERE}\n" not in log
            and f"files: {RUN}\n" not in log
        ):
            return f"its place is not told\n{log}"
        return next(run_comparison.differences(reference, place / ELSEWHERE), None)

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir(parents=True)
        return place

    def _start(self, place: Path, seed: int) -> subprocess.Popen[str]:
        (place / f"config-{seed}.json").write_text(json.dumps({**SHORT, "seed": seed}))
        words = ("train", "--config", f"config-{seed}.json", "--out", RUN, "--quiet")
        with (place / f"log-{seed}").open("w") as log:
            return subprocess.Popen(
                [*MORPHOGEN, *words], cwd=place, env=OURS, stdout=log, stderr=log, text=True
            )

    def _wait_for_manifest(self, process: subprocess.Popen[str], place: Path) -> float:
        until = time.monotonic() + PATIENCE_S
        while not (place / RUN / run_directory.MANIFEST).exists():
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                raise RuntimeError(f"the run in {place} did not begin")
            time.sleep(POLL_S)
        return time.monotonic()


def remove(folder: Path) -> None:
    """Delete a folder in which a live process makes files."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Take directories away; print each moment and what followed; 1 if a run was wrong."""
    parser = argparse.ArgumentParser(
        description="Does a run whose directory is taken away stay out of others?"
    )
    parser.add_argument("--moves", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the moments")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the runs there")
    given = parser.parse_args(argv)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="moving-"))
    trial, rows = Trial(folder, given.seed), []
    for number in range(given.moves):
        move = MOVES[number % len(MOVES)]
        moment, fault = trial.taken(number, move)
        rows.append({"move": move, "moment": moment, "fault": fault})
        print(f"{number + 1:>4}  {move:<26} {moment:<28} {fault or 'as it should be'}", flush=True)
    faults = sum(row["fault"] is not None for row in rows)
    print(f"{len(rows)} moves, {faults} faults")
    if given.json is not None:
        given.json.write_text(json.dumps({"seed": given.seed, "moves": rows}, indent=2) + "\n")
    if given.folder is None:
        shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
