"""Process of a command: signals, threads, child processes, notes and tables on the terminal."""

import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from morphogen.cli import streams
from morphogen.config import files, part_files
from morphogen.config.reference import explain_fault
from morphogen.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
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
_SPAWN = multiprocessing.get_context("spawn")


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
        meaning = explain_fault(line) if isinstance(error, ConfigError) else None
        note = f" ({meaning})" if meaning else ""
        print(f"morphogen: error: {escape_text(line)}{note}", file=sys.stderr)


def finish(code: int) -> int:
    """Write all output; return the exit code of the process, which says whether output was lost."""
    sys.stdout.flush()
    losses = [
        line for line in map(streams.describe_loss, (sys.stdout, sys.stderr)) if line is not None
    ]
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


def run_in_process(module: str, function: str, *args: Any, threads: int | None) -> Any:
    """Call `module.function(*args)` in a new process without imports, and return or raise its
    result.
    """
    ours, theirs = _SPAWN.Pipe(duplex=False)
    call = (module, function, args)
    process = _SPAWN.Process(target=_serve_call, args=(theirs, call, threads, part_files.IMPORTED))
    process.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        process.join()
        raise DeviceError(
            f"worker exited with {process.exitcode} (-9: usually out of memory)"
        ) from None
    except BaseException:  # the command is stopped, and the result has no other reader
        process.terminate()
        raise
    process.join()
    if error is not None:
        raise error
    return result


def _serve_call(
    pipe: Connection,
    call: tuple[str, str, tuple[Any, ...]],
    threads: int | None,
    imports: Sequence[str],
) -> None:
    """Body of a child process.  SIGINT is left to the parent, which terminates the child.

    call: module, function and arguments; imports: files and modules with parts.
    """
    module, function, args = call
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_threads(threads)
    result = None
    error = None
    try:
        for name in imports:
            part_files.import_parts(name)
        result = getattr(import_module(module), function)(*args)
    except Exception as cause:
        cause.add_note(traceback.format_exc())
        error = cause
    pipe.send((result, error))


def print_notes(lines: Iterable[str]) -> None:
    """Print notes, which do not stop a command, to stderr."""
    for line in lines:
        print(f"morphogen: note: {escape_text(line)}", file=sys.stderr)


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
