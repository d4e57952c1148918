"""What the policy does, and what it is paid for."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Found, Plot, legend, panel
from morphogen.analysis.run_log import Log
from morphogen.analysis.tables import Row, mean
from morphogen.analysis.views import ops, ops_by_epoch, verdicts
from morphogen.vocab.action import Op

OPS = tuple(op.name for op in Op)
COLOURS = dict(
    zip(OPS, (canvas.PALE, canvas.GREEN, canvas.SKY, canvas.VERMILLION, canvas.BLUE, canvas.ORANGE), strict=True)
)
SHAPING = "shaping"


def action_rows(log: Log) -> list[Row]:
    """Panels in long form: share of every op per round and per epoch, verdicts, legality and success per op."""
    tables = log.tables
    rounds = [
        {"panel": "round", "name": op, "x": row["round"], "value": count / total}
        for row in tables["actions"]
        if (total := sum(row["effective"].values()))
        for op, count in row["effective"].items()
    ]
    epochs = [
        {"panel": "epoch", "name": row["op"], "x": row["epoch"], "value": row["share"]} for row in ops_by_epoch(tables)
    ]
    told = [{"panel": row["what"], "name": row["name"], "x": None, "value": row["steps"]} for row in verdicts(tables)]
    rates = [
        {"panel": name, "name": row["op"], "x": None, "value": row[name]}
        for name in ("legal_share", "success_share")
        for row in (ops(tables) if tables["actions"] else [])
    ]
    return [*rounds, *epochs, *told, *rates]


def _draw_actions(found: Found) -> Figure:
    return canvas.below(found, _actions, lambda rows: 6.4)


def _actions(part: SubFigure, rows: Sequence[Row]) -> None:
    over_rounds, over_epochs, told, rates = canvas.grid(part, (1, 1), (1, 1), heights=(1.1, 1))
    panel(over_rounds, "Actions that took effect, over rounds", "round", "share of the steps")
    panel(over_epochs, "The same over the epochs of an episode", "epoch of the episode", "")
    panel(told, "Outcomes, and reasons not to execute", "steps of an env (logarithmic)", "")
    panel(rates, "Legality and success per op", "share, 0 to 1", "")
    _shares(over_rounds, _of(rows, "round"))
    _heat(over_epochs, _of(rows, "epoch"))
    _verdicts(told, _of(rows, "outcome"), _of(rows, "reason"))
    _rates(rates, _of(rows, "legal_share"), _of(rows, "success_share"))


def _of(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row["panel"] == name]


def _shares(ax: Axes, rows: list[Row]) -> None:
    if not rows:
        canvas.blank(ax)
        return
    rounds = sorted({row["x"] for row in rows})
    wide = [{"round": x, **{row["name"]: row["value"] for row in rows if row["x"] == x}} for x in rounds]
    canvas.areas(ax, wide, dict(zip(OPS, OPS, strict=True)), COLOURS)
    ax.set_ylim(0, 1)
    legend(ax)


def _heat(ax: Axes, rows: list[Row]) -> None:
    """Rows = ops, columns = epochs."""
    if not rows:
        canvas.blank(ax)
        return
    epochs = sorted({row["x"] for row in rows})
    share = {(row["name"], row["x"]): row["value"] or 0.0 for row in rows}
    grid = [[share.get((op, epoch), 0.0) for epoch in epochs] for op in OPS]
    ax.grid(visible=False)
    edges = (epochs[0] - 0.5, epochs[-1] + 0.5, len(OPS) - 0.5, -0.5)
    image = ax.imshow(grid, aspect="auto", cmap="cividis", vmin=0, extent=edges, interpolation="nearest")
    ax.set_yticks(range(len(OPS)), OPS)
    canvas.whole_x(ax)
    ax.figure.colorbar(image, ax=ax, label="share of the envs")


def _verdicts(ax: Axes, outcomes: list[Row], reasons: list[Row]) -> None:
    rows = [*outcomes, *reasons]
    if not rows:
        canvas.blank(ax)
        return
    colours = [canvas.BLUE] * len(outcomes) + [canvas.ORANGE] * len(reasons)
    bars = ax.barh([_label(row) for row in rows], [row["value"] for row in rows], color=colours)
    ax.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=7)
    ax.set_xscale("symlog", linthresh=1)
    ax.margins(x=0.15)
    ax.invert_yaxis()


def _label(row: Row) -> str:
    return f"{row['panel']}: {row['name'].lower()}"


def _rates(ax: Axes, legal: list[Row], success: list[Row]) -> None:
    if not legal:
        canvas.blank(ax)
        return
    for shift, rows, name, colour in (
        (-0.2, legal, "legal", canvas.SKY),
        (0.2, success, "executed, if chosen", canvas.GREEN),
    ):
        places = [i + shift for i in range(len(rows))]
        ax.barh(places, [row["value"] or 0.0 for row in rows], height=0.38, color=colour, label=name)
    ax.set_yticks(range(len(legal)), [row["name"] for row in legal])
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    legend(ax)


def reward_rows(log: Log) -> list[Row]:
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
    for epoch in sorted({row["epoch"] for row in paid}):
        rows = [row["components"] for row in paid if row["epoch"] == epoch]
        means = {f"component.{name}": mean(row.get(name) for row in rows) for name in names}
        total = sum(value for value in means.values() if value is not None)
        epochs.append({"panel": "epoch", "x": epoch, **means, "total": total, "shaping_share": None})
    return [*rounds, *epochs]


def _shaping_share(row: Row) -> float | None:
    """Shaping as a share of all that was paid or taken."""
    sums = {name: abs(spread["sum"] or 0.0) for name, spread in row["components"].items()}
    total = sum(sums.values())
    return sums[SHAPING] / total if SHAPING in sums and total else None


def _draw_rewards(found: Found) -> Figure:
    return canvas.below(found, _rewards, lambda rows: 6.0)


def _rewards(part: SubFigure, rows: Sequence[Row]) -> None:
    over_rounds, share, over_epochs = canvas.grid(part, (2, 1), (1,))
    panel(over_rounds, "Components of the reward, over rounds", "round", "reward per episode")
    panel(share, "Shaping", "round", "share of all that is paid or taken")
    panel(over_epochs, "The same over the epochs of an episode", "epoch of the episode", "reward per step")
    names = canvas.columns(rows, "component")
    for ax, name in ((over_rounds, "round"), (over_epochs, "epoch")):
        _components(ax, [{**row, "round": row["x"]} for row in _of(rows, name)], names)
    if not canvas.line(share, _of(rows, "round"), "x", "shaping_share", color=canvas.PURPLE):
        canvas.blank(share, "no shaping is paid")
    canvas.whole_x(share)


def _components(ax: Axes, rows: list[Row], names: dict[str, str]) -> None:
    if not rows:
        canvas.blank(ax, "no data: written at level debug")
        return
    canvas.areas(ax, rows, names, {})
    canvas.line(ax, rows, "round", "total", color=canvas.BLACK, label="total", linestyle="--")
    ax.axhline(0, color=canvas.BLACK, linewidth=0.8)
    ax.use_sticky_edges = False
    ax.margins(y=0.08)
    legend(ax)


ACTIONS = Plot(
    "actions",
    "Actions",
    "Shares count what took effect: an action that could not be executed counts as WAIT. Legal: share of the steps in "
    "which the op was allowed somewhere.",
    action_rows,
    _draw_actions,
)
REWARDS = Plot(
    "rewards",
    "Rewards",
    "Components add up to the reward. Bars below zero are what was taken.",
    reward_rows,
    _draw_rewards,
)
