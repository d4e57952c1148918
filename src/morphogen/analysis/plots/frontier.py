"""Delivered networks against their size and their instance."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, add_legend, label_panel
from morphogen.analysis.plots.seeds import last_ablations
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import flatten_row, front_episodes, hypervolume, pareto_points, rows_of_round

BINS = 5
MARKERS = ("s", "^", "D", "v", "P", "X")
FRONT_COLUMNS = (
    *("round", "env", "committed_accuracy", "params", "params_ratio", "stability", "network_value", "fossilized"),
)


def frontier_rows(log: RunLog) -> list[Row]:
    """Episodes, the front among them, the hypervolume of every round, and policies on held-out instances."""
    tables = log.tables
    names = ("round", "env", "committed_accuracy", "params_ratio", "stability")
    front = {row["episode"] for row in front_episodes(tables)}
    episodes = [
        {"panel": "episode", "name": None, **{name: row[name] for name in names}, "front": row["episode"] in front}
        for row in tables["episodes"]
        if pareto_points([row])
    ]
    rounds = dict.fromkeys(row["round"] for row in tables["episodes"])
    volumes = [
        {
            "panel": "hypervolume",
            "round": round,
            "value": hypervolume(pareto_points(rows_of_round(tables["episodes"], round))),
        }
        for round in rounds
    ]
    held_out = [
        {"panel": "held-out", "name": name, **{metric: fmean(episodes_of[metric]) for metric in names[2:]}}
        for name, episodes_of in log.result.get("policies", {}).items()
    ]
    return [
        {**dict.fromkeys(("panel", "name", *names, "front", "value")), **row}
        for row in [*episodes, *volumes, *held_out]
    ]


def front_table(log: RunLog) -> list[Row]:
    """The episodes of the front, most accurate first."""
    rows = [{name: row[name] for name in FRONT_COLUMNS} for row in front_episodes(log.tables)]
    return sorted(rows, key=lambda row: -row["committed_accuracy"])


def _plot_frontier(part: SubFigure, rows: Sequence[Row]) -> None:
    plane, volume = part.subplots(1, 2, width_ratios=(1.6, 1.0))
    label_panel(
        plane,
        "Every episode: accuracy against size",
        "parameters of the delivered network, × host",
        "committed accuracy, %",
    )
    label_panel(volume, "Hypervolume of a round", "round", "covered area, % × host")
    episodes = [row for row in rows if row["panel"] == "episode"]
    if episodes:
        _plot_episodes(plane, episodes)
    for i, row in enumerate(each for each in rows if each["panel"] == "held-out"):
        style = {"marker": MARKERS[i % len(MARKERS)], "color": canvas.CYCLE[i % len(canvas.CYCLE)]}
        plane.plot(
            *_plane_points([row]),
            linestyle="",
            markersize=8,
            markeredgecolor="white",
            label=f"{row['name']}, held-out mean",
            **style,
        )
    add_legend(plane)
    canvas.draw_curves(volume, {"": [row for row in rows if row["panel"] == "hypervolume"]}, {"value": "hypervolume"})


def _plot_episodes(ax: Axes, rows: Sequence[Row]) -> None:
    """A dot per episode, coloured by round; the front circled, its edge drawn."""
    rounds = [row["round"] for row in rows]
    span = {"vmin": min(rounds), "vmax": max(*rounds, min(rounds) + 1)}
    dots = ax.scatter(*_plane_points(rows), c=rounds, s=14, cmap="cividis", alpha=0.8, linewidths=0, **span)
    ax.figure.colorbar(dots, ax=ax, label="round", ticks=MaxNLocator(integer=True), location="left", pad=0.02)
    front = sorted((row for row in rows if row["front"]), key=lambda row: row["params_ratio"])
    ax.scatter(*_plane_points(front), s=34, facecolors="none", edgecolors=canvas.BLACK, label="not dominated")
    ax.step(*_plane_points(_front_edge(front)), where="post", color=canvas.BLACK, linewidth=1.0)


def _plane_points(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["params_ratio"] for row in rows], [row["committed_accuracy"] for row in rows]


def _front_edge(front: Sequence[Row]) -> list[Row]:
    """Of the front by size, those that are better than all smaller ones: its edge in the plane."""
    edge: list[Row] = []
    for row in front:
        if not edge or row["committed_accuracy"] > edge[-1]["committed_accuracy"]:
            edge.append(row)
    return edge


def instance_rows(log: RunLog) -> list[Row]:
    """Gain of growing in every episode, beside the parameters of its instance."""
    rows = []
    for row in log.tables["episodes"]:
        measured = last_ablations(log, row)
        if measured is not None:
            gain = measured["accuracy"] - measured["host_acc"]
            rows.append({"round": row["round"], "env": row["env"], "gain": gain, **flatten_row(row, "instance")})
    return rows


def _varying_columns(rows: Sequence[Row]) -> dict[str, str]:
    """The parameters that differ between instances, or the first one."""
    names = canvas.prefixed_columns(rows, "instance")
    varied = {column: name for column, name in names.items() if len({row[column] for row in rows}) > 1}
    return varied or dict(list(names.items())[:1])


def _plot_instances(part: SubFigure, rows: Sequence[Row]) -> None:
    names = _varying_columns(rows)
    axes = list(part.subplots(math.ceil(len(names) / 3), min(3, len(names)), squeeze=False, sharey=True).flat)
    for ax, (column, name) in zip(axes, names.items(), strict=False):
        label_panel(ax, f"Gain by {name.replace('_', ' ')}", UNITS.get(name, name), "over the host alone, points")
        ax.scatter(
            [row[column] for row in rows], [row["gain"] for row in rows], s=9, color=canvas.SKY, linewidths=0, alpha=0.6
        )
        ax.plot(*_bin_means(rows, column), color=canvas.BLUE, marker="o", label="means of groups")
        ax.axhline(0, color=canvas.BLACK, linewidth=0.8)
    for ax in axes[len(names) :]:
        ax.set_visible(False)


UNITS = {
    "width": "share of the host's channels in use",
    "data_share": "share of the training samples",
    "label_noise": "share of labels replaced",
    "classes": "number of classes",
    "reach": "pixels that a kernel sees to each side",
    "param_price": "price of the parameter budget",
}


def _bin_means(rows: Sequence[Row], column: str) -> tuple[list[float], list[float]]:
    """Means of both over groups by the column: of one value each where there are few, else of equal size."""
    ordered = sorted(rows, key=lambda row: row[column])
    values = sorted({row[column] for row in rows})
    edges = [round(i * len(ordered) / BINS) for i in range(BINS + 1)]
    groups = [ordered[low:high] for low, high in pairwise(edges) if high > low]
    if len(values) <= BINS:
        groups = [[row for row in rows if row[column] == value] for value in values]
    return [fmean(row[column] for row in group) for group in groups], [
        fmean(row["gain"] for row in group) for group in groups
    ]


FRONTIER = Plot(
    "frontier",
    "Accuracy against size",
    "Circled: no other episode is at least as good in accuracy, size and stability and better in one. Hypervolume: the "
    "area that the episodes of a round cover, from an accuracy of 0 and twice the size of the host.",
    frontier_rows,
    canvas.stack_runs(_plot_frontier, 4.2),
    front_table,
)
INSTANCES = Plot(
    "instances",
    "Gain by instance",
    "Final accuracy minus that of the same host with all seeds switched off, a point per episode; the line joins means "
    "of groups of episodes.",
    instance_rows,
    canvas.stack_runs(_plot_instances, lambda rows: 2.9 * math.ceil(len(_varying_columns(rows)) / 3)),
)
