"""Common style of all figures: colours for every kind of colour vision, no global state."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from morphogen.log.tables import Row

RunRows = Mapping[str, Sequence[Row]]  # run -> rows
WIDTH = 11.0  # inches
# Okabe and Ito.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, YELLOW, GREY, PALE = (
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#F0E442",
    "#999999",
    "#DDDDDD",
)
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES = ("-", "--", ":", "-.")
# above and below the lines of `limit_to_learned`: share of their range, and at least
ROOM = 0.25
LEAST_ROOM = 0.01
STYLE_FILE = Path(__file__).with_name("report.mplstyle")


def new_figure(height: float) -> Figure:
    """An empty figure of the common width; height in inches."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def stack_runs(
    draw: Callable[[SubFigure, Sequence[Row]], None],
    height: float | Callable[[Sequence[Row]], float],
) -> Callable[[RunRows], Figure]:
    """Drawing of the runs of a plot, one below the other.  height: of one run, in inches."""

    def draw_runs(runs: RunRows) -> Figure:
        heights = [height(rows) if callable(height) else height for rows in runs.values()]
        page = new_figure(sum(heights))
        parts = page.subfigures(len(runs), squeeze=False, height_ratios=heights)[:, 0]
        for part, (run, rows) in zip(parts, runs.items(), strict=True):
            draw(part, rows)
            if len(runs) > 1:
                part.suptitle(run, x=0.01, ha="left", fontweight="bold")
        return page

    return draw_runs


def add_panels(
    part: Figure | SubFigure, *widths: Sequence[float], heights: Sequence[float] | None = None
) -> list[Axes]:
    """Add rows of panels from the top left; widths: of the panels of each row.  Each row has its
    own margins.
    """
    rows = part.subfigures(len(widths), 1, squeeze=False, height_ratios=heights)[:, 0]
    panels = (
        row.subplots(1, len(width), squeeze=False, width_ratios=width)[0]
        for row, width in zip(rows, widths, strict=True)
    )
    return [ax for row in panels for ax in row]


def label_panel(ax: Axes, title: str, x: str, y: str) -> None:
    """Name a panel and its axes, with units."""
    ax.set_title(title)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def set_integer_x(ax: Axes) -> None:
    """Set integer ticks, for rounds and epochs."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def add_legends(*axes: Axes) -> None:
    """Add a legend beside each of the panels that has several entries."""
    for ax in axes:
        if len(ax.get_legend_handles_labels()[0]) > 1:
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.3)


def show_no_data(ax: Axes, text: str = "no data") -> None:
    """Show a text in place of a curve."""
    ax.set(xticks=(), yticks=())
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)


def draw_line(ax: Axes, rows: Sequence[Row], x: str, y: str, **style: Any) -> bool:
    """Draw a curve with gaps for missing values; return whether any value is known."""
    known = [(row[x], row[y]) for row in rows if row.get(y) is not None]
    if not known:
        return False
    values = [float("nan") if row.get(y) is None else row[y] for row in rows]
    sparse = len(known) <= 2 or len(known) < len(rows) / 2  # isolated values need dots
    ax.plot(
        [row[x] for row in rows],
        values,
        **{"marker": "o" if sparse else None, "markersize": 3.5, **style},
    )
    return True


def draw_band(ax: Axes, rows: Sequence[Row], ends: tuple[str, str], **style: Any) -> None:
    """The area between two columns, over rounds."""
    known = [row for row in rows if all(row.get(end) is not None for end in ends)]
    low, high = ([row[end] for row in known] for end in ends)
    ax.fill_between([row["round"] for row in known], low, high, linewidth=0, **style)


def draw_curves(ax: Axes, runs: RunRows, series: Mapping[str, str], *, x: str = "round") -> None:
    """Columns over `x`, `series`: column -> its name.  One run: a colour each; several: a colour
    per run.
    """
    drawn = False
    for i, (run, rows) in enumerate(runs.items()):
        for j, (column, name) in enumerate(series.items()):
            single = len(runs) == 1
            dash = j // len(CYCLE) if single else j
            style: dict[str, Any] = {
                "color": cycle_colour(j if single else i),
                "linestyle": DASHES[dash % len(DASHES)],
            }
            label = name if single else f"{run} {name}" if len(series) > 1 else run
            drawn |= draw_line(ax, rows, x, column, label=label, **style)
    set_integer_x(ax)
    if not drawn:
        show_no_data(ax)


def limit_to_learned(ax: Axes) -> None:
    """Limit the vertical axis to all but the first points of its lines: an untrained policy may be
    far below.
    """
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.lines]
    later = np.concatenate([*(line[1:] if len(line) > 1 else line for line in lines), ()])
    if np.isfinite(later).any():
        low = np.nanmin(later)
        high = np.nanmax(later)
        room = max(ROOM * (high - low), LEAST_ROOM)
        ax.set_ylim(low - room, high + room)


def cycle_colour(i: int) -> str:
    """The i-th colour."""
    return CYCLE[i % len(CYCLE)]


def prefixed_columns(rows: Iterable[Row], prefix: str) -> dict[str, str]:
    """The columns that begin with `prefix.`, each with the rest of its name."""
    return {
        name: name.removeprefix(f"{prefix}.")
        for row in rows
        for name in row
        if name.startswith(f"{prefix}.")
    }


def group_rows(rows: Iterable[Row], column: str) -> defaultdict[Any, list[Row]]:
    """The rows by their value in a column, in their order."""
    groups: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[column]].append(row)
    return groups
