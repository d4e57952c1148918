"""Process of a command: signals, threads, notes and tables on the terminal."""

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from morphogen.cli import streams
from morphogen.config import files
from morphogen.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    RankError,
    TrainingDiverged,
)
from morphogen.train.stop_signals import ENDING_SIGNALS, SIGNAL_CODE
from morphogen.vocab.text import escape_text

EXITS: dict[type[Exception], int] = {
    ConfigError: 2,
    DataError: 3,
    CheckpointError: 4,
    TrainingDiverged: 5,
    RankError: 8,
}
UNEXPECTED = 1  # exit code after a traceback
OUTPUT_LOST = 7  # exit code


def exit_on_signals() -> None:
    """End the process on a signal by SystemExit with 128 and its number, so that contexts are left
    properly.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, frame: sys.exit(SIGNAL_CODE + number))


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error of the user."""
    return next(code for kind, code in EXITS.items() if isinstance(error, kind))


def print_error(error: BaseException) -> None:
    """Print the lines of an error of the user to stderr."""
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"morphogen: error: {escape_text(line)}", file=sys.stderr)


def finish(code: int) -> int:
    """Write all output; return the exit code of the process, which says whether output was lost."""
    sys.stdout.flush()
    losses = [line for line in map(streams.describe_loss, ("stdout", "stderr")) if line is not None]
    for line in losses:
        print(f"morphogen: error: {line}", file=sys.stderr)
    sys.stderr.flush()
    return code or (OUTPUT_LOST if losses else 0)


def set_threads(threads: int | None) -> None:
    """Set the threads of torch, in the environment that it reads at import; without a number the
    environment decides.

    A file of `--import` may have loaded torch before.
    """
    if threads is not None:
        os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    number = os.environ.get("OMP_NUM_THREADS", "")
    if "torch" in sys.modules and number.isdecimal():
        import_module("torch").set_num_threads(int(number))


def print_notes(lines: Iterable[str]) -> None:
    """Print notes, which do not stop a command, to stderr."""
    for line in lines:
        print(f"morphogen: note: {escape_text(line)}", file=sys.stderr)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the block as notes, without their places in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *place, **where: print_notes([str(message)])
        yield


def note_missing_kernels() -> None:
    """Print a note if the compiled kernels are missing."""
    if not import_module("morphogen.kernels").AVAILABLE:
        print_notes(
            [
                "compiled kernels are missing, plain torch is slower: install a C compiler, "
                "then morphogen again"
            ]
        )


def print_progress(line: str) -> None:
    """Print a line to stderr at once."""
    print(escape_text(line), file=sys.stderr, flush=True)


def print_tables(tables: Iterable[tuple[str, Any]]) -> None:
    """Print tables to stdout.  tables: titles and rows."""
    console = import_module("morphogen.log.console").Console()
    for title, rows in tables:
        console.print_table(rows, title=title)


def print_json(value: Any) -> None:
    """Print a value as a JSON document to stdout."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_json(path: Path | None, value: Any) -> None:
    """Write a JSON file, and the folders above it, if a path is set."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, files.json_bytes(value))
