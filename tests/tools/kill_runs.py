"""The kill test: a run that is killed again and again ends with the same bits as one that is left
alone.

    PYTHONPATH=tests python tests/tools/kill_runs.py [--kills N] [--seed S] [--compile MODE]

A run is left alone; then the same run is killed at random moments, of which a share lie inside a
save, and resumed each time.  When it ends it is compared with the first one, and another one
begins, until there were enough kills.

Exit code 0: all ended with the same bits, times aside; 1: the first difference is printed.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from support import run_comparison
from support.forked_commands import start_command, wait_for

from morphogen.config import files
from morphogen.log import run_directory

RUN = "run"
IN_A_SAVE = 0.4  # share of the kills that wait for a save to begin
# Growth, keeping and pruning in every round; a save each round and several times within.
CONFIG: dict[str, Any] = {
    "preset": "smoke",
    "rounds": 5,
    "envs": 8,
    "episode_length": 24,
    "final_episodes": 8,
    "seed": 3,
    "lifecycle": {"min_training_epochs": 1, "min_blending_epochs": 1},
    "policy": {
        "op_bias": {"SET_ALPHA_TARGET": -4.0, "PRUNE": -2.0, "FOSSILIZE": 2.0, "ADVANCE": 2.0}
    },
    "engine": {"threads": 1, "devices": ["cpu"]},
    "telemetry": {"loggers": ["csv"]},
    "checkpoint": {"every_rounds": 1, "every_minutes": 0.01, "keep": 2},
}


@dataclass(slots=True)
class Trial:
    """Runs of one config in a folder, all with the same command in the same words."""

    folder: Path
    config: dict[str, Any]
    rng: random.Random
    kills: int = 0  # so far
    life_s: float = 0.0  # of the process that was left alone
    save_s: float = 0.0  # of its longest save

    def find_difference(self, kills: int) -> str | None:
        """Kill and resume runs until there were enough kills; return the first difference."""
        alone = self._run_alone()
        number = 0
        while self.kills < kills:
            place = self._place(f"killed-{number}")
            while self.kills < kills and self._is_killed(self._start(place), place / RUN):
                self.kills += 1
                print(f"kill {self.kills} of run {number}", flush=True)
            self._end(self._start(place), place)
            for difference in run_comparison.differences(alone, place / RUN):
                return f"run {number} differs: {difference}"
            number += 1
        return None

    def _run_alone(self) -> Path:
        """Run without a kill, and note how long that takes."""
        began = time.monotonic()
        place = self._place("alone")
        self._end(self._start(place), place)
        self.life_s = time.monotonic() - began
        lines = (place / RUN / run_directory.EVENTS).read_text().splitlines()
        events = [json.loads(line) for line in lines]
        self.save_s = max(
            event["data"]["save_s"] for event in events if event.get("event") == "CheckpointSaved"
        )
        return place / RUN

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(self.config))
        return place

    def _start(self, place: Path) -> BaseProcess:
        """Begin the run, or go on with it.  One that did not get as far as a manifest is no run
        yet.
        """
        words = ["resume", RUN, "--quiet"]
        if not (place / RUN / run_directory.MANIFEST).is_file():
            shutil.rmtree(place / RUN, ignore_errors=True)
            words = ["train", "--config", "config.json", "--out", RUN, "--quiet"]
        return start_command(place, words, (os.devnull, *(2 * (place / "log",))))

    def _is_killed(self, process: BaseProcess, run: Path) -> bool:
        """Kill a process at a moment that is drawn; False if it ended before."""
        inside = self.rng.random() < IN_A_SAVE
        moment = time.monotonic() + self.rng.uniform(0, self.life_s / 3)
        while process.is_alive() and time.monotonic() < moment:
            time.sleep(0.001)
        saves = run / run_directory.CHECKPOINTS
        while inside and process.is_alive() and not list(saves.glob(f"{files.TEMPORARY}*")):
            time.sleep(0.0005)
        if inside:
            time.sleep(self.rng.uniform(0, self.save_s))
        process.kill()
        return wait_for(process) < 0

    def _end(self, process: BaseProcess, place: Path) -> None:
        """Wait for a process that nobody kills."""
        if code := wait_for(process):
            raise RuntimeError(f"a process ended with {code}\n{(place / 'log').read_text()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description="Does a run that is killed keep its bits?")
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the moments")
    parser.add_argument(
        "--compile", default="off", metavar="MODE", help="engine.compile of the runs (default off)"
    )
    args = parser.parse_args(argv)
    config = {**CONFIG, "engine": {**CONFIG["engine"], "compile": args.compile}}
    with tempfile.TemporaryDirectory(prefix="killing-") as folder:
        trial = Trial(Path(folder), config, random.Random(args.seed))
        difference = trial.find_difference(args.kills)
    print(difference or f"{trial.kills} kills: every run ended with the same bits")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
