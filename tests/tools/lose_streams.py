"""The stream test: whatever happens to the standard streams of a command, it has the result of
an undisturbed one.

    PYTHONPATH=tests python tests/tools/lose_streams.py

Each command runs with each of stdin, stdout and stderr closed, full, broken in the middle and slow,
on a copy of the same run; then its files are compared with the files of the command that was left
alone.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

from support import run_comparison
from support.forked_commands import Ended
from support.standard_streams import FAULTS, NAMES, run_with

from morphogen.cli.command_table import list_commands

SMALL = [
    "--task",
    "tiny",
    "--envs",
    "2",
    "--episode-length",
    "4",
    "--final-episodes",
    "2",
    "--set",
    "telemetry.level=normal",
]
COMMANDS = {
    "train": ["train", *SMALL, "--out", "run"],
    "resume": ["resume", "run", "--extend-rounds", "1"],
    "evaluate": ["evaluate", "run", "--episodes", "2", "--arms", "wait"],
    "compare": ["compare", "run", "other", "--episodes", "2", "--json", "numbers.json"],
    "watch": ["watch", "run"],
    "report": ["report", "run"],
}
COMMANDS = {name: words for name, words in COMMANDS.items() if name in list_commands()}
WRITTEN = {
    "evaluate": "run/evaluation.json",
    "compare": "numbers.json",
    "report": "run/report/index.html",
}
LOST = 7  # exit code of a command whose output could not be written


class Trial:
    """Commands in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alone = cache(self._alone)

    def place(self, name: str, command: str) -> Path:
        """A folder with what a command needs."""
        place = self.folder / name
        place.mkdir(parents=True)
        if command != "train":
            shutil.copytree(self.alone("train") / "run", place / "run")
            shutil.copytree(place / "run", place / "other")
        return place

    def _alone(self, command: str) -> Path:
        """A command that is left alone."""
        place = self.place(f"alone-{command}", command)
        ended = run_with("stdin", "closed", COMMANDS[command], place)
        if ended.returncode:
            raise RuntimeError(f"{command} ended with {ended.returncode}: {ended.stderr}")
        return place

    def fault(self, command: str, stream: str, fault: str) -> str | None:
        """Fault of a command whose stream is out of order; None without one."""
        reference = self.alone(command)
        place = self.place(f"{command}-{stream}-{fault}", command)
        ended = run_with(stream, fault, COMMANDS[command], place)
        wrong = self._wrong_exit(ended, command, stream, fault)
        if wrong is None and command in ("train", "resume"):
            wrong = next(run_comparison.differences(reference / "run", place / "run"), None)
        elif wrong is None and command in WRITTEN:
            wrong = difference(reference / WRITTEN[command], place / WRITTEN[command])
        shutil.rmtree(place)
        return wrong

    def _wrong_exit(self, ended: Ended, command: str, stream: str, fault: str) -> str | None:
        lost = fault == "full" and (
            stream == "stdout" or (stream == "stderr" and command not in ("watch", "report"))
        )
        wanted = LOST if lost else 0
        said = f"{ended.stdout}\n{ended.stderr}"
        if ended.returncode != wanted:
            return f"exit code {ended.returncode}, expected {wanted}: {said}"
        line = f"morphogen: error: {stream} could not be written: No space left on device\n"
        if lost and stream == "stdout" and not ended.stderr.endswith(line):
            return f"the loss is not reported: {said}"
        return f"a traceback: {said}" if "Traceback" in said else None


def difference(one: Path, other: Path) -> str | None:
    """Difference between two files, clocks aside; None without one."""
    if one.suffix != ".json":
        return None if other.stat().st_size > 0 else f"{other.name} is empty"
    left, right = (run_comparison.timeless(json.loads(path.read_text())) for path in (one, other))
    return None if left == right else f"{one.name} differs"


def cases() -> Iterator[tuple[str, str, str]]:
    """Every command with every stream in every state; input is never full."""
    for command, stream, fault in product(COMMANDS, NAMES, FAULTS):
        if (stream, fault) != ("stdin", "full"):
            yield command, stream, fault


def main() -> int:
    """Run every case; print what was wrong; 1 if anything was."""
    faults = 0
    with tempfile.TemporaryDirectory(prefix="streams-") as folder:
        trial = Trial(Path(folder))
        for command, stream, fault in cases():
            wrong = trial.fault(command, stream, fault)
            faults += wrong is not None
            print(f"{command:<10}{stream:<8}{fault:<8}{wrong or 'as if it were whole'}", flush=True)
    print(f"{faults} faults")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
