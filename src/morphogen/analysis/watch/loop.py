"""`morphogen watch`: read what is new, fold it, draw it; until the run has ended, or Ctrl-C."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from morphogen.analysis.console import writer
from morphogen.analysis.watch.cells import Frame
from morphogen.analysis.watch.draw import draw
from morphogen.analysis.watch.fold import update
from morphogen.analysis.watch.follow import Batch, Cursor, read
from morphogen.analysis.watch.view import View
from morphogen.errors import ConfigError
from morphogen.storage import run_directory
from morphogen.storage.safe_read import error_line, parse_json, read_bytes
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.fit import misfit
from morphogen.telemetry.kinds.run import RunStarted

POLL = 0.5  # seconds between two looks at a file that has nothing new


def events_of(run: Path) -> Path:
    """The event file of a run directory, there yet or not; a ConfigError where there will be none."""
    config = run / run_directory.CONFIG
    try:
        telemetry = parse_json(read_bytes(config)).get("telemetry", {})
        level, folder = telemetry.get("level"), Path(telemetry.get("dir") or run)
    except FileNotFoundError:
        return run / run_directory.EVENTS  # the run has not begun
    except (OSError, ValueError, AttributeError, TypeError) as error:
        told = f"RUN is {run}, whose {config.name} cannot be read: {error_line(error)}; want a run directory"
        raise ConfigError(told) from error
    if level == "off":
        raise ConfigError(f"RUN is {run}, whose telemetry.level is off; want minimal, normal or debug")
    return folder / run_directory.EVENTS


def folded(view: View, batch: Batch) -> View:
    """The view after a batch."""
    if batch.anew:
        return View()
    return reduce(_taken, batch.events, replace(view, unreadable=view.unreadable + batch.unreadable))


def _taken(view: View, event: Envelope) -> View:
    """The view after an event; one that does not fit the run is none."""
    start = event.data if isinstance(event.data, RunStarted) else view.started
    if start is not None and misfit(start, event):
        return replace(view, unreadable=view.unreadable + 1)
    return update(view, event)


def views(run: Path, *, once: bool, wait: Callable[[float], None]) -> Iterator[View]:
    """The view after each portion of the events, to the end of the run; `once`: to the end of what is there now."""
    cursor, view = Cursor(), View()
    while True:
        batch, cursor = read(events_of(run), cursor)
        view = folded(view, batch)
        yield view
        caught_up = batch == Batch()
        if caught_up and (once or view.ended is not None):
            return
        if caught_up:
            wait(POLL)


def watch(
    run: Path, *, once: bool = False, out: TextIO | None = None, wait: Callable[[float], None] = time.sleep
) -> None:
    """Show a run while it goes on, then its last screen, on `out` (stdout); `once`: only as it stands now.

    A terminal has one screen that is kept up to date; elsewhere there is a screen for every round that is over.
    """
    screen, view, events = writer(out or sys.stdout), View(), events_of(run)
    if events.parent != run:
        screen.print(f"events are read from {events}, which the config of {run} names", soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt), _shown(screen, run, once) as show:
        for view in views(run, once=once, wait=wait):
            show(view)
    screen.print(_drawn(view, run, screen))


@contextlib.contextmanager
def _shown(screen: Console, run: Path, once: bool) -> Iterator[Callable[[View], None]]:
    """How views are shown that are not the last."""
    if once:
        yield lambda view: None
    elif screen.is_terminal and not screen.is_dumb_terminal:
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            yield lambda view: live.update(_drawn(view, run, screen, height=screen.height), refresh=True)
    else:
        yield _Rounds(lambda view: screen.print(_drawn(view, run, screen)))


class _Rounds:
    """Shows a view for every round that is over; the end of the run is not its business."""

    def __init__(self, show: Callable[[View], None]) -> None:
        self._show, self._shown = show, 0

    def __call__(self, view: View) -> None:
        if view.rounds_done > self._shown and view.ended is None:
            self._show(view)
        self._shown = view.rounds_done


def _drawn(view: View, run: Path, screen: Console, *, height: int | None = None) -> RenderableType:
    frame = Frame(screen.width, height, ascii=screen.options.ascii_only)
    return draw(view, run=str(run), idle=_idle(run), frame=frame)


def _idle(run: Path) -> float:
    """Seconds since the last event was written."""
    with contextlib.suppress(OSError, ValueError):
        return time.time() - events_of(run).stat().st_mtime
    return 0.0
