"""Stop signals: the first one asks a run to stop where it can go on again, the second one stops it at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOP_MESSAGE = b"morphogen: stopping after this epoch; once more stops at once\n"
STDERR_FD = 2


class StopSignals:
    """Hears SIGINT and SIGTERM while it is entered; in another thread than the main one it hears nothing.

    `asked` is the exit code that the first signal asks for, 130 or 143.  The second one raises KeyboardInterrupt or
    SystemExit(143).  What is ignored stays ignored, as Ctrl-C is in the background.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._previous_handlers: dict[int, Callable[[int, FrameType | None], Any] | int] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._install_handler(number)
        return self

    def __exit__(self, *raised: object) -> None:
        while self._previous_handlers:
            signal.signal(*self._previous_handlers.popitem())

    def _install_handler(self, number: int) -> None:
        before = signal.getsignal(number)
        if before not in (None, signal.SIG_IGN):  # None: a handler that is not Python's, and cannot be put back
            self._previous_handlers[number] = before
            signal.signal(number, self._handle_signal)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        code = 128 + number
        if self.exit_code is None:
            self.exit_code = code
            _write_stderr(STOP_MESSAGE)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(code)


def _write_stderr(text: bytes) -> None:
    """Past Python's buffers, which the signal may have come in the middle of; below the ^C of a terminal."""
    with contextlib.suppress(OSError):
        os.write(STDERR_FD, b"\n" + text if os.isatty(STDERR_FD) else text)
