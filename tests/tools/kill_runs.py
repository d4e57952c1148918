"""The kill test: a run that is killed again and again ends with the same bits as one that is left
alone.

    PYTHONPATH=tests python tests/tools/kill_runs.py [--kills N] [--seed S] [--compile MODE]
        [--json FILE]

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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from support import run_comparison
from support.forked_commands import start_command, wait_for

from morphogen.config import files
from morphogen.log import run_directory
from morphogen.train import checkpoint_store

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
    "telemetry": {"level": "debug", "loggers": ["csv"]},
    "checkpoint": {"every_rounds": 1, "every_minutes": 0.01, "keep": 2},
}


class Failed(Exception):
    """A process that was not killed ended as it should not have."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and what it hit."""

    run: int
    life: int  # of that run
    after_s: float  # since the process began
    doing: str
    stood: str  # newest checkpoint then


@dataclass(slots=True)
class Trial:
    """Runs of one config in a folder, all with the same command in the same words."""

    folder: Path
    config: dict[str, Any]
    rng: random.Random
    kills: list[Kill] = field(default_factory=list)
    life_s: float = 0.0  # of the process that was left alone
    save_s: float = 0.0  # of its longest save

    def reference(self) -> Path:
        """The run that is left alone."""
        began = time.monotonic()
        place = self._place("alone")
        self._ended(self._start(place, fresh=True), place)
        self.life_s = time.monotonic() - began
        reported = (
            json.loads(line)
            for line in (place / RUN / run_directory.EVENTS).read_text().splitlines()
        )
        self.save_s = max(
            event["data"]["save_s"] for event in reported if event.get("event") == "CheckpointSaved"
        )
        return place / RUN

    def killed(self, number: int, most: int) -> Iterator[Kill]:
        """A run that is killed and resumed until it has ended; after `most` kills it is left
        alone.
        """
        place, life = self._place(f"killed-{number}"), 0
        while True:
            process = self._start(place, fresh=not stands(place / RUN))
            began = time.monotonic()
            if life == most or not self._kill(process, place / RUN):
                self._ended(process, place)
                return
            life += 1
            yield Kill(
                number,
                life,
                round(time.monotonic() - began, 3),
                doing(place / RUN),
                stood(place / RUN),
            )

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(self.config))
        return place

    def _start(self, place: Path, *, fresh: bool) -> BaseProcess:
        """Begin the run, or go on with it.  One that did not get as far as a manifest is no run
        yet.
        """
        words = (
            ("train", "--config", "config.json", "--out", RUN, "--quiet")
            if fresh
            else ("resume", RUN, "--quiet")
        )
        if fresh:
            shutil.rmtree(place / RUN, ignore_errors=True)
        return start_command(place, words, (os.devnull, *(2 * (place / "log",))))

    def _kill(self, process: BaseProcess, run: Path) -> bool:
        """Kill a process at a moment that is drawn; False if it ended before."""
        inside = self.rng.random() < IN_A_SAVE
        moment = time.monotonic() + self.rng.uniform(0, self.life_s / 3)
        while process.is_alive() and time.monotonic() < moment:
            time.sleep(0.001)
        while inside and process.is_alive() and not temporary(run):
            time.sleep(0.0005)
        if inside:
            time.sleep(self.rng.uniform(0, self.save_s))
        process.kill()
        return wait_for(process) < 0

    def _ended(self, process: BaseProcess, place: Path) -> None:
        """Wait for a process that nobody kills."""
        if code := wait_for(process):
            raise Failed(f"a process ended with {code}\n{(place / 'log').read_text()}")


def temporary(run: Path) -> list[Path]:
    """Files that a save writes, or has left behind."""
    return list((run / run_directory.CHECKPOINTS).glob(f"{files.TEMPORARY}*"))


def stands(run: Path) -> bool:
    """Return whether a run can be resumed."""
    return (run / run_directory.MANIFEST).is_file()


def stood(run: Path) -> str:
    """The name of the newest checkpoint."""
    return max(
        (path.name for path in (run / run_directory.CHECKPOINTS).glob("round-*")), default="none"
    )


def doing(run: Path) -> str:
    """Activity of a process at its death."""
    if left := temporary(run):
        return f"a save, {len(list(left[0].iterdir()))} files of it begun"
    if any((run / run_directory.CHECKPOINTS).glob(f"{checkpoint_store.TRASH}*")):
        return "removal of an old checkpoint"
    if (run / run_directory.RESULT).exists():
        return "the end"
    last = last_event(run)
    if last is None:
        return "set-up"
    if last["event"] in ("CheckpointSaved", "RunResumed") and "final" in str(last["data"]):
        return "the evaluation"
    return f"after {last['event']}" + "".join(
        f", {name} {last[name]}" for name in ("round", "epoch") if name in last
    )


def last_event(run: Path) -> dict[str, Any] | None:
    """The last event of the last complete line of the event file."""
    path = run / run_directory.EVENTS
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []
    return run_comparison.split_line(json.loads(lines[-1]))[-1] if lines else None


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, resume, compare; what was hit and whether it mattered goes to stdout."""
    given = _parser().parse_args(argv)
    config = {**CONFIG, "engine": {**CONFIG["engine"], "compile": given.compile}}
    with tempfile.TemporaryDirectory(prefix="killing-") as folder:
        trial = Trial(Path(folder), config, random.Random(given.seed))
        try:
            reported = tried(trial, given.kills)
        except Failed as error:
            reported = str(error)
    for what, count in Counter(kill.doing.split(",")[0] for kill in trial.kills).most_common():
        print(f"{what:<38} {count:>5}")
    print(
        reported
        or f"{len(trial.kills)} kills: every run ended with the same bits as the one that was "
        "left alone"
    )
    if given.json is not None:
        found = {
            "kills": [asdict(kill) for kill in trial.kills],
            "difference": reported,
            "config": config,
        }
        given.json.write_text(
            json.dumps(
                {**found, "seed": given.seed, "life_s": trial.life_s, "save_s": trial.save_s},
                indent=2,
            )
            + "\n"
        )
    return 1 if reported else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Does a run that is killed end with the same bits?"
    )
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the moments")
    parser.add_argument(
        "--compile", default="off", metavar="MODE", help="engine.compile of the runs (default off)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was hit there")
    return parser


def tried(trial: Trial, kills: int) -> str | None:
    """Kill and resume until there were enough kills; the first difference."""
    alone = trial.reference()
    number = 0
    while len(trial.kills) < kills:
        for kill in trial.killed(number, kills - len(trial.kills)):
            trial.kills.append(kill)
            print(
                f"{len(trial.kills):>4}  run {kill.run}  {kill.after_s:7.3f} s  "
                f"{kill.stood:<23}  {kill.doing}",
                flush=True,
            )
        differing = next(
            run_comparison.differences(alone, trial.folder / f"killed-{number}" / RUN), None
        )
        if differing is not None:
            return f"run {number} differs: {differing}"
        number += 1
    return None


if __name__ == "__main__":
    sys.exit(main())
