"""The table of `morphogen watch`, and the loop that draws it again when the log of the run
grows.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from pydantic import with_config
from rich import box
from rich.live import Live
from rich.table import Table
from typing_extensions import TypedDict

from morphogen.config.telemetry_spec import LEVEL_OFF
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.log.console import format_number, open_console, round_number
from morphogen.log.events import Envelope
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import RunCompleted, RunResumed, RunStarted
from morphogen.log.run_log import LOOSE, event_folder, open_run, read_events, read_object
from morphogen.vocab.objective import ACCURACY
from morphogen.vocab.text import escape_text

POLL_S = 1.0  # seconds between two looks at the log
COLUMNS = {  # heading -> field of a summary, and digits of its number
    "{score} %": ("accuracy_mean", 1),
    "committed %": ("committed_mean", 1),
    "value": ("network_value_mean", 3),
    "return": ("return_mean", 3),
    "alive": ("live", 0),
    "kept": ("fossilized", 0),
    "pruned": ("pruned", 0),
    "rolled back": ("rollbacks", 0),
    "rate": ("env_epochs_per_s", 0),
}


@with_config(LOOSE)
class WatchedManifest(TypedDict, total=False):
    """Entry of the manifest of a run that the table shows."""

    score: str


def draw(
    events: Iterable[Envelope], name: str, rows: int | None = None, *, score: str = ACCURACY
) -> tuple[Table, bool]:
    """Return the table of a run, its last rounds if `rows` is set, and whether the run is over.

    score: name of the score of its task.
    """
    summaries: list[BatchSummary] = []
    rounds = 0
    status = "not started"
    for event in events:
        match event.data:
            case RunStarted() as data:
                rounds = data.rounds
                status = "running"
                summaries = []
            case RunResumed() as data:
                rounds = data.rounds
                status = "running"
            case RunCompleted() as data:
                status = data.status if data.error is None else f"{data.status}: {data.error}"
            case BatchSummary() as data:
                summaries.append(data)
            case _:
                pass
    table = Table(title=escape_text(name), title_justify="left", box=box.SIMPLE)
    for column in ("round", *COLUMNS, "alarms"):
        heading = column.format(score=escape_text(score))
        table.add_column(heading, justify="left" if column == "alarms" else "right", no_wrap=True)
    for summary in summaries if rows is None else summaries[-rows:]:
        numbers = [
            format_number(getattr(summary, name), digits) for name, digits in COLUMNS.values()
        ]
        number = str(round_number(summary.round))
        table.add_row(number, *numbers, ", ".join(summary.anomalies))
    table.caption = escape_text(f"{status}, {len(summaries)} of {rounds} rounds")
    return table, status not in ("running", "not started")


def event_file(run: Path) -> Path:
    """Return the event file of a run directory, which may be empty yet.  Raises: ConfigError for
    another path.
    """
    if os.path.isdir(run):
        names = os.listdir(run)
        if not names or (run_directory.LOCK in names and run_directory.CONFIG not in names):
            run_directory.refuse_links(run)
            return run / run_directory.EVENTS  # the run has not begun
    config = open_run(run)
    if config["telemetry"]["level"] == LEVEL_OFF:
        raise ConfigError(f"RUN: expected a run with telemetry.level normal, got {run} with off")
    return event_folder(run, config) / run_directory.EVENTS


def watch(
    run: Path,
    *,
    once: bool = False,
    out: TextIO | None = None,
    wait: Callable[[float], None] = time.sleep,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Show the table of a run on `out` (stdout) until the run ends or `is_over`; `once`: as it is
    now.

    `Live` draws the table again on a terminal, and prints the last one anywhere else.
    """
    screen = open_console(out or sys.stdout)
    path = event_file(run)
    if path.parent != run:
        screen.print(
            escape_text(f"events are read from {path}, which the config of {run} names"),
            soft_wrap=True,
        )
    rows = None if once or not screen.is_terminal else max(3, screen.height - 8)
    shown: tuple[int, int] | None = None
    has_ended = False
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            path = event_file(run)
            version = (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else (0, 0)
            if version != shown:
                manifest = read_object(run / run_directory.MANIFEST, WatchedManifest)
                score = manifest.get("score", ACCURACY)
                table, has_ended = draw(read_events(path), str(run), rows, score=score)
                live.update(table, refresh=True)
                shown = version
            if once or has_ended or is_over():
                return
            wait(POLL_S)
