"""Contributions of seeds: those of the best episode, and every blueprint over the run."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import blueprint_table, rows_of_round

FATES = {
    "fossilized": canvas.GREEN,
    "pruned.action": canvas.VERMILLION,
    "pruned.ramp": canvas.ORANGE,
    "pruned.governor": canvas.BLACK,
    "alive": canvas.SKY,
}
START, END = "host alone", "final"


def contribution_rows(log: RunLog) -> list[Row]:
    """From the bare host to the final network of the best episode, seed by seed; Shapley values add up."""
    measured = [
        (row["committed_accuracy"] or 0.0, row, found)
        for row in log.tables["episodes"]
        if (found := last_ablations(log, row))
    ]
    if not measured:
        return []
    _, episode, found = max(measured, key=lambda entry: entry[0])
    slots = log.tables["starts"][0]["slots"] if log.tables["starts"] else [seed["slot"] for seed in episode["topology"]]
    seeds = {seed["slot"]: seed for seed in episode["topology"]}
    head = {"round": episode["round"], "env": episode["env"]}
    rows, level = (
        [{**head, "step": START, "low": 0.0, "high": found["host_acc"], "interaction": None}],
        found["host_acc"],
    )
    for slot, share, interaction in zip(slots, found["shapley"], found["interaction_sum"], strict=True):
        if share is None or (not share and slot not in seeds):
            continue  # nothing grows there, or it does not run yet
        step = f"{slot} {seeds[slot]['blueprint'] if slot in seeds else '(gone)'}"
        rows.append({**head, "step": step, "low": level, "high": level + share, "interaction": interaction})
        level += share
    return [*rows, {**head, "step": END, "low": 0.0, "high": found["accuracy"], "interaction": None}]


def last_ablations(log: RunLog, episode: Row) -> Row | None:
    """The ablations of the last epoch of an episode; None where they were not all measured."""
    parts = [
        row for row in rows_of_round(log.tables["ablations"], episode["round"]) if row["epoch"] == episode["epoch"]
    ]
    env = episode["env"]
    whole: dict[str, Any] = {}
    for name in ("exact", "host_acc", "accuracy", "shapley", "interaction_sum"):
        values = [value for part in parts for value in part[name]]  # ranks in order hold neighbouring envs
        whole[name] = values[env] if env < len(values) else None
    return whole if whole["exact"] and whole["host_acc"] is not None else None


def _draw_contributions(found: RunRows) -> Figure:
    return canvas.stack_runs(found, _plot_contributions, lambda rows: 3.6)


def _plot_contributions(part: SubFigure, rows: Sequence[Row]) -> None:
    fall, bars = part.subplots(1, 2, width_ratios=(2.0, 1.0))
    where = f"round {rows[0]['round']}, env {rows[0]['env']}"
    label_panel(fall, f"From the host to the final network ({where})", "", "validation accuracy, %")
    label_panel(bars, "Interaction with the other seeds", "accuracy, points", "")
    colours = [canvas.GREY if row["step"] in (START, END) else _sign_colour(row["high"] - row["low"]) for row in rows]
    drawn = fall.bar(
        [_break_label(row["step"]) for row in rows],
        [row["high"] - row["low"] for row in rows],
        0.6,
        bottom=[row["low"] for row in rows],
        color=colours,
    )
    fall.bar_label(drawn, [_format_amount(row) for row in rows], padding=2, fontsize=8)
    for i, row in enumerate(rows[:-1]):
        fall.plot([i, i + 1], [row["high"]] * 2, color=canvas.BLACK, linewidth=0.7)
    ends = [row["high"] for row in rows]
    room = max(2.0, max(ends) - min(ends)) * 0.4
    fall.set_ylim(max(0.0, min(ends) - room), max(ends) + room)
    seeds = [row for row in rows if row["interaction"] is not None]
    if not seeds:
        canvas.show_no_data(bars, "no seed with a partner")
        return
    named, values = [_break_label(row["step"]) for row in seeds], [row["interaction"] for row in seeds]
    listed = bars.barh(named, values, 0.6, color=[_sign_colour(value) for value in values])
    bars.bar_label(listed, fmt="%+.2f", padding=2, fontsize=8)
    bars.axvline(0, color=canvas.BLACK, linewidth=0.8)
    bars.margins(x=0.3)
    bars.invert_yaxis()


def _sign_colour(value: float) -> str:
    return canvas.BLUE if value >= 0 else canvas.VERMILLION


def _break_label(step: str) -> str:
    """In two lines."""
    return step.replace(" ", "\n", 1)


def _format_amount(row: Row) -> str:
    return f"{row['high']:.2f}" if row["step"] in (START, END) else f"{row['high'] - row['low']:+.2f}"


def blueprint_rows(log: RunLog) -> list[Row]:
    """The scoreboard."""
    return blueprint_table(log.tables)


def _draw_blueprints(found: RunRows) -> Figure:
    return canvas.stack_runs(found, _plot_blueprints, lambda rows: 1.7 + 0.32 * len(rows))


def _plot_blueprints(part: SubFigure, rows: Sequence[Row]) -> None:
    fates, worth, price = part.subplots(1, 3, sharey=True, width_ratios=(1.3, 1.0, 1.0))
    label_panel(fates, "What became of the seeds", "seeds", "")
    label_panel(worth, "Worth when fossilized", "accuracy, points ± standard error", "")
    label_panel(price, "Cost", "multiply-accumulates, × host", "")
    names = [row["blueprint"] for row in rows]
    base = [0.0] * len(rows)
    for fate, colour in FATES.items():
        values = [row[fate] for row in rows]
        fates.barh(names, values, left=base, color=colour, label=fate.replace(".", ": "))
        base = [b + value for b, value in zip(base, values, strict=True)]
    canvas.set_integer_x(fates)
    for shift, name, colour in ((-0.17, "contribution", canvas.BLUE), (0.17, "shapley", canvas.PURPLE)):
        _plot_dots(worth, rows, name, shift=shift, colour=colour)
    worth.axvline(0, color=canvas.BLACK, linewidth=0.8)
    price.barh(names, [row["macs_share"] or 0.0 for row in rows], color=canvas.SKY)
    texts = [f"{row['params']:,.0f} parameters" if row["params"] is not None else "" for row in rows]
    price.bar_label(price.containers[0], texts, padding=3, fontsize=8)
    price.margins(x=0.6)
    fates.invert_yaxis()
    part.legend(loc="outside lower left", ncols=len(FATES) + 2)


def _plot_dots(ax: Axes, rows: Sequence[Row], name: str, *, shift: float, colour: str) -> None:
    known = [(i + shift, row) for i, row in enumerate(rows) if row[f"{name}_mean"] is not None]
    errors = [row[f"{name}_error"] or 0.0 for _, row in known]
    values = [row[f"{name}_mean"] for _, row in known]
    ax.errorbar(values, [y for y, _ in known], xerr=errors, fmt="o", color=colour, capsize=3, label=name)


CONTRIBUTIONS = Plot(
    "contributions",
    "Contributions in the best episode",
    "Shapley values of the seeds: together they are the difference between the final network and the same host without "
    "seeds. Interaction: what a seed is worth with the others beyond what it is worth alone. The axis of accuracy does "
    "not begin at 0.",
    contribution_rows,
    _draw_contributions,
)
BLUEPRINTS = Plot(
    "blueprints",
    "Blueprints",
    "Over the whole run. Contribution: accuracy that is lost when the seed is switched off. Shapley: its fair share of "
    "the gain.",
    blueprint_rows,
    _draw_blueprints,
    blueprint_rows,
)
