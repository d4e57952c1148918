"""Processes that die, or that the disk refuses, in the middle of what they do: forked, so that the
tests live on.
"""

import errno
import itertools
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from morphogen.errors import CheckpointError

# exit codes: refused by a CheckpointError; broken by any other
DONE, REFUSED, BROKEN, DEAD = 0, 4, 70, 9
CUT = -signal.SIGXFSZ  # exit code of a process that dies while it writes

Act = Callable[[], object]


def forked(act: Act) -> int:
    """The exit code of a new process that does nothing else."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        # threads that wait for work do no harm here
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os._exit(_code(act))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _code(act: Act) -> int:
    try:
        act()
    except CheckpointError:
        return REFUSED
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        return BROKEN
    return DONE


def die() -> None:
    os._exit(DEAD)


def refuse() -> None:
    """As a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def at_operation(number: int, then: Act, act: Act) -> Act:
    """`act`, with `then` just before its file operation `number`, counted from 1.  To be forked: it
    stays so.
    """
    count = itertools.count(1)

    def operation(*_: Any) -> None:
        if next(count) == number:
            then()

    def hook(name: str, _: Any) -> None:
        if name == "open" or name.startswith(("os.", "shutil.")):
            operation()

    def prepared() -> None:
        os.fsync = _after(operation, os.fsync)  # which no hook sees
        sys.addaudithook(hook)
        act()

    return prepared


def _after(first: Act, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        first()
        return real(*args, **more)

    return call


def at_byte(number: int, act: Act, *, dies: bool) -> Act:
    """`act`, with no room for more than `number` bytes in any file: there it dies, or is refused.
    To be forked.
    """

    def prepared() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if dies else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
        act()

    return prepared
