"""Results of policies: delivered networks by size and by instance, and arms on held-out instances."""

import math
from collections.abc import Sequence
from itertools import pairwise, product
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, add_legends, group_rows, label_panel
from morphogen.analysis.plots.seeds import last_ablations
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import flatten_row, front_episodes, hypervolume, pareto_points

BINS = 5
MARKERS = ("s", "^", "D", "v", "P", "X")
PLANE_COLUMNS = ("round", "env", "committed_accuracy", "params_ratio", "stability")
FRONT_COLUMNS = ("round", "env", "committed_accuracy", "params", *PLANE_COLUMNS[3:], "network_value", "fossilized")
UNITS = {
    "width": "share of the host's channels in use",
    "data_share": "share of the training samples",
    "label_noise": "share of labels replaced",
    "classes": "number of classes",
    "reach": "pixels that a kernel sees to each side, or places back",
    "param_price": "price of the parameter budget",
}
SIGMAS = 1.96  # standard errors to either side of a mean in a 95 % interval
TIE_TOLERANCE = 1e-9
METRICS = {"network_value": "value", "committed_accuracy": "committed accuracy, points"}
INTERVAL_COLUMNS = ("value", "low", "high")
PAIRED_COLUMNS = ("low", "high", "wins", "ties", "losses")
PANELS = {  # statistic -> title, axis
    "mean": ("Value", "mean"),
    "iqm": ("The middle half of the episodes", "interquartile mean of the value"),
    "difference": ("Trained policy minus arm", "difference in value"),
}


def frontier_rows(log: RunLog) -> list[Row]:
    """Episodes, the front among them, the hypervolume of every round, and policies on held-out instances."""
    episodes = log.tables["episodes"]
    front = {row["episode"] for row in front_episodes(log.tables)}
    points = [
        {"panel": "episode", **{name: row[name] for name in PLANE_COLUMNS}, "front": row["episode"] in front}
        for row in episodes
        if pareto_points([row])
    ]
    volumes = [
        {"panel": "hypervolume", "round": round, "value": hypervolume(pareto_points(rows))}
        for round, rows in group_rows(episodes, "round").items()
    ]
    held_out = [
        {"panel": "held-out", "name": name, **{metric: fmean(numbers[metric]) for metric in PLANE_COLUMNS[2:]}}
        for name, numbers in log.result.get("policies", {}).items()
    ]
    empty = dict.fromkeys(("panel", "name", *PLANE_COLUMNS, "front", "value"))
    return [{**empty, **row} for row in [*points, *volumes, *held_out]]


def front_table(log: RunLog) -> list[Row]:
    """The episodes of the front, most accurate first."""
    rows = [{name: row[name] for name in FRONT_COLUMNS} for row in front_episodes(log.tables)]
    return sorted(rows, key=lambda row: -row["committed_accuracy"])


def _plot_frontier(part: SubFigure, rows: Sequence[Row]) -> None:
    plane, volume = part.subplots(1, 2, width_ratios=(1.6, 1.0))
    size = "parameters of the delivered network, × host"
    label_panel(plane, "Every episode: accuracy against size", size, "committed accuracy, %")
    label_panel(volume, "Hypervolume of a round", "round", "covered area, % × host")
    panels = group_rows(rows, "panel")
    if panels["episode"]:
        _plot_episodes(plane, panels["episode"])
    for i, row in enumerate(panels["held-out"]):
        style = {"marker": MARKERS[i % len(MARKERS)], "markersize": 8, "markeredgecolor": "white", "linestyle": ""}
        label = f"{row['name']}, held-out mean"
        plane.plot(*_plane_points([row]), color=canvas.cycle_colour(i), label=label, **style)
    add_legends(plane)
    canvas.draw_curves(volume, {"": panels["hypervolume"]}, {"value": "hypervolume"})


def _plot_episodes(ax: Axes, rows: Sequence[Row]) -> None:
    """A dot per episode, coloured by round; the front circled, its edge drawn."""
    rounds = [row["round"] for row in rows]
    span = {"vmin": min(rounds), "vmax": max(*rounds, min(rounds) + 1)}
    dots = ax.scatter(*_plane_points(rows), c=rounds, s=14, cmap="cividis", alpha=0.8, linewidths=0, **span)
    ax.figure.colorbar(dots, ax=ax, label="round", ticks=MaxNLocator(integer=True), location="left", pad=0.02)
    front = sorted((row for row in rows if row["front"]), key=lambda row: row["params_ratio"])
    ax.scatter(*_plane_points(front), s=34, facecolors="none", edgecolors=canvas.BLACK, label="not dominated")
    edge: list[Row] = []  # of the front in the plane: what is better than all that is smaller
    for row in front:
        if not edge or row["committed_accuracy"] > edge[-1]["committed_accuracy"]:
            edge.append(row)
    ax.step(*_plane_points(edge), where="post", color=canvas.BLACK, linewidth=1.0)


def _plane_points(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["params_ratio"] for row in rows], [row["committed_accuracy"] for row in rows]


def instance_rows(log: RunLog) -> list[Row]:
    """Gain of growing in every episode, beside the parameters of its instance."""
    return [
        {
            **{"round": row["round"], "env": row["env"], "gain": measured["accuracy"] - measured["host_acc"]},
            **flatten_row(row, "instance"),
        }
        for row in log.tables["episodes"]
        if (measured := last_ablations(log, row)) is not None
    ]


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
        points = [row[column] for row in rows], [row["gain"] for row in rows]
        ax.scatter(*points, s=9, color=canvas.SKY, linewidths=0, alpha=0.6)
        ax.plot(*_bin_means(rows, column), color=canvas.BLUE, marker="o", label="means of groups")
        ax.axhline(0, color=canvas.BLACK, linewidth=0.8)
    for ax in axes[len(names) :]:
        ax.set_visible(False)


