"""Pictures of the report: learning, lives of the seeds, contributions, throughput; each with its
numbers.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from morphogen.log.events import Envelope, mean_known
from morphogen.log.kinds.epoch import SeedGerminated, StageChanged
from morphogen.log.run_log import RunLog
from morphogen.log.tables import Row
from morphogen.log.views import held_out_table, mean_with_error, rows_of_round
from morphogen.reports.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    STYLE_FILE,
    VERMILLION,
    YELLOW,
    RunRows,
    add_legends,
    add_panels,
    cycle_colour,
    draw_band,
    draw_curves,
    group_rows,
    label_panel,
    limit_to_learned,
    new_figure,
    prefixed_columns,
    set_integer_x,
    show_no_data,
    stack_runs,
)
from morphogen.vocab import stage as stages
from morphogen.vocab.stage import Stage

WAIT_COLUMNS = ("host_wait_time_share", "data_wait_time_share")
WAIT_NAMES = ("host in fences", "drawing minibatches")
RATE_COLUMNS = ("env_epochs_per_s", "samples_per_s", "rollout_s", "update_s", "compile_s")

Panel = tuple[str, str, dict[str, str]]  # title, axis, column -> name of its curve
VALUE_PANELS: tuple[Panel, ...] = (
    ("Value of an episode", "accuracy (0 to 1) minus price", {"value_mean": "value"}),
    (
        "What the policy was paid",
        "reward per episode",
        {"reward_mean": "sum", "return_mean": "discounted"},
    ),
)
SPEED_PANELS: tuple[Panel, ...] = (
    ("Rate of the rollouts", "epochs of an env per second", {"env_epochs_per_s": "rate"}),
    (
        "Standing still",
        "share of the wall time, 0 to 1",
        dict(zip(WAIT_COLUMNS, WAIT_NAMES, strict=True)),
    ),
)


MAX_ENVS = 16  # that are shown
MARKS = {"RolledBack": "rollback", "RegimeBegan": "regime"}  # events of an env in an epoch, as rows
MARKERS = {"rollback": ("x", 5), "regime": ("|", 8)}  # and how they are drawn: marker, size
LIFECYCLE_EVENTS = ("StageChanged", "SeedGerminated", *MARKS)
OCCUPIED_NAMES = tuple(stage.name for stage in stages.OCCUPIED)
MIN_LABEL_EPOCHS = 3  # epochs from which the name of a blueprint fits
COLOURS = {
    Stage.GERMINATED.name: YELLOW,
    Stage.TRAINING.name: ORANGE,
    Stage.BLENDING.name: SKY,
    Stage.HOLDING.name: PURPLE,
    Stage.FOSSILIZED.name: GREEN,
    Stage.PRUNED.name: VERMILLION,
    Stage.EMBARGOED.name: GREY,
    Stage.RESETTING.name: PALE,
}
START = "host alone"
END = "final"
EMPTY_SPAN: Row = {"seed": None, "blueprint": None}


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
        """Draw the picture, independent of the user's matplotlib settings; the same rows give the
        same bytes.
        """
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rc_file(STYLE_FILE, use_default_template=False)
            file = io.BytesIO()
            self.draw(runs).savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()


def _draw_panels(axes: Iterable[Axes], runs: RunRows, panels: Iterable[Panel]) -> None:
    for ax, (title, unit, series) in zip(axes, panels, strict=True):
        label_panel(ax, title, "round", unit)
        draw_curves(ax, runs, series)


def _draw_held_out(runs: RunRows) -> Figure:
    page = new_figure(3.6)
    value, behind = add_panels(page, (1, 1))
    rivals = dict.fromkeys(
        name
        for rows in runs.values()
        for row in rows
        for name in row
        if f"minus_{name}_mean" in row
    )
    label_panel(value, "Value on held-out instances", "rounds of learning", "mean of an episode")
    label_panel(
        behind,
        "Trained policy minus rival",
        "rounds of learning",
        "difference in value, same instances",
    )
    lines = (
        {"value_mean": "trained policy", **{name: f"`{name}`" for name in rivals}}
        if len(runs) == 1
        else {}
    )
    draw_curves(value, runs, lines or {"value_mean": "trained policy"})
    draw_curves(behind, runs, {f"minus_{name}_mean": f"minus `{name}`" for name in rivals})
    behind.axhline(0.0, color=GREY, linewidth=0.8)
    for ax, names in ((value, ["value"]), (behind, [f"minus_{name}" for name in rivals])):
        for i, (rows, name) in enumerate(product(runs.values(), names)):
            shade = i if len(runs) == 1 else i // len(names)
            style = {"color": cycle_colour(shade), "alpha": 0.2}
            draw_band(ax, rows, (f"{name}_low", f"{name}_high"), **style)
        limit_to_learned(ax)
    add_legends(value, behind)
    return page


def learning_rows(log: RunLog) -> list[Row]:
    """A row per round: accuracies, values and rewards with their spread over the envs."""
    rows = []
    for one in log.tables["rounds"]:
        episodes = rows_of_round(log.tables["episodes"], one["round"])
        ablations = rows_of_round(log.tables["ablations"], one["round"])
        rows.append(
            {
                "round": one["round"],
                **{name: one[name] for name in ("accuracy_mean", "rolling_accuracy")},
                **mean_with_error("accuracy", one["env_accuracy"]),
                **mean_with_error("committed", one["env_committed"]),
                "host_only_mean": mean_known(ablations[-1]["host_acc"] if ablations else ()),
                **mean_with_error("value", [row["network_value"] for row in episodes]),
                **mean_with_error("reward", one["env_reward"]),
                "return_mean": one["return_mean"],
            }
        )
    return rows


def _draw_learning(runs: RunRows) -> Figure:
    page = new_figure(7.2)
    axes = add_panels(page, (1,), (1, 1), heights=(1.25, 1))
    names = {
        "accuracy_mean": "final",
        "committed_mean": "committed",
        "rolling_accuracy": "final, last 10 rounds",
    }
    accuracy = {**names, "host_only_mean": "host alone"} if len(runs) == 1 else names
    for ax, name in zip(axes, ("accuracy", "value", "reward"), strict=True):
        _plot_spread(ax, runs, name)
    _draw_panels(
        axes,
        runs,
        [("Accuracy at the end of an episode", "validation accuracy, %", accuracy), *VALUE_PANELS],
    )
    add_legends(*axes)
    return page


def _plot_spread(ax: Axes, runs: RunRows, name: str) -> None:
    """Bands of one standard error around the mean."""
    for i, rows in enumerate(runs.values()):
        style = {"color": cycle_colour(i)}
        draw_band(
            ax,
            rows,
            (f"{name}_low", f"{name}_high"),
            alpha=0.3,
            label="± standard error" if not i else "",
            **style,
        )


def throughput_rows(log: RunLog) -> list[Row]:
    """A row per round: rates, seconds, and the share of every phase in the time of all of them."""
    tables = log.tables
    rows = []
    for one in tables["throughput"]:
        phases: dict[str, Any] = next(
            (row["phases"] for row in rows_of_round(tables["phases"], one["round"])), {}
        )
        clocks = {
            name: "wall_s" if phase["device_s"] is None else "device_s"
            for name, phase in phases.items()
        }
        spent = {name: phases[name][clock] or 0.0 for name, clock in clocks.items()}
        total = sum(spent.values())
        shares = {f"phase.{name}": value / total for name, value in spent.items() if total}
        rows.append(
            {
                "round": one["round"],
                **{name: one[name] for name in (*RATE_COLUMNS, *WAIT_COLUMNS)},
                **shares,
            }
        )
    return rows


def _draw_throughput(runs: RunRows) -> Figure:
    page = new_figure(3.0 + 3.0 * len(runs))
    rate, wait, *phases = add_panels(page, (1, 1), *((1,) for _ in runs))
    _draw_panels((rate, wait), runs, SPEED_PANELS)
    rate.set_ylim(bottom=0)
    add_legends(rate, wait)
    for ax, (run, rows) in zip(phases, runs.items(), strict=True):
        name = run if len(runs) > 1 else ""
        label_panel(
            ax,
            f"Where the time of a round goes {name}".rstrip(),
            "round",
            "share of the time, 0 to 1",
        )
        if names := prefixed_columns(rows, "phase"):
            _stack_bars(ax, rows, names)
            ax.set_ylim(0, 1)
            add_legends(ax)
        else:
            show_no_data(ax)
    return page


def _stack_bars(ax: Axes, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Columns over rounds, one on the other; column -> its name."""
    base = np.zeros(len(rows))
    for i, (column, name) in enumerate(columns.items()):
        values = np.array([row.get(column) or 0.0 for row in rows])
        colour = matplotlib.colormaps["tab20"](i)  # phases outnumber the colours of a cycle
        ax.bar(
            [row["round"] for row in rows], values, width=1.0, bottom=base, label=name, color=colour
        )
        base += values
    set_integer_x(ax)


