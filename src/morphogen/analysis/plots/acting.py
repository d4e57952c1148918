"""Actions of the policy and their rewards."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import StrMethodFormatter

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, add_legends, group_rows, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import op_epoch_table, op_table, verdict_table
from morphogen.telemetry.events import mean_known
from morphogen.vocab.action import Op

OPS = tuple(op.name for op in Op)
OP_COLOURS = (canvas.PALE, canvas.GREEN, canvas.SKY, canvas.VERMILLION, canvas.BLUE, canvas.ORANGE)
SHAPING = "shaping"


def action_rows(log: RunLog) -> list[Row]:
    """Panels in long form: share of every op per round and per epoch, verdicts, legality and success per op."""
    tables = log.tables
    rounds = [
        {"panel": "round", "name": op, "x": row["round"], "value": count / total}
        for row in tables["actions"]
        if (total := sum(row["effective"].values()))
        for op, count in row["effective"].items()
    ]
    epochs = [
        {"panel": "epoch", "name": row["op"], "x": row["epoch"], "value": row["share"]}
        for row in op_epoch_table(tables)
    ]
    verdicts = [
        {"panel": row["what"], "name": row["name"], "x": None, "value": row["steps"]} for row in verdict_table(tables)
    ]
    rates = [
        {"panel": name, "name": row["op"], "x": None, "value": row[name]}
        for name in ("legal_share", "success_share")
        for row in (op_table(tables) if tables["actions"] else [])
    ]
    return [*rounds, *epochs, *verdicts, *rates]


def _plot_actions(part: SubFigure, rows: Sequence[Row]) -> None:
    panels = group_rows(rows, "panel")
    axes = canvas.add_panels(part, (1, 1), (1, 1), heights=(1.1, 1))
    for ax, (title, x, y, plot, names) in zip(axes, ACTION_PANELS, strict=True):
        label_panel(ax, title, x, y)
        if any(panels[name] for name in names):
            plot(ax, *(panels[name] for name in names))
        else:
            canvas.show_no_data(ax)


def _plot_shares(ax: Axes, rows: list[Row]) -> None:
    wide = [
        {"x": x, **{row["name"]: row["value"] for row in part}} for x, part in sorted(group_rows(rows, "x").items())
    ]
    canvas.draw_areas(ax, wide, dict(zip(OPS, OPS, strict=True)), OP_COLOURS, x="x")
    ax.set_ylim(0, 1)
    add_legends(ax)


def _plot_heat(ax: Axes, rows: list[Row]) -> None:
    """Rows = ops, columns = epochs."""
    epochs = sorted({row["x"] for row in rows})
    share = {(row["name"], row["x"]): row["value"] or 0.0 for row in rows}
    grid = [[share.get((op, epoch), 0.0) for epoch in epochs] for op in OPS]
    ax.grid(visible=False)
    edges = (epochs[0] - 0.5, epochs[-1] + 0.5, len(OPS) - 0.5, -0.5)
    image = ax.imshow(grid, aspect="auto", cmap="cividis", vmin=0, extent=edges, interpolation="nearest")
    ax.set_yticks(range(len(OPS)), OPS)
    canvas.set_integer_x(ax)
    ax.figure.colorbar(image, ax=ax, label="share of the envs")


def _plot_verdicts(ax: Axes, outcomes: list[Row], reasons: list[Row]) -> None:
    rows = [*outcomes, *reasons]
    colours = [canvas.BLUE] * len(outcomes) + [canvas.ORANGE] * len(reasons)
    names = [f"{row['panel']}: {row['name'].lower()}" for row in rows]
    bars = ax.barh(names, [row["value"] for row in rows], color=colours)
    ax.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=7)
    ax.set_xscale("symlog", linthresh=1)
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))  # names are no formulas, and neither are ticks
    ax.margins(x=0.15)
    ax.invert_yaxis()


def _plot_rates(ax: Axes, legal: list[Row], success: list[Row]) -> None:
    rates = ((-0.2, legal, "legal", canvas.SKY), (0.2, success, "executed, if chosen", canvas.GREEN))
    for shift, rows, name, colour in rates:
        places = [i + shift for i in range(len(rows))]
        ax.barh(places, [row["value"] or 0.0 for row in rows], height=0.38, color=colour, label=name)
    ax.set_yticks(range(len(legal)), [row["name"] for row in legal])
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    add_legends(ax)


VERDICTS = ("outcome", "reason")
# Title, axes, drawing, and the panels of the rows that it draws.
ACTION_PANELS = (
    ("Actions that took effect, over rounds", "round", "share of the steps", _plot_shares, ("round",)),
    ("The same over the epochs of an episode", "epoch of the episode", "", _plot_heat, ("epoch",)),
    (*("Outcomes, and reasons not to execute", "steps of an env (logarithmic)", ""), _plot_verdicts, VERDICTS),
    ("Legality and success per op", "share, 0 to 1", "", _plot_rates, ("legal_share", "success_share")),
)


def reward_rows(log: RunLog) -> list[Row]:
    """Sums of an episode per round and component; means of an epoch of the episode, where they were written."""
    rounds = [
        {
            "panel": "round",
            "x": row["round"],
            **{f"component.{name}": spread["sum"] for name, spread in row["components"].items()},
            "total": row["total"]["sum"],
            "shaping_share": _shaping_share(row),
        }
        for row in log.tables["rewards"]
    ]
    paid = log.tables["payments"]
    names = dict.fromkeys(name for row in paid for name in row["components"])
    epochs = []
    for epoch, rows in sorted(group_rows(paid, "epoch").items()):
        means = {f"component.{name}": mean_known(row["components"].get(name) for row in rows) for name in names}
        total = sum(value for value in means.values() if value is not None)
        epochs.append({"panel": "epoch", "x": epoch, **means, "total": total, "shaping_share": None})
    return [*rounds, *epochs]


def _shaping_share(row: Row) -> float | None:
    """Shaping as a share of all that was paid or taken."""
    sums = {name: abs(spread["sum"] or 0.0) for name, spread in row["components"].items()}
    total = sum(sums.values())
    return sums[SHAPING] / total if SHAPING in sums and total else None


def _plot_rewards(part: SubFigure, rows: Sequence[Row]) -> None:
    over_rounds, share, over_epochs = canvas.add_panels(part, (2, 1), (1,))
    label_panel(over_rounds, "Components of the reward, over rounds", "round", "reward per episode")
    label_panel(share, "Shaping", "round", "share of all that is paid or taken")
    label_panel(over_epochs, "The same over the epochs of an episode", "epoch of the episode", "reward per step")
    names, panels = canvas.prefixed_columns(rows, "component"), group_rows(rows, "panel")
    _plot_components(over_rounds, panels["round"], names)
    _plot_components(over_epochs, panels["epoch"], names)
    if not canvas.draw_line(share, panels["round"], "x", "shaping_share", color=canvas.PURPLE):
        canvas.show_no_data(share, "no shaping is paid")
    canvas.set_integer_x(share)


def _plot_components(ax: Axes, rows: list[Row], names: dict[str, str]) -> None:
    if not rows:
        canvas.show_no_data(ax, "no data: written at level debug")
        return
    canvas.draw_areas(ax, rows, names, x="x")
    canvas.draw_line(ax, rows, "x", "total", color=canvas.BLACK, label="total", linestyle="--")
    ax.axhline(0, color=canvas.BLACK, linewidth=0.8)
    ax.use_sticky_edges = False
    ax.margins(y=0.08)
    add_legends(ax)


ACTIONS = Plot(
    "actions",
    "Actions",
    "Shares count what took effect: an action that could not be executed counts as WAIT. Legal: share of the steps in "
    "which the op was allowed somewhere.",
    action_rows,
    canvas.stack_runs(_plot_actions, 6.4),
)
REWARDS = Plot(
    "rewards",
    "Rewards",
    "Components add up to the reward. Bars below zero are what was taken.",
    reward_rows,
    canvas.stack_runs(_plot_rewards, 6.0),
)