def _bin_means(rows: Sequence[Row], column: str) -> tuple[list[float], list[float]]:
    """Means of both over groups by the column: of one value each where there are few, else of equal size."""
    ordered = sorted(rows, key=lambda row: row[column])
    groups = list(group_rows(ordered, column).values())
    if len(groups) > BINS:
        edges = [round(i * len(ordered) / BINS) for i in range(BINS + 1)]
        groups = [ordered[low:high] for low, high in pairwise(edges) if high > low]
    x, gain = ([fmean(row[name] for row in group) for group in groups] for name in (column, "gain"))
    return x, gain


def comparison_rows(log: RunLog) -> list[Row]:
    """The policy of the run minus every other one on the same held-out instances: each pair, and the mean of them."""
    policies, policy = log.result.get("policies", {}), log.config.get("policy_name")
    rivals = [name for name in policies if name != policy] if policy in policies else []
    rows: list[Row] = []
    for metric, rival in product(METRICS, rivals):
        pairs = [a - b for a, b in zip(policies[policy][metric], policies[rival][metric], strict=True)]
        head, empty = {"metric": metric, "rival": rival}, dict.fromkeys(PAIRED_COLUMNS)
        rows.append({**head, "pair": None, **_paired_difference(pairs)})
        rows += [{**head, "pair": i, "difference": difference, **empty} for i, difference in enumerate(pairs)]
    return rows


def _paired_difference(pairs: Sequence[float]) -> Row:
    """Mean difference with its 95 % interval (normal), and who was ahead how often."""
    middle = fmean(pairs)
    ends = (None, None)
    if len(pairs) > 1:
        room = SIGMAS * stdev(pairs) / math.sqrt(len(pairs))
        ends = (middle - room, middle + room)
    signs = [0 if abs(pair) <= TIE_TOLERANCE else math.copysign(1, pair) for pair in pairs]
    counts = (signs.count(sign) for sign in (1, 0, -1))
    return {"difference": middle, **dict(zip(PAIRED_COLUMNS, (*ends, *counts), strict=True))}


def _plot_comparison(part: SubFigure, rows: Sequence[Row]) -> None:
    for ax, (metric, name) in zip(part.subplots(1, len(METRICS), sharey=True), METRICS.items(), strict=True):
        label_panel(ax, "This policy minus ...", f"difference in {name}", "")
        rivals = group_rows((row for row in rows if row["metric"] == metric), "rival")
        for i, (mean, *pairs) in enumerate(rivals.values()):  # in the order of `comparison_rows`
            middle, low, high = mean["difference"], mean["low"], mean["high"]
            ax.plot([pair["difference"] for pair in pairs], [i] * len(pairs), "|", color=canvas.SKY, markersize=11)
            ends = None if low is None else [[middle - low], [high - middle]]
            ax.errorbar([middle], [i], xerr=ends, fmt="o", color=canvas.VERMILLION, capsize=4)
        texts = [
            f"{rival}\n{mean['wins']} better, {mean['ties']} equal, {mean['losses']} worse"
            for rival, (mean, *_) in rivals.items()
        ]
        if ax.get_subplotspec().is_first_col():
            ax.set_yticks(range(len(texts)), texts)
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


def _plot_arms(part: SubFigure, rows: Sequence[Row]) -> None:
    arms = group_rows(rows, "arm")
    for ax, (statistic, (title, axis)) in zip(part.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
        label_panel(ax, title, axis, "")
        for place, row in ((i, row) for i, part in enumerate(arms.values()) for row in part):
            if row["statistic"] == statistic:
                ax.hlines(place, row["low"], row["high"], color=canvas.cycle_colour(place), linewidth=2.0)
                ax.plot([row["value"]], [place], "o", color=canvas.cycle_colour(place))
        if statistic == "difference":
            ax.axvline(0.0, color=canvas.BLACK, linewidth=0.8)  # neither better nor worse
        if ax.get_subplotspec().is_first_col():
            ax.set_yticks(range(len(arms)), arms)
            ax.invert_yaxis()
        ax.margins(y=0.2)


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
    label_panel(ax, "Performance profiles", "value tau", "share of episodes above tau")
    for i, (arm, curve) in enumerate(group_rows(rows, "arm").items()):
        tau, value, low, high = ([row[name] for row in curve] for name in ("tau", *INTERVAL_COLUMNS))
        dash = canvas.DASHES[i // len(canvas.CYCLE) % len(canvas.DASHES)]
        ax.plot(tau, value, color=canvas.cycle_colour(i), linestyle=dash, label=arm)
        ax.fill_between(tau, low, high, color=canvas.cycle_colour(i), alpha=0.15, linewidth=0)
    ax.set_ylim(-0.02, 1.02)
    add_legends(ax)


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
    canvas.stack_runs(_plot_arms, lambda rows: 1.3 + 0.3 * len({row["arm"] for row in rows})),
    arm_table,
)
PROFILES = Plot(
    "profiles",
    "How often a value is passed",
    "A curve that is higher everywhere is better whatever value counts; the band is a 95 % interval at each point.",
    profile_rows,
    canvas.stack_runs(_plot_profiles, 4.0),
)
