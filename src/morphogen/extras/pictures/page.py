"""Report of runs: pictures, their numbers, and one HTML page with all of them, without scripts or
links to other places.
"""

import base64
import contextlib
import csv
import importlib.util
import io
import os
import sys
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from string import Template, ascii_uppercase
from typing import Any

from morphogen.config import files
from morphogen.errors import ConfigError
from morphogen.extras.inspection.inspect_run import overview
from morphogen.extras.inspection.run_reader import Row, RunLog, read_run
from morphogen.log import run_directory
from morphogen.vocab.paths import expand_path

PAGE = "index.html"
FORMS = {".svg": "svg", ".png": "png"}  # of a picture by itself, by the suffix of its file
MAX_RUNS = 7  # one per colour
BACKEND = "MPLBACKEND"  # variable with the backend of matplotlib


def report(*dirs: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of one run directory, or of several side by side: pictures, their numbers,
    one HTML page.

    The same logs give the same bytes.  A picture without numbers is left out.

    Args:
        dirs: 1 to 7 run directories.
        out: folder of the report; None: `report` in the first directory.

    Returns: path of the page.
    Raises: ConfigError without matplotlib, for folders that are no run directories, and for a
    folder that cannot be written to.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 1,
        ...     "envs": 4,
        ...     "policy_name": "wait",
        ...     "episode_length": 2,
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(**fields, final_episodes=0, out=folder)
        ...     page = mg.report(folder)
        ...     print(page.parts[-2:], page.exists())
        ('report', 'index.html') True
    """
    if not 1 <= len(dirs) <= MAX_RUNS:
        raise ConfigError(
            f"run directories: expected 1 .. {MAX_RUNS}, one per colour, got {len(dirs)}"
        )
    plots = import_plots()
    paths = [expand_path(path) for path in dirs]
    logs = _name_logs([read_run(path) for path in paths])
    folder = paths[0] / run_directory.REPORT if out is None else expand_path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sections = [_write_section(plot, logs, folder) for plot in plots]
        template = Path(__file__).with_name("report.html").read_text()
        page = Template(template).substitute(
            title=escape(f"morphogen: {', '.join(logs)}"),
            facts=_facts_table({name: overview(log) for name, log in logs.items()}),
            links="".join(f'<a href="#{plot.name}">{escape(plot.title)}</a> ' for plot in plots),
            sections="".join(sections),
        )
        files.write_atomic(folder / PAGE, page.encode("utf-8"))
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be written: {error.strerror}") from error
    return folder / PAGE


def draw_life(path: Path, file: Path) -> None:
    """Write the picture of one env's life from a run directory, and nothing else.

    The same log gives the same bytes.

    Args:
        path: run directory.
        file: the picture, `.svg` or `.png`; an earlier one is replaced.

    Raises: ConfigError for another suffix, a folder that is no run directory, a run without the
    record of a round, a file that cannot be written, and without matplotlib.
    """
    if file.suffix not in FORMS:
        ends = " or ".join(FORMS)
        raise ConfigError(f"--life: expected a name that ends in {ends}, got {file}")
    import_plots()
    life = import_module("morphogen.extras.pictures.life")
    rows = life.life_rows(read_run(path))
    if not rows:
        raise ConfigError(f"--life: expected a run with the record of a round, got {path}")
    image = life.draw_alone(rows, FORMS[file.suffix])
    try:
        files.write_atomic(file, image)
    except OSError as error:
        raise ConfigError(f"--life: {file} cannot be written: {error.strerror}") from error


def import_plots() -> Sequence[Any]:
    """Import the plots with the first report: they need matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("morphogen report needs matplotlib: pip install 'morphogen[report]'")
    # The import refuses a backend that is not installed, and pictures are drawn without one.
    backend = None if "matplotlib" in sys.modules else os.environ.pop(BACKEND, None)
    plots = import_module("morphogen.extras.pictures.plots").PLOTS
    if backend is not None:  # because other figures of this process may need it
        os.environ[BACKEND] = backend
        with contextlib.suppress(ValueError):
            sys.modules["matplotlib"].rcParams["backend"] = backend
    return plots


def _name_logs(logs: Sequence[RunLog]) -> dict[str, RunLog]:
    """Return the logs by directory name; by letter if names are equal."""
    paths = [log.path.resolve() for log in logs]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"run directories: expected each once, got {', '.join(map(str, paths))}")
    names = [log.name for log in logs]
    if len(set(names)) < len(names):
        names = [f"run {letter}" for letter in ascii_uppercase[: len(paths)]]
    return dict(zip(names, logs, strict=True))


def _write_section(plot: Any, logs: dict[str, RunLog], folder: Path) -> str:
    """Write the picture and the numbers of a plot, or remove both files without numbers; return its
    HTML.
    """
    title = escape(plot.title)
    text = escape(plot.text)
    picture = folder / f"{plot.name}.png"
    numbers = folder / f"{plot.name}.csv"
    rows_by_run = {run: rows for run, log in logs.items() if (rows := plot.rows(log))}
    if rows_by_run:
        image = plot.render_png(rows_by_run)
        files.write_atomic(picture, image)
        files.write_atomic(numbers, _encode_csv(rows_by_run))
        data = base64.b64encode(image).decode("ascii")
        body = f'<img src="data:image/png;base64,{data}" alt="{title}. {text}">'
    else:
        picture.unlink(missing_ok=True)
        numbers.unlink(missing_ok=True)
        body = f'<p class="none" id="{plot.name}-none">no data</p>'
    return f'<section>\n<h2 id="{plot.name}">{title}</h2>\n<p>{text}</p>\n{body}\n</section>\n'


def _encode_csv(rows_by_run: dict[str, list[Row]]) -> bytes:
    """Encode the rows of all runs under all their columns; a missing value is empty."""
    rows = [{"run": run, **row} for run, part in rows_by_run.items() for row in part]
    file = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode("utf-8")


def _facts_table(facts: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table with a row per fact and a column per run."""
    names = dict.fromkeys(name for texts in facts.values() for name in texts)
    rows = [["", *facts]]
    rows += [[name, *(texts.get(name, "") for texts in facts.values())] for name in names]
    cells = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
    lines = "".join(f"<tr>{row}</tr>\n" for row in cells)
    return f'<div class="scroll"><table>{lines}</table></div>'