def lifecycle_rows(log: RunLog) -> list[Row]:
    """Spans of epochs that a slot spent in a stage, rollbacks and new regimes; of the best round
    and of the last one.
    """
    rounds = log.tables["rounds"]
    if not rounds:
        return []
    best = max(rounds, key=lambda row: row["committed_mean"] or 0.0)["round"]
    shown = {best: "best", **({} if best == rounds[-1]["round"] else {rounds[-1]["round"]: "last"})}
    end = 1 + max((row["epoch"] for row in log.tables["episodes"]), default=0)
    return [
        {"which": which, **row}
        for round, which in shown.items()
        for row in _round_rows(log, round, end)
    ]


def _round_rows(log: RunLog, round: int, end: int) -> list[Row]:
    round_events = list(log.events(LIFECYCLE_EVENTS, {round - 1}))
    start = next(iter(log.tables["starts"]), {"envs": 0, "slots": ()})
    places = [(env, slot) for env in range(min(MAX_ENVS, start["envs"])) for slot in start["slots"]]
    spans = [
        {"env": env, "slot": slot, **span}
        for env, slot in places
        for span in _spans(
            [event for event in round_events if (event.env, event.slot) == (env, slot)], end
        )
    ]
    marks = [
        {
            "env": event.env,
            "slot": None,
            "stage": MARKS[event.name],
            "start": event.epoch,
            "end": event.epoch,
        }
        for event in round_events
        if event.name in MARKS and (event.env or 0) < MAX_ENVS
    ]
    return [{"round": round, **row} for row in [*spans, *(mark | EMPTY_SPAN for mark in marks)]]


