"""Signals that stop a run where it can be resumed."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

# USR1, USR2 and XCPU are warnings of batch systems, such as SLURM and submitit, that the time of a
# job is nearly over.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
SIGNALS = (signal.SIGINT, *ENDING_SIGNALS)
STOP_MESSAGE = b"morphogen: stopping after this epoch; once more stops at once\n"
STDERR_FD = 2
SIGNAL_CODE = 128  # exit code of a stop by a signal, plus its number


class StopSignals:
    """Context that receives SIGINT and signals that end a process; without effect outside the main
    thread.

    The first signal sets `exit_code` to 128 and its number: a run stops where it can resume.  The
    second one raises KeyboardInterrupt or SystemExit with that code.  Ignored signals stay ignored,
    as Ctrl-C in the background.
    """

    def __init__(self, numbers: Sequence[int] = SIGNALS, *, quiet: bool = False) -> None:
        """Take the signals to receive.  quiet: the first one prints nothing."""
        self._numbers = numbers
        self._quiet = quiet
        self.exit_code: int | None = None
        self._previous_handlers: dict[int, Callable[[int, FrameType | None], Any] | int] = {}

    def __enter__(self) -> "StopSignals":
        for number in (
            self._numbers if threading.current_thread() is threading.main_thread() else ()
        ):
            before = signal.getsignal(number)
            # None: a handler outside Python, which cannot be restored
            if before not in (None, signal.SIG_IGN):
                self._previous_handlers[number] = before
                signal.signal(number, self._handle_signal)
        return self

    def __exit__(self, *raised: object) -> None:
        while self._previous_handlers:
            signal.signal(*self._previous_handlers.popitem())

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        code = SIGNAL_CODE + number
        if self.exit_code is None:
            self.exit_code = code
            # below the ^C of a terminal
            message = b"" if self._quiet else b"\n" * os.isatty(STDERR_FD) + STOP_MESSAGE
            # past Python's buffers, which the signal may have interrupted
            with contextlib.suppress(OSError):
                os.write(STDERR_FD, message)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(code)
