"""What `morphogen evaluate` found: every arm with its intervals, and how often each passes a value."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Found, Plot, legend, panel
from morphogen.analysis.run_log import Log
from morphogen.analysis.tables import Row

ENDS = ("value", "low", "high")
PANELS = {  # statistic -> title, axis
    "mean": ("Network value", "mean"),
    "iqm": ("The middle half of the episodes", "interquartile mean of network value"),
    "difference": ("The trained policy minus it", "difference in network value"),
}
MARKS = {"difference": 0.0}  # where nothing is better or worse


def arm_rows(log: Log) -> list[Row]:
    """Every statistic of every arm that has it, with its interval."""
    found = log.evaluation.get("statistics", {})
    return [
        {"arm": arm, "statistic": name, **{end: held[end] for end in ENDS}}
        for arm, one in found.items()
        for name, held in one.items()
        if held is not None
    ]


def arm_table(log: Log) -> list[Row]:
    """An arm a row: its means, and what it took."""
    arms = log.evaluation.get("statistics", {})
    names = dict.fromkeys(name for one in arms.values() for name in one)
    return [
        {"arm": arm, **{name: held["value"] if (held := one.get(name)) else None for name in names}}
        for arm, one in arms.items()
    ]


def _draw_arms(found: Found) -> Figure:
    return canvas.below(found, _arms, lambda rows: 1.3 + 0.3 * len(_names(rows)))


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _arms(part: SubFigure, rows: Sequence[Row]) -> None:
    names = _names(rows)
    for ax, (statistic, (title, axis)) in zip(part.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        panel(ax, title, axis, "")
        for row in (one for one in rows if one["statistic"] == statistic):
            _interval(ax, row, names.index(row["arm"]))
        if statistic in MARKS:
            ax.axvline(MARKS[statistic], color=canvas.BLACK, linewidth=0.8)
        if ax.get_subplotspec().is_first_col():
            ax.set_yticks(range(len(names)), names)
            ax.invert_yaxis()
        ax.margins(y=0.2)


def _interval(ax: Axes, row: Row, place: int) -> None:
    value, low, high = (row[end] for end in ENDS)
    ax.hlines(place, low, high, color=canvas.colour(place), linewidth=2.0)
    ax.plot([value], [place], "o", color=canvas.colour(place))


def profile_rows(log: Log) -> list[Row]:
    """The share of episodes above every tau, for every arm."""
    found = log.evaluation.get("profiles", {"tau": (), "arms": {}})
    return [
        {"arm": arm, "tau": tau, **dict(zip(ENDS, shares, strict=True))}
        for arm, band in found["arms"].items()
        for tau, *shares in zip(found["tau"], *(band[end] for end in ENDS), strict=True)
    ]


def _draw_profiles(found: Found) -> Figure:
    return canvas.below(found, _profiles, lambda rows: 4.0)


def _profiles(part: SubFigure, rows: Sequence[Row]) -> None:
    ax = part.subplots()
    panel(ax, "Performance profiles", "network value tau", "share of episodes above tau")
    for i, arm in enumerate(_names(rows)):
        own = [row for row in rows if row["arm"] == arm]
        tau, value, low, high = ([row[name] for row in own] for name in ("tau", *ENDS))
        dash = canvas.DASHES[i // len(canvas.CYCLE) % len(canvas.DASHES)]
        ax.plot(tau, value, color=canvas.colour(i), linestyle=dash, label=arm)
        ax.fill_between(tau, low, high, color=canvas.colour(i), alpha=0.15, linewidth=0)
    ax.set_ylim(-0.02, 1.02)
    legend(ax)


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
