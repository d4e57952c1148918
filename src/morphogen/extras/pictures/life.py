"""One env's life: an episode of one env, epoch by epoch, from the record of the last round."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D

from morphogen.errors import DataError
from morphogen.extras.inspection.run_reader import Row, RunLog
from morphogen.extras.pictures.figure import (
    CYCLE,
    GREY,
    STAGE_COLOURS,
    Plot,
    add_stage_legend,
    draw_each,
    label_panel,
    render_figure,
)
from morphogen.log.codec import Array
from morphogen.log.events import tidy
from morphogen.log.round_record import RoundRecord
from morphogen.log.round_summary import running_value
from morphogen.vocab.objective import ANYTIME
from morphogen.vocab.stage import OCCUPIED, Stage
from morphogen.vocab.text import name_map

NEEDED = frozenset(  # columns of a record; logs of early versions lack some of them
    name_map(
        "val_acc, committed_acc, final_acc, host_acc, measured, network_value, param_cost, "
        "live_params, host_params, stage, blueprint, alpha, regime, rolled_back"
    )
)
POINTS = 100.0  # of a score in percent, per 1 of a value
PICTURE_WIDTH = 8.0  # inches, of the picture by itself
PICTURE_DPI = 200
THIN = 0.8  # points, of thin lines
LANE = 0.8  # height of a bar, in lanes
LIVING = frozenset(stage.name for stage in OCCUPIED)
MARKS = {"regime": GREY, "rollback": CYCLE[1]}  # begin of a regime; rollback: of the env


def life_rows(log: RunLog) -> list[Row]:
    """A row per epoch of the env that `choose_env` takes from the last round; empty without a
    record.

    Columns: `accuracy` and `host_alone`, percent; `value` and `price` at the end of the epoch, as
    shares of 1; `params_added` over the parameters of the host; `mark`, an event; stage, blueprint
    and alpha of every slot; objective and score of the task.  Epochs count from 1.

    Raises: DataError for a damaged record.
    """
    record = log.last_record()
    if record is None or not record.columns.keys() >= NEEDED:
        return []
    try:
        return _env_rows(record, choose_env(record), log.score)
    except (ValueError, TypeError, IndexError) as error:
        raise DataError(f"{log.path} has a damaged record of its last round: {error}") from None


def choose_env(record: RoundRecord) -> int:
    """Return the env whose fossilized seeds add most to its value at the end of the episode: score
    with them minus score of the host alone, minus their price.

    Without fossils in any env it is the env with the best score at the end.  The first of equals.
    """
    last = {name: record.columns[name][-1] for name in NEEDED}
    gain = (last["committed_acc"] - last["host_acc"]) / POINTS - last["param_cost"]
    kept = (last["stage"] == int(Stage.FOSSILIZED)).any(axis=-1)
    known = kept & last["measured"] & ~last["rolled_back"] & np.isfinite(gain)
    merit = np.where(known, gain, -np.inf) if known.any() else last["final_acc"]
    return int(np.nan_to_num(merit, nan=-np.inf).argmax())


def _env_rows(record: RoundRecord, env: int, score: str) -> list[Row]:
    facts = record.facts
    own = {name: record.columns[name][:, env] for name in NEEDED}
    values = {
        "accuracy": own["val_acc"],
        "host_alone": np.where(own["measured"], own["host_acc"], np.nan),
        "value": running_value(own["network_value"], facts.objective),
        "price": _price(own, facts.objective),
        "params_added": own["live_params"] / own["host_params"],
    }
    begins = np.diff(own["regime"], prepend=own["regime"][:1]) != 0
    marks = np.select([own["rolled_back"], begins], ["rollback", "regime"], "")
    rows = []
    for t in range(record.epochs):
        row: Row = {"round": record.round + 1, "env": env, "epoch": t + 1}
        row |= {name: tidy(column[t]) for name, column in values.items()}
        row["mark"] = str(marks[t]) or None
        for i, slot in enumerate(facts.slots):
            stage = Stage(int(own["stage"][t, i])).name
            code = int(own["blueprint"][t, i])
            row[f"{slot}.stage"] = stage
            row[f"{slot}.blueprint"] = facts.blueprints[code] if stage in LIVING else None
            row[f"{slot}.alpha"] = tidy(own["alpha"][t, i]) if stage in LIVING else None
        rows.append(row | {"objective": facts.objective, "score": score})
    return rows


def _price(own: dict[str, Array], objective: str) -> Array:
    """Return the part of the value that is price, [T]: of the fossils, or by the anytime value of
    all seeds alive, as the mean of the epochs so far.
    """
    if objective != ANYTIME:
        return own["param_cost"]
    rent = np.nan_to_num(own["final_acc"]) / POINTS - own["network_value"]
    return running_value(np.where(own["live_params"] > 0, rent, 0.0), objective)


def draw_alone(rows: Sequence[Row], form: str) -> bytes:
    """Return the picture of one run by itself, at the width of a README, as the bytes of a file.

    form: `svg` or `png`.
    """

    def draw() -> Figure:
        height = 3.0 + 0.4 * len(_slots(rows))
        page = Figure(figsize=(PICTURE_WIDTH, height), layout="constrained")
        _plot_life(page, rows)
        return page

    return render_figure(draw, form, PICTURE_DPI)


def _slots(rows: Sequence[Row]) -> list[str]:
    return [name.removesuffix(".stage") for name in rows[0] if name.endswith(".stage")]


def _plot_life(part: FigureBase, rows: Sequence[Row]) -> None:
    slots = _slots(rows)
    ratios = (1.6, 0.35 * len(slots), 1.0)
    top, lanes, bottom = part.subplots(3, 1, sharex=True, height_ratios=ratios)
    _plot_scores(top, rows)
    label_panel(lanes, "Seeds in the slots (line: alpha, 0 to 1)", "", "slot")
    for i, slot in enumerate(slots):
        _plot_lane(lanes, i, rows, slot)
    lanes.set_yticks(range(len(slots)), slots)
    lanes.set_ylim(len(slots) - 0.5, -0.5)
    lanes.grid(visible=False, axis="y")
    _plot_costs(bottom, rows)
    bottom.set_xlim(0, len(rows))
    add_stage_legend(part, {row[f"{slot}.stage"] for row in rows for slot in slots})


def _plot_scores(ax: Axes, rows: Sequence[Row]) -> None:
    """Draw the scores at the end of each epoch, and the events at the begin of one."""
    where = f"round {rows[0]['round']}, env {rows[0]['env']}"
    label_panel(ax, f"{rows[0]['score'].capitalize()} ({where})", "", "validation, %")
    used = _line(ax, rows, "accuracy", "network in use")
    used.set(color=CYCLE[0], marker=".", markersize=4)
    alone = _line(ax, rows, "host_alone", "same host, seeds off")
    alone.set(color="black", linewidth=THIN)
    for mark, colour in MARKS.items():
        label = f"{mark} begins" if mark == "regime" else mark
        for row in (row for row in rows if row["mark"] == mark):
            ax.axvline(row["epoch"] - 1, color=colour, linestyle=":", label=label)
            label = None
    _add_title_legend(ax, ax.get_legend_handles_labels()[0])


def _plot_lane(ax: Axes, lane: int, rows: Sequence[Row], slot: str) -> None:
    """Draw a bar per stage of a slot, the blueprint where a seed begins, and its alpha."""
    for stage, span in groupby(rows, lambda row: row[f"{slot}.stage"]):
        if stage in STAGE_COLOURS:
            epochs = [row["epoch"] for row in span]
            start = epochs[0] - 1
            ax.barh(lane, epochs[-1] - start, LANE, left=start, color=STAGE_COLOURS[stage])
    for seed, span in groupby(rows, lambda row: row[f"{slot}.blueprint"]):
        if seed is not None:
            life = list(span)
            start = life[0]["epoch"] - 1
            alphas = [0.0 if start else life[0][f"{slot}.alpha"]]
            alphas += [row[f"{slot}.alpha"] for row in life]
            heights = lane + LANE / 2 - LANE * np.array(alphas, dtype=np.float64)
            ax.plot(range(start, start + len(alphas)), heights, color="black", linewidth=THIN)
            ax.text(start + 0.1, lane, seed, fontsize=7, va="center", clip_on=True)


def _plot_costs(ax: Axes, rows: Sequence[Row]) -> None:
    """Draw the added parameters, and on an axis to the right the value and the price."""
    label_panel(ax, "Parameters, value, price", "epochs of the episode", "added, x host")
    added = np.array([row["params_added"] for row in rows], dtype=np.float64)
    edges = np.arange(len(rows) + 1)
    ax.stairs(added, edges, fill=True, color=GREY, alpha=0.5, label="added parameters")
    ax.set_ylim(bottom=0)
    right = ax.twinx()
    right.set_ylabel("share of 1")
    right.grid(visible=False)
    right.spines["right"].set_visible(True)
    span = " so far" if rows[0]["objective"] == ANYTIME else ""
    _line(right, rows, "value", f"value{span}").set_color(CYCLE[0])
    _line(right, rows, "price", f"price{span}").set_color(CYCLE[1])
    if not any((row["value"] or 0.0) < 0 for row in rows):
        right.set_ylim(bottom=0)  # as the axis to the left
    handles = [entry for panel in (ax, right) for entry in panel.get_legend_handles_labels()[0]]
    _add_title_legend(ax, handles)


def _line(ax: Axes, rows: Sequence[Row], name: str, label: str) -> Line2D:
    """Draw a column over the ends of the epochs."""
    values = np.array([row[name] for row in rows], dtype=np.float64)
    (line,) = ax.plot([row["epoch"] for row in rows], values, label=label, clip_on=False)
    return line


def _add_title_legend(ax: Axes, handles: Sequence[Artist]) -> None:
    """Add a legend beside the title of a panel."""
    ax.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        ncols=len(handles),
        handlelength=1.2,
        columnspacing=1.0,
    )


_TEXT = (
    "The env of the last round whose fossilized seeds add most to its value at the end: score with "
    "them minus score of the host alone, minus their price. Where no env has fossils, the one with "
    "the best score at the end; the first of equals. Scores are of the validation split at the end "
    "of an epoch. The thin line is the same host with all seeds switched off. Bars are stages, the "
    "text is the blueprint. Added parameters are the seeds that are alive. Value and price are of "
    "the network that would be delivered after the epoch; in a task with the anytime objective "
    "they are means over the epochs so far."
)
LIFE = Plot(
    "life", "One env's life", _TEXT, life_rows, partial(draw_each, draw=_plot_life, height=5.5)
)
