"""Stop signals: the first one asks a run to stop where it can go on again, the second one stops it at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAID = b"morphogen: stopping after this epoch; once more stops at once\n"
STDERR = 2


class Stop:
    """Hears SIGINT and SIGTERM while it is entered; in another thread than the main one it hears nothing.

    `asked` is the exit code that the first signal asks for, 130 or 143.  The second one raises KeyboardInterrupt or
    SystemExit(143).  What is ignored stays ignored, as Ctrl-C is in the background.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._listen(number)
        return self

    def __exit__(self, *raised: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _listen(self, number: int) -> None:
        before = signal.getsignal(number)
        if before not in (None, signal.SIG_IGN):  # None: a handler that is not Python's, and cannot be put back
            self._before[number] = before
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        code = 128 + number
        if self.asked is None:
            self.asked = code
            _say(SAID)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(code)


def _say(text: bytes) -> None:
    """Past Python's buffers, which the signal may have come in the middle of; below the ^C of a terminal."""
    with contextlib.suppress(OSError):
        os.write(STDERR, b"\n" + text if os.isatty(STDERR) else text)
