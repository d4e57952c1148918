"""The report of runs: pictures with their numbers, and one page with all of them.  No torch; matplotlib on use only."""

import csv
import importlib
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from morphogen.analysis.overview import overview
from morphogen.analysis.page import Section, render_page
from morphogen.analysis.run_log import RunLog, read_run
from morphogen.analysis.tables import Row
from morphogen.errors import ConfigError
from morphogen.storage import atomic_write

FOLDER, PAGE, EXTRA = "report", "index.html", "report"
MAX_RUNS = 7  # that have a colour each
MAX_NAME_LENGTH = 20  # letters of a name in a legend


def report(*dirs: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of run directories, for one or side by side; the path of its page.

    `out`: default `report` in the first of them.  The same logs give the same bytes.
    """
    if not 1 <= len(dirs) <= MAX_RUNS:
        raise ConfigError(f"report has {len(dirs)} run directories; want 1 .. {MAX_RUNS}, told apart by their colours")
    plots = _import_plots()
    logs = _name_logs([read_run(Path(path)) for path in dirs])
    folder = Path(dirs[0]) / FOLDER if out is None else Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sections = [_write_section(plot, logs, folder) for plot in plots.PLOTS]
        facts = {name: overview(log) for name, log in logs.items()}
        atomic_write.write_atomic(folder / PAGE, render_page(facts, sections).encode("utf-8"))
    except OSError as error:
        raise ConfigError(f"--out is {folder}; it cannot be written: {error.strerror}") from error
    return folder / PAGE


def _import_plots() -> Any:
    """Import the plots, which need a package that a run does not."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"morphogen report needs matplotlib; want the extra: pip install 'morphogen[{EXTRA}]'")
    return importlib.import_module("morphogen.analysis.plots.figure_table")


def _name_logs(logs: Sequence[RunLog]) -> dict[str, RunLog]:
    """Logs by the names of their directories; by a letter where those are the same, or too long for a legend."""
    paths = [log.path.resolve() for log in logs]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"report has the run directories {', '.join(map(str, paths))}; want each of them once")
    names = [path.name for path in paths]
    fitting = len(set(names)) == len(names) and max(map(len, names)) <= MAX_NAME_LENGTH
    if not fitting and len(names) > 1:
        names = [f"run {letter}" for letter, _ in zip(ascii_uppercase, names, strict=False)]
    return dict(zip(names, logs, strict=True))


def _write_section(plot: Any, logs: dict[str, RunLog], folder: Path) -> Section:
    """Write the picture and the numbers of a plot; without numbers there is neither."""
    found = {run: rows for run, log in logs.items() if (rows := plot.rows(log))}
    picture, numbers = folder / f"{plot.name}.png", folder / f"{plot.name}.csv"
    if not found:
        picture.unlink(missing_ok=True)
        numbers.unlink(missing_ok=True)
        return Section(plot.name, plot.title, plot.text, None, {})
    image = plot.render_png(found)
    atomic_write.write_atomic(picture, image)
    atomic_write.write_atomic(numbers, _encode_csv(found))
    return Section(plot.name, plot.title, plot.text, image, {run: plot.table(logs[run]) for run in found})


def _encode_csv(found: dict[str, list[Row]]) -> bytes:
    """The rows of all runs under the columns of all of them; empty where nothing was measured."""
    rows = [{"run": run, **row} for run, part in found.items() for row in part]
    file = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode("utf-8")
