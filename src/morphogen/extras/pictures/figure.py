"""Figures of the report: their style, colours and sizes, and the parts that pictures share."""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from morphogen.extras.inspection.run_reader import Row, RunLog
from morphogen.vocab.stage import Stage

RunRows = Mapping[str, Sequence[Row]]  # run -> rows
STYLE_FILE = Path(__file__).with_name("report.mplstyle")
WIDTH = 11.0  # inches
# Colours of Okabe and Ito, for every kind of colour vision.
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STAGE_COLOURS = {
    Stage.GERMINATED.name: "#F0E442",
    Stage.TRAINING.name: "#E69F00",
    Stage.BLENDING.name: "#56B4E9",
    Stage.HOLDING.name: "#CC79A7",
    Stage.FOSSILIZED.name: "#009E73",
    Stage.PRUNED.name: "#D55E00",
    Stage.EMBARGOED.name: "#999999",
    Stage.RESETTING.name: "#DDDDDD",
}
GREY = "#999999"
DASHES = ("-", "--", ":", "-.")
METADATA: dict[str, dict[str, Any]] = {  # by the form of a file: nothing that a release or day sets
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True, slots=True)
class Plot:
    """Plot of the report.  `rows`: numbers of one run; `draw`: picture of the runs that have
    rows.
    """

    name: str
    title: str
    text: str  # how to read it
    rows: Callable[[RunLog], list[Row]]
    draw: Callable[[RunRows], Figure]

    def render_png(self, runs: RunRows) -> bytes:
        """Draw the picture as the bytes of a PNG file."""
        return render_figure(lambda: self.draw(runs), "png")


def render_figure(draw: Callable[[], Figure], form: str, dpi: float = 100) -> bytes:
    """Draw a figure and return the bytes of its file.

    The user's matplotlib settings change nothing, and equal figures give equal bytes.

    Args:
        draw: makes the figure.
        form: `png` or `svg`.
        dpi: dots per inch, of a PNG.
    """
    file = io.BytesIO()
    with matplotlib.style.context(STYLE_FILE, after_reset=True):
        draw().savefig(file, format=form, metadata=METADATA[form], dpi=dpi)
    return file.getvalue()


def new_figure(height: float) -> Figure:
    """Return an empty figure of the common width; height in inches."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def draw_each(
    runs: RunRows, draw: Callable[[SubFigure, Sequence[Row]], None], height: float
) -> Figure:
    """Draw the runs one below the other.  height: of one run, in inches."""
    page = new_figure(height * len(runs))
    parts = page.subfigures(len(runs), squeeze=False)[:, 0]
    for part, (run, rows) in zip(parts, runs.items(), strict=True):
        draw(part, rows)
        if len(runs) > 1:
            part.suptitle(run, x=0.01, ha="left", fontweight="bold")
    return page


def add_stage_legend(part: FigureBase, stages: Collection[str]) -> None:
    """Add the colours of these stages below a part of a page, in the order of a life."""
    patches = [
        Patch(color=colour, label=name.lower())
        for name, colour in STAGE_COLOURS.items()
        if name in stages
    ]
    part.legend(
        handles=patches,
        loc="outside lower center",
        ncols=len(STAGE_COLOURS),
        handlelength=1.0,
        columnspacing=1.0,
        borderaxespad=0.0,
    )


def label_panel(ax: Axes, title: str, x: str, y: str) -> None:
    """Name a panel and its axes, with units; x are whole numbers."""
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def add_legend(ax: Axes) -> None:
    """Add a legend to the right of a panel, or a text to an empty one."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.3)
    else:
        ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", color=GREY)


def limit_to_learned(ax: Axes) -> None:
    """Limit the vertical axis to all but the first points of its lines: an untrained policy may be
    far below.
    """
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.lines]
    later = [value for line in lines for value in line[len(line) > 1 :] if np.isfinite(value)]
    if later:
        low = min(later)
        high = max(later)
        room = max(0.25 * (high - low), 0.01)
        ax.set_ylim(low - room, high + room)