def _spans(events: Iterable[Envelope], end: int) -> Iterator[Row]:
    """Stages of a slot, from its events; stages that lasted no epoch are left out."""
    born = {
        event.epoch: event.data.blueprint
        for event in events
        if isinstance(event.data, SeedGerminated)
    }
    moves = [
        (event.epoch or 0, event.data.to)
        for event in events
        if isinstance(event.data, StageChanged)
    ]
    name = None
    seed = 0
    for (start, stage), (stop, _) in pairwise([(0, Stage.DORMANT.name), *moves, (end, "")]):
        if stage == Stage.GERMINATED.name:
            name = born.get(start)
            seed = seed + 1
        if stop > start:
            occupant = (
                EMPTY_SPAN if stage == Stage.DORMANT.name else {"seed": seed, "blueprint": name}
            )
            yield {"stage": stage, "start": start, "end": stop, **occupant}


def _slot_keys(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """Envs and their slots, in the order of the rows."""
    return list(dict.fromkeys((row["env"], row["slot"]) for row in rows if row["slot"]))


def _plot_lifecycles(part: SubFigure, rows: Sequence[Row]) -> None:
    kinds = group_rows(rows, "which")
    axes = part.subplots(1, len(kinds), squeeze=False)[0]
    for ax, (which, shown) in zip(axes, kinds.items(), strict=True):
        _plot_gantt(ax, shown, which)
    used = {row["stage"] for row in rows}
    patches = [
        Patch(color=colour, label=name.lower()) for name, colour in COLOURS.items() if name in used
    ]
    part.legend(handles=patches, loc="outside lower center", ncols=len(COLOURS))


def _plot_gantt(ax: Axes, rows: list[Row], which: str) -> None:
    """A row per env and slot, a bar per stage, a label per seed, a mark per rollback and new
    regime.
    """
    places = _slot_keys(rows)
    at = {place: i for i, place in enumerate(places)}
    label_panel(
        ax, f"Round {rows[0]['round']}, the {which} one", "epoch of the episode", "env and slot"
    )
    _plot_bars(ax, [row for row in rows if row["stage"] in COLOURS], at)
    for row in rows:
        if row["stage"] in MARKERS:
            lanes = [i for place, i in at.items() if place[0] == row["env"]]
            (marker, size) = MARKERS[row["stage"]]
            style = {"linestyle": "", "marker": marker, "markersize": size, "color": BLACK}
            ax.plot([row["start"]] * len(lanes), lanes, **style)
    ax.set_yticks(range(len(places)), [f"{env} {slot}" for env, slot in places], fontsize=6)
    for i, (one, other) in enumerate(pairwise(places)):
        if one[0] != other[0]:
            ax.axhline(i + 0.5, color=GREY, linewidth=0.5)
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set_xlim(0, max(row["end"] for row in rows))
    ax.grid(visible=False, axis="y")
    set_integer_x(ax)


def _plot_bars(ax: Axes, rows: list[Row], at: dict[tuple[int, str], int]) -> None:
    """A bar per span; the name of a seed where its life began."""
    lives: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        y = at[row["env"], row["slot"]]
        ax.barh(
            y, row["end"] - row["start"], left=row["start"], height=0.9, color=COLOURS[row["stage"]]
        )
        if row["stage"] in OCCUPIED_NAMES:
            lives.setdefault((y, row["seed"]), []).append(row)
    for (y, _), life in lives.items():
        start = life[0]["start"]
        end = life[-1]["end"]
        if life[0]["blueprint"] and end - start >= MIN_LABEL_EPOCHS:
            ax.text(start + 0.1, y, life[0]["blueprint"], fontsize=5.5, va="center", clip_on=True)


def contribution_rows(log: RunLog) -> list[Row]:
    """From the bare host to the final network of the best episode, seed by seed; Shapley values add
    up.
    """
    measured = [
        (row, ablation) for row in log.tables["episodes"] if (ablation := last_ablations(log, row))
    ]
    if not measured:
        return []
    episode, ablation = max(measured, key=lambda entry: entry[0]["committed_accuracy"] or 0.0)
    slots = (
        log.tables["starts"][0]["slots"]
        if log.tables["starts"]
        else [seed["slot"] for seed in episode["topology"]]
    )
    seeds = {seed["slot"]: seed for seed in episode["topology"]}
    head = {"round": episode["round"], "env": episode["env"]}
    level = ablation["host_acc"]
    rows = [{**head, "step": START, "low": 0.0, "high": level}]
    for slot, share in zip(slots, ablation["shapley"], strict=True):
        if share is None or (not share and slot not in seeds):
            continue  # nothing grows there, or it does not run yet
        step = f"{slot} {seeds[slot]['blueprint'] if slot in seeds else '(gone)'}"
        rows.append({**head, "step": step, "low": level, "high": level + share})
        level += share
    return [*rows, {**head, "step": END, "low": 0.0, "high": ablation["accuracy"]}]


def last_ablations(log: RunLog, episode: Row) -> Row | None:
    """The ablations of the last epoch of an episode; None where they were not all measured."""
    rows = rows_of_round(log.tables["ablations"], episode["round"])
    parts = [row for row in rows if row["epoch"] == episode["epoch"]]
    env = episode["env"]
    whole: dict[str, Any] = {}
    for name in ("exact", "host_acc", "accuracy", "shapley"):
        # parts in order hold neighbouring envs
        values = [value for part in parts for value in part[name]]
        whole[name] = values[env] if env < len(values) else None
    return whole if whole["exact"] and whole["host_acc"] is not None else None


def _plot_contributions(part: SubFigure, rows: Sequence[Row]) -> None:
    fall = part.subplots()
    where = f"round {rows[0]['round']}, env {rows[0]['env']}"
    label_panel(fall, f"From the host to the final network ({where})", "", "validation accuracy, %")
    gains = [row["high"] - row["low"] for row in rows]
    totals = [row["step"] in (START, END) for row in rows]
    colours = [
        GREY if total else BLUE if gain >= 0 else VERMILLION
        for gain, total in zip(gains, totals, strict=True)
    ]
    texts = [
        f"{gain:.2f}" if total else f"{gain:+.2f}"
        for gain, total in zip(gains, totals, strict=True)
    ]
    names = [row["step"].replace(" ", "\n", 1) for row in rows]
    drawn = fall.bar(names, gains, 0.6, bottom=[row["low"] for row in rows], color=colours)
    fall.bar_label(drawn, texts, padding=2, fontsize=8)
    for i, row in enumerate(rows[:-1]):
        fall.plot([i, i + 1], [row["high"]] * 2, color=BLACK, linewidth=0.7)
    ends = [row["high"] for row in rows]
    room = max(2.0, max(ends) - min(ends)) * 0.4
    fall.set_ylim(max(0.0, min(ends) - room), max(ends) + room)


HELD_OUT = Plot(
    "held_out_plays",
    "Learning on held-out instances",
    "The policy plays the same few held-out instances again and again while it learns; its "
    "rivals play them once. "
    "Bands: one standard error over the instances; for differences, over paired instances.",
    lambda log: held_out_table(log.tables),
    _draw_held_out,
)
LEARNING = Plot(
    "learning_curve",
    "Learning curves",
    "Accuracies are of the validation split at the end of an episode, over all envs of a "
    "round. Committed: with "
    "fossilized seeds only. Host alone: the same host with all seeds switched off.",
    learning_rows,
    _draw_learning,
)
LIFECYCLE = Plot(
    "lifecycle",
    "Lives of the seeds",
    f"The best round by committed accuracy, and the last one; the first {MAX_ENVS} envs. "
    "Bars are stages, the text is "
    "the blueprint, a cross is a rollback of the env, a stroke the begin of a regime. A "
    "slot without a bar is empty.",
    lifecycle_rows,
    stack_runs(_plot_lifecycles, lambda rows: 1.5 + 0.13 * max(6, len(_slot_keys(rows)))),
)

CONTRIBUTIONS = Plot(
    "contributions",
    "Contributions in the best episode",
    "Shapley values of the seeds: together they are the difference between the final "
    "network and the same host without "
    "seeds. The axis of accuracy does not begin at 0.",
    contribution_rows,
    stack_runs(_plot_contributions, 3.6),
)
THROUGHPUT = Plot(
    "throughput",
    "Throughput",
    "The time of making graphs is in none of the numbers. Shares are of the device's time "
    "where it has a clock, else "
    "of the host's.",
    throughput_rows,
    _draw_throughput,
)
PLOTS = (HELD_OUT, LEARNING, LIFECYCLE, CONTRIBUTIONS, THROUGHPUT)  # in the order of the page
