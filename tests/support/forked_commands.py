"""The command `morphogen` in processes of its own, forked from a server that has loaded torch."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from support.subprocess_env import OURS

from morphogen.cli.main import run_process

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "torch", "morphogen.train.train", "morphogen.evaluation.play"]
)
PATIENCE_S = 120


class Ended(NamedTuple):
    """Exit code of a command, and its output."""

    returncode: int
    stdout: str
    stderr: str


def start_command(
    folder: Path,
    words: Sequence[str],
    streams: Sequence[Path | str | None] = 3 * (os.devnull,),
    **variables: str,
) -> BaseProcess:
    """Start a command in a folder.

    streams: files, or pipes with a name, of stdin, stdout and stderr; None closes a stream.
    variables: of the environment.
    """
    environment = {**OURS, **variables}
    process = FORKS.Process(target=_run_command, args=(folder, words, streams, environment))
    process.start()
    return process


def _run_command(
    folder: Path,
    words: Sequence[str],
    streams: Sequence[Path | str | None],
    environment: dict[str, str],
) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    for number, (name, path) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        if path is None:
            os.close(number)
            setattr(sys, name, None)
        else:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    sys.argv = ["morphogen", *words]
    sys.exit(run_process())


def run_command(folder: Path, *words: str, **variables: str) -> Ended:
    """Run a command in a folder to its end."""
    with tempfile.TemporaryDirectory() as outputs:
        files = [Path(outputs, name) for name in ("stdout", "stderr")]
        code = wait_for(start_command(folder, words, (os.devnull, *files), **variables))
        return Ended(code, *(file.read_text() for file in files))


def wait_for(process: BaseProcess) -> int:
    """Wait for the end of a process; return its exit code."""
    process.join(PATIENCE_S)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"a command did not end within {PATIENCE_S} s")
    return process.exitcode
