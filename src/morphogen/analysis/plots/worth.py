"""Policies on held-out instances: the policy of a run against the baselines, and the arms of `morphogen evaluate`."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, add_legend, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row

SIGMAS = 1.96  # standard errors to either side of a mean in a 95 % interval
TIE_TOLERANCE = 1e-9
METRICS = {"network_value": "network value", "committed_accuracy": "committed accuracy, points"}
INTERVAL_COLUMNS = ("value", "low", "high")
PANELS = {  # statistic -> title, axis
    "mean": ("Network value", "mean"),
    "iqm": ("The middle half of the episodes", "interquartile mean of network value"),
    "difference": ("Trained policy minus arm", "difference in network value"),
}
REFERENCE_LINES = {"difference": 0.0}  # where nothing is better or worse


def comparison_rows(log: RunLog) -> list[Row]:
    """The policy of the run minus every other one on the same held-out instances: each pair, and the mean of them."""
    policies, policy = log.result.get("policies", {}), log.config.get("policy_name")
    rivals = [name for name in policies if name != policy] if policy in policies else []
    rows: list[Row] = []
    for metric in METRICS:
        for rival in rivals:
            pairs = [a - b for a, b in zip(policies[policy][metric], policies[rival][metric], strict=True)]
            head = {"metric": metric, "rival": rival}
            rows.append({**head, "pair": None, **_paired_difference(pairs)})
            rows += [
                {**head, "pair": i, "difference": difference, **dict.fromkeys(PAIRED_COLUMNS)}
                for i, difference in enumerate(pairs)
            ]
    return rows


PAIRED_COLUMNS = ("low", "high", "wins", "ties", "losses")


def _paired_difference(pairs: Sequence[float]) -> Row:
    """Mean difference with its 95 % interval (normal), and who was ahead how often."""
    middle = fmean(pairs)
    room = SIGMAS * stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else None
    signs = [0 if abs(pair) <= TIE_TOLERANCE else math.copysign(1, pair) for pair in pairs]
    counts = (signs.count(sign) for sign in (1, 0, -1))
    ends = (None, None) if room is None else (middle - room, middle + room)
    return {"difference": middle, **dict(zip(PAIRED_COLUMNS, (*ends, *counts), strict=True))}


def _plot_comparison(part: SubFigure, rows: Sequence[Row]) -> None:
    for ax, (metric, name) in zip(part.subplots(1, len(METRICS), sharey=True), METRICS.items(), strict=True):
        label_panel(ax, "This policy minus ...", f"difference in {name}", "")
        means = [row for row in rows if row["metric"] == metric and row["pair"] is None]
        for i, row in enumerate(means):
            pairs = [
                pair
                for pair in rows
                if pair["metric"] == metric and pair["rival"] == row["rival"] and pair["pair"] is not None
            ]
            ax.plot([pair["difference"] for pair in pairs], [i] * len(pairs), "|", color=canvas.SKY, markersize=11)
            ends = (
                [[row["difference"] - row["low"]], [row["high"] - row["difference"]]]
                if row["low"] is not None
                else None
            )
            ax.errorbar([row["difference"]], [i], xerr=ends, fmt="o", color=canvas.VERMILLION, capsize=4)
        texts = [f"{row['rival']}\n{row['wins']} better, {row['ties']} equal, {row['losses']} worse" for row in means]
        if ax.get_subplotspec().is_first_col():
            ax.set_yticks(range(len(means)), texts)
        ax.axvline(0, color=canvas.BLACK, linewidth=0.8)
        ax.margins(y=0.25)


def arm_rows(log: RunLog) -> list[Row]:
    """Every statistic of every arm that has it, with its interval."""
    statistics = log.evaluation.get("statistics", {})
    return [
        {"arm": arm, "statistic": name, **{end: estimate[end] for end in INTERVAL_COLUMNS}}
        for arm, estimates in statistics.items()
        for name, estimate in estimates.items()
        if estimate is not None
    ]


def arm_table(log: RunLog) -> list[Row]:
    """An arm a row: its means, and what it took."""
    arms = log.evaluation.get("statistics", {})
    names = dict.fromkeys(name for estimates in arms.values() for name in estimates)
    return [
        {"arm": arm, **{name: estimate["value"] if (estimate := estimates.get(name)) else None for name in names}}
        for arm, estimates in arms.items()
    ]


def _arm_names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _plot_arms(part: SubFigure, rows: Sequence[Row]) -> None:
    names = _arm_names(rows)
    for ax, (statistic, (title, axis)) in zip(part.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        label_panel(ax, title, axis, "")
        for row in (each for each in rows if each["statistic"] == statistic):
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
    profiles = log.evaluation.get("profiles", {"tau": (), "arms": {}})
    return [
        {"arm": arm, "tau": tau, **dict(zip(INTERVAL_COLUMNS, shares, strict=True))}
        for arm, band in profiles["arms"].items()
        for tau, *shares in zip(profiles["tau"], *(band[end] for end in INTERVAL_COLUMNS), strict=True)
    ]


def _plot_profiles(part: SubFigure, rows: Sequence[Row]) -> None:
    ax = part.subplots()
    label_panel(ax, "Performance profiles", "network value tau", "share of episodes above tau")
    for i, arm in enumerate(_arm_names(rows)):
        curve = [row for row in rows if row["arm"] == arm]
        tau, value, low, high = ([row[name] for row in curve] for name in ("tau", *INTERVAL_COLUMNS))
        dash = canvas.DASHES[i // len(canvas.CYCLE) % len(canvas.DASHES)]
        ax.plot(tau, value, color=canvas.cycle_colour(i), linestyle=dash, label=arm)
        ax.fill_between(tau, low, high, color=canvas.cycle_colour(i), alpha=0.15, linewidth=0)
    ax.set_ylim(-0.02, 1.02)
    add_legend(ax)


COMPARISON = Plot(
    "comparison",
    "Against the baselines",
    "Differences on the same held-out instances, a stroke per instance; the dot is the mean with its 95 % interval.",
    comparison_rows,
    canvas.stack_runs(_plot_comparison, lambda rows: 1.3 + 0.45 * len({row["rival"] for row in rows})),
    lambda log: [row for row in comparison_rows(log) if row["pair"] is None],
)
ARMS = Plot(
    "arms",
    "On held-out instances",
    "Every arm of the last `morphogen evaluate` on the same instances: the dot is the estimate, the line its 95 % "
    "interval. Paired differences have the smaller intervals: all arms meet the same easy and hard instances.",
    arm_rows,
    canvas.stack_runs(_plot_arms, lambda rows: 1.3 + 0.3 * len(_arm_names(rows))),
    arm_table,
)
PROFILES = Plot(
    "profiles",
    "How often a value is passed",
    "A curve that is higher everywhere is better whatever value counts; the band is a 95 % interval at each point.",
    profile_rows,
    canvas.stack_runs(_plot_profiles, 4.0),
)
