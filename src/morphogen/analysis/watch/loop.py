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

from morphogen.analysis.console import open_console
from morphogen.analysis.watch.cells import ScreenFrame
from morphogen.analysis.watch.draw import draw
from morphogen.analysis.watch.fold import update_view
from morphogen.analysis.watch.follow import Cursor, FollowBatch, read_new_events
from morphogen.analysis.watch.view import RunView
from morphogen.errors import ConfigError
from morphogen.storage import run_directory
from morphogen.storage.safe_read import error_line, parse_json, read_bytes
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import find_misfit
from morphogen.telemetry.kinds.run import RunStarted

POLL_S = 0.5  # seconds between two looks at a file that has nothing new


def event_file(run: Path) -> Path:
    """The event file of a run directory, there yet or not; a ConfigError where there will be none."""
    config = run / run_directory.CONFIG
    try:
        telemetry = parse_json(read_bytes(config)).get("telemetry", {})
        level, folder = telemetry.get("level"), run_directory.events_folder(run, telemetry.get("dir"))
    except FileNotFoundError:
        return run / run_directory.EVENTS  # the run has not begun
    except (OSError, ValueError, AttributeError, TypeError) as error:
        told = f"RUN is {run}, whose {config.name} cannot be read: {error_line(error)}; want a run directory"
        raise ConfigError(told) from error
    if level == "off":
        raise ConfigError(f"RUN is {run}, whose telemetry.level is off; want minimal, normal or debug")
    return folder / run_directory.EVENTS


def fold_batch(view: RunView, batch: FollowBatch) -> RunView:
    """The view after a batch."""
    if batch.restarted:
        return RunView()
    return reduce(_apply_event, batch.events, replace(view, unreadable=view.unreadable + batch.unreadable))


def _apply_event(view: RunView, event: Envelope) -> RunView:
    """The view after an event; one that does not fit the run is none."""
    start = event.data if isinstance(event.data, RunStarted) else view.started
    if start is not None and find_misfit(start, event):
        return replace(view, unreadable=view.unreadable + 1)
    return update_view(view, event)


def follow_views(run: Path, *, once: bool, wait: Callable[[float], None]) -> Iterator[RunView]:
    """The view after each portion of the events, to the end of the run; `once`: to the end of what is there now."""
    cursor, view = Cursor(), RunView()
    while True:
        batch, cursor = read_new_events(event_file(run), cursor)
        view = fold_batch(view, batch)
        yield view
        caught_up = batch == FollowBatch()
        if caught_up and (once or view.ended is not None):
            return
        if caught_up:
            wait(POLL_S)


def watch(
    run: Path, *, once: bool = False, out: TextIO | None = None, wait: Callable[[float], None] = time.sleep
) -> None:
    """Show a run while it goes on, then its last screen, on `out` (stdout); `once`: only as it stands now.

    A terminal has one screen that is kept up to date; elsewhere there is a screen for every round that is over.
    """
    screen, view, events = open_console(out or sys.stdout), RunView(), event_file(run)
    if events.parent != run:
        screen.print(f"events are read from {events}, which the config of {run} names", soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt), _open_display(screen, run, once) as show:
        for view in follow_views(run, once=once, wait=wait):
            show(view)
    screen.print(_render(view, run, screen))


@contextlib.contextmanager
def _open_display(screen: Console, run: Path, once: bool) -> Iterator[Callable[[RunView], None]]:
    """Open the display for views before the last one."""
    if once:
        yield lambda view: None
    elif screen.is_terminal and not screen.is_dumb_terminal:
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            yield lambda view: live.update(_render(view, run, screen, height=screen.height), refresh=True)
    else:
        yield _RoundDisplay(lambda view: screen.print(_render(view, run, screen)))


class _RoundDisplay:
    """Shows a view for every round that is over; the end of the run is not its business."""

    def __init__(self, show: Callable[[RunView], None]) -> None:
        self._show, self._shown = show, 0

    def __call__(self, view: RunView) -> None:
        if view.rounds_done > self._shown and view.ended is None:
            self._show(view)
        self._shown = view.rounds_done


def _render(view: RunView, run: Path, screen: Console, *, height: int | None = None) -> RenderableType:
    frame = ScreenFrame(screen.width, height, ascii=screen.options.ascii_only)
    return draw(view, run=str(run), idle=_idle_seconds(run), frame=frame)


def _idle_seconds(run: Path) -> float:
    """Seconds since the last event was written."""
    with contextlib.suppress(OSError, ValueError):
        return time.time() - event_file(run).stat().st_mtime
    return 0.0
