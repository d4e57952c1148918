"""`morphogen watch`: read new events, fold them, draw the view; until the run ends, or Ctrl-C."""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple, TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from morphogen.analysis.console import open_console
from morphogen.analysis.run_log import record_events
from morphogen.analysis.watch.draw import ScreenFrame, draw
from morphogen.analysis.watch.view import RunView, update_view
from morphogen.errors import ConfigError, DataError
from morphogen.storage import run_directory
from morphogen.storage.files import MAX_BYTES, error_line, open_regular, parse_json, read_bytes
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode, find_misfit
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.telemetry.record_files import list_records
from morphogen.vocab.text import escape_text

POLL_S = 0.5  # seconds between two reads of a file without new events
CHUNK_BYTES = 1 << 20  # bytes of one read


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a file; `last`: the line that ends there, which identifies the file."""

    offset: int = 0  # bytes
    last: bytes = b""


class FollowBatch(NamedTuple):
    """Events of one read."""

    events: tuple[Envelope, ...] = ()
    unreadable: int = 0  # lines that are not events
    restarted: bool = False  # the file was cut or replaced: all its events come again


def read_lines(path: Path, cursor: Cursor, *, chunk: int = CHUNK_BYTES) -> tuple[tuple[bytes, ...], Cursor | None]:
    """Return the next complete lines, about a chunk, and the cursor after them; None for a file cut or replaced."""
    try:
        data = _read_bytes(path, cursor, chunk)
    except FileNotFoundError:
        return (), cursor if cursor == Cursor() else None
    if not data.startswith(cursor.last):
        return (), None
    fresh = data[len(cursor.last) : data.rfind(b"\n") + 1]
    lines = fresh.splitlines(keepends=True)
    return tuple(lines), Cursor(cursor.offset + len(fresh), lines[-1]) if lines else cursor


def _read_bytes(path: Path, cursor: Cursor, chunk: int) -> bytes:
    """Read the last line before the cursor and about a chunk more, to the end of a line or of the file."""
    with open_regular(path) as file:
        file.seek(cursor.offset - len(cursor.last))
        data = file.read(len(cursor.last) + chunk)
        more = b"" if b"\n" in data[len(cursor.last) :] else file.readline(MAX_BYTES)
    if len(more) == MAX_BYTES:
        raise OSError(errno.EFBIG, f"a line of more than {MAX_BYTES} bytes")
    return data + more


def read_new_events(path: Path, cursor: Cursor, *, chunk: int = CHUNK_BYTES) -> tuple[FollowBatch, Cursor]:
    """Read the next events of a file that may be absent, grow, be cut by a resume, or end inside a line."""
    try:
        lines, after = read_lines(path, cursor, chunk=chunk)
    except OSError as error:
        raise ConfigError(f"{path}: expected the event file of a run: {error_line(error)}") from error
    if after is None:
        return FollowBatch(restarted=True), Cursor()
    events = tuple(event for event in map(_decode_event, lines) if event is not None)
    return FollowBatch(events, unreadable=len(lines) - len(events)), after


def _decode_event(line: bytes) -> Envelope | None:
    try:
        return decode(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None


def event_file(run: Path) -> Path:
    """Path of the event file of a run directory; raise ConfigError for a run without one."""
    config = run / run_directory.CONFIG
    try:
        telemetry = parse_json(read_bytes(config)).get("telemetry", {})
        level, folder = telemetry.get("level"), run_directory.events_folder(run, telemetry.get("dir"))
    except FileNotFoundError:
        return run / run_directory.EVENTS  # the run has not begun
    except (OSError, ValueError, AttributeError, TypeError) as error:
        message = f"RUN: expected a run directory, got {run}, whose {config.name} cannot be read: {error_line(error)}"
        raise ConfigError(message) from error
    if level == "off":
        raise ConfigError(f"RUN: expected a run with telemetry.level minimal, normal or debug, got {run} with off")
    return folder / run_directory.EVENTS


class RecordCursor(NamedTuple):
    """Position in the records of a run: what of them was shown."""

    round: int = 0
    epochs: int = 0  # of this round
    version: tuple[int, int] = (0, 0)  # of its files when they were read: time of the last write in ns, bytes


def fold_batch(view: RunView, batch: FollowBatch, folder: Path, cursor: RecordCursor) -> tuple[RunView, RecordCursor]:
    """Fold a batch into the view, and before the events of a round those of its record."""
    if batch.restarted:
        return RunView(), RecordCursor()
    view, round = replace(view, unreadable=view.unreadable + batch.unreadable), None
    records = list_records(folder)
    for event in batch.events:
        if event.epoch is not None and event.round in records:
            continue  # the record has it
        if event.round is not None and event.round != round:
            view, cursor = _fold_records(view, folder, cursor, round := event.round)
        view = _apply_event(view, event)
    return _fold_records(view, folder, cursor, None)


def _fold_records(view: RunView, folder: Path, cursor: RecordCursor, last: int | None) -> tuple[RunView, RecordCursor]:
    """Fold new events of records into the view, up to the round `last`; None: all, that of a round that goes on too."""
    start = view.started
    if start is None:
        return view, cursor
    for round, paths in list_records(folder).items():
        if round < cursor.round or (last is not None and round > last):
            continue
        first, shown = (cursor.epochs, cursor.version) if round == cursor.round else (0, (0, 0))
        try:
            files = [path.stat() for path in paths]
            version = max(file.st_mtime_ns for file in files), sum(file.st_size for file in files)
            if version == shown:
                continue
            events = list(record_events(paths, start, first_epoch=first))
        except (DataError, FileNotFoundError):  # cut by a resume meanwhile, or damaged
            return replace(view, unreadable=view.unreadable + 1), RecordCursor(round + 1)
        view = reduce(update_view, events, view)
        cursor = RecordCursor(round, 1 + max((event.epoch or 0 for event in events), default=first - 1), version)
    return view, cursor


def _apply_event(view: RunView, event: Envelope) -> RunView:
    """Fold an event into the view; count an event that does not fit the run as unreadable."""
    start = event.data if isinstance(event.data, RunStarted) else view.started
    if start is not None and find_misfit(start, event):
        return replace(view, unreadable=view.unreadable + 1)
    return update_view(view, event)


def follow_views(
    run: Path, *, once: bool, wait: Callable[[float], None], is_over: Callable[[], bool]
) -> Iterator[RunView]:
    """Yield the view after each batch, to the end of the run; `once`: to the current end of the file."""
    cursor, view, shown = Cursor(), RunView(), RecordCursor()
    while True:
        path = event_file(run)
        batch, cursor = read_new_events(path, cursor)
        view, shown = fold_batch(view, batch, path.parent, shown)
        yield view
        caught_up = batch == FollowBatch()
        if is_over() or (caught_up and (once or view.ended is not None)):
            return
        if caught_up:
            wait(POLL_S)


def _check_run(run: Path) -> None:
    """Raise a ConfigError for a path that is no run directory, nor an empty folder in which a run may begin."""
    if not os.path.lexists(run):
        raise ConfigError(f"RUN: expected a run directory, got {run}, which does not exist")
    if not os.path.isdir(run):
        return  # its config cannot be read
    run_directory.refuse_links(run)
    names = os.listdir(run)
    if names and {run_directory.CONFIG, run_directory.LOCK}.isdisjoint(names):
        raise ConfigError(f"RUN: expected a run directory, got {run}, which has no {run_directory.CONFIG}")


def watch(
    run: Path,
    *,
    once: bool = False,
    out: TextIO | None = None,
    wait: Callable[[float], None] = time.sleep,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Show a run until it ends or `is_over`, then its last screen, on `out` (stdout); `once`: the current state only.

    A terminal shows one screen, updated in place; other outputs get a screen per completed round.
    """
    _check_run(run)
    screen, view, events = open_console(out or sys.stdout), RunView(), event_file(run)
    if events.parent != run:
        place = escape_text(f"events are read from {events}, which the config of {run} names")
        screen.print(place, soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt), _open_display(screen, run, once) as show:
        for view in follow_views(run, once=once, wait=wait, is_over=is_over):
            show(view)
    screen.print(_render(view, run, screen))


@contextlib.contextmanager
def _open_display(screen: Console, run: Path, once: bool) -> Iterator[Callable[[RunView], None]]:
    """Open the display for all views but the last."""
    if once:
        yield lambda view: None
    elif screen.is_terminal and not screen.is_dumb_terminal:
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            yield lambda view: live.update(_render(view, run, screen, height=screen.height), refresh=True)
    else:
        shown = 0

        def show_round(view: RunView) -> None:
            """Show a view per completed round, except after the end of the run."""
            nonlocal shown
            if view.rounds_done > shown and view.ended is None:
                screen.print(_render(view, run, screen))
            shown = view.rounds_done

        yield show_round


def _render(view: RunView, run: Path, screen: Console, *, height: int | None = None) -> RenderableType:
    frame = ScreenFrame(screen.width, height, ascii=screen.options.ascii_only)
    return draw(view, run=escape_text(str(run)), idle=_idle_seconds(run), frame=frame)


def _idle_seconds(run: Path) -> float:
    """Seconds since the last write to the event file."""
    with contextlib.suppress(OSError, ValueError):
        return time.time() - event_file(run).stat().st_mtime
    return 0.0
