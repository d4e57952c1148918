"""Processes of their own: what is set before torch is imported, and what a call leaves behind ends with them."""

import importlib
import multiprocessing
import os
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

from morphogen.errors import DeviceError

_SPAWN = multiprocessing.get_context("spawn")


def set_threads(threads: int | None) -> None:
    """Torch reads these when it is imported; without a number it takes one thread per core."""
    if threads is not None:
        os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))


def run_in_process(module: str, function: str, *args: Any, threads: int | None) -> Any:
    """Call `home.name(*given)` in a new process that has imported nothing yet, and return or raise its result."""
    ours, theirs = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_serve_call, args=(theirs, module, function, args, threads))
    process.start()
    theirs.close()
    try:
        found, error = ours.recv()
    except EOFError:
        process.join()
        raise DeviceError(f"a process ended with {process.exitcode}; -9 is how one ends for want of memory") from None
    except BaseException:  # whoever waits here is stopped, and nobody else wants the answer
        process.terminate()
        raise
    process.join()
    if error is not None:
        raise error
    return found


def _serve_call(pipe: Connection, module: str, function: str, args: tuple[Any, ...], threads: int | None) -> None:
    """The whole life of such a process.  What interrupts the command ends it from outside."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_threads(threads)
    found, error = None, None
    try:
        found = getattr(importlib.import_module(module), function)(*args)
    except Exception as cause:
        cause.add_note(traceback.format_exc())
        error = cause
    pipe.send((found, error))
