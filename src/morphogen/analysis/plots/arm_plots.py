"""Results of `morphogen evaluate`: every arm with its intervals, and how often each passes a value."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows, add_legend, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row

INTERVAL_COLUMNS = ("value", "low", "high")
PANELS = {  # statistic -> title, axis
    "mean": ("Network value", "mean"),
    "iqm": ("The middle half of the episodes", "interquartile mean of network value"),
    "difference": ("Trained policy minus arm", "difference in network value"),
}
REFERENCE_LINES = {"difference": 0.0}  # where nothing is better or worse


def arm_rows(log: RunLog) -> list[Row]:
    """Every statistic of every arm that has it, with its interval."""
    found = log.evaluation.get("statistics", {})
    return [
        {"arm": arm, "statistic": name, **{end: held[end] for end in INTERVAL_COLUMNS}}
        for arm, one in found.items()
        for name, held in one.items()
        if held is not None
    ]


def arm_table(log: RunLog) -> list[Row]:
    """An arm a row: its means, and what it took."""
    arms = log.evaluation.get("statistics", {})
    names = dict.fromkeys(name for one in arms.values() for name in one)
    return [
        {"arm": arm, **{name: held["value"] if (held := one.get(name)) else None for name in names}}
        for arm, one in arms.items()
    ]


def _draw_arms(found: RunRows) -> Figure:
    return canvas.stack_runs(found, _plot_arms, lambda rows: 1.3 + 0.3 * len(_arm_names(rows)))


def _arm_names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _plot_arms(part: SubFigure, rows: Sequence[Row]) -> None:
    names = _arm_names(rows)
    for ax, (statistic, (title, axis)) in zip(part.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        label_panel(ax, title, axis, "")
        for row in (one for one in rows if one["statistic"] == statistic):
            _plot_interval(ax, row, names.index(row["arm"]))
        if statistic in REFERENCE_LINES:
            ax.axvline(REFERENCE_LINES[statistic], color=canvas.BLACK, linewidth=0.8)
        if ax.get_subplotspec().is_first_col():
            ax.set_yticks(range(len(names)), names)
            ax.invert_yaxis()
        ax.margins(y=0.2)


def _plot_interval(ax: Axes, row: Row, place: int) -> None:
    value, low, high = (row[end] for end in INTERVAL_COLUMNS)
    ax.hlines(place, low, high, color=canvas.cycle_colour(place), linewidth=2.0)
    ax.plot([value], [place], "o", color=canvas.cycle_colour(place))


def profile_rows(log: RunLog) -> list[Row]:
    """The share of episodes above every tau, for every arm."""
    found = log.evaluation.get("profiles", {"tau": (), "arms": {}})
    return [
        {"arm": arm, "tau": tau, **dict(zip(INTERVAL_COLUMNS, shares, strict=True))}
        for arm, band in found["arms"].items()
        for tau, *shares in zip(found["tau"], *(band[end] for end in INTERVAL_COLUMNS), strict=True)
    ]


def _draw_profiles(found: RunRows) -> Figure:
    return canvas.stack_runs(found, _plot_profiles, lambda rows: 4.0)


def _plot_profiles(part: SubFigure, rows: Sequence[Row]) -> None:
    ax = part.subplots()
    label_panel(ax, "Performance profiles", "network value tau", "share of episodes above tau")
    for i, arm in enumerate(_arm_names(rows)):
        own = [row for row in rows if row["arm"] == arm]
        tau, value, low, high = ([row[name] for row in own] for name in ("tau", *INTERVAL_COLUMNS))
        dash = canvas.DASHES[i // len(canvas.CYCLE) % len(canvas.DASHES)]
        ax.plot(tau, value, color=canvas.cycle_colour(i), linestyle=dash, label=arm)
        ax.fill_between(tau, low, high, color=canvas.cycle_colour(i), alpha=0.15, linewidth=0)
    ax.set_ylim(-0.02, 1.02)
    add_legend(ax)


ARMS = Plot(
    "arms",
    "On held-out instances",
    "Every arm of the last `morphogen evaluate` on the same instances: the dot is the estimate, the line its 95 % "
    "interval. Paired differences have the smaller intervals: all arms meet the same easy and hard instances.",
    arm_rows,
    _draw_arms,
    arm_table,
)
PROFILES = Plot(
    "profiles",
    "How often a value is passed",
    "A curve that is higher everywhere is better whatever value counts; the band is a 95 % interval at each point.",
    profile_rows,
    _draw_profiles,
)
