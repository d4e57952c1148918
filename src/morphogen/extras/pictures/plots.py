"""Pictures of the report: learning, lives of the seeds, contributions, throughput; each with its
numbers.  One env's life is drawn in `life`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from morphogen.extras.inspection.run_reader import Row, RunLog
from morphogen.extras.inspection.views import held_out_table, mean_with_error, rows_of_round
from morphogen.extras.pictures.figure import (
    CYCLE,
    DASHES,
    GREY,
    STAGE_COLOURS,
    Plot,
    RunRows,
    add_legend,
    add_stage_legend,
    draw_each,
    label_panel,
    limit_to_learned,
    new_figure,
)
from morphogen.extras.pictures.life import LIFE
from morphogen.log.events import mean_known
from morphogen.log.kinds.epoch import EpochCompleted, SeedGerminated
from morphogen.vocab.stage import Stage

GAIN = CYCLE[0]
LOSS = CYCLE[1]
RATE_COLUMNS = ("env_epochs_per_s", "samples_per_s", "rollout_s", "update_s", "compile_s")
WAIT_COLUMNS = {
    "host_wait_time_share": "host in fences",
    "data_wait_time_share": "drawing minibatches",
}
MAX_ENVS = 16  # that are shown
MARKS = {"RolledBack": "rollback", "RegimeBegan": "regime"}  # events of an env in an epoch, as rows
MARKERS = {"rollback": "x", "regime": "|"}
START = "host alone"
END = "final"
EMPTY_SPAN: Row = {"seed": None, "blueprint": None}


def _draw_curves(ax: Axes, runs: RunRows, series: Mapping[str, str]) -> None:
    """Draw columns over rounds, with a band between `_low` and `_high` of a mean.

    One run has a colour per column; several have a colour each and a dash per column.

    Args:
        series: column -> name of its curve.
    """
    alone = len(runs) == 1
    for i, (run, rows) in enumerate(runs.items()):
        rounds = [row["round"] for row in rows]
        for j, (column, name) in enumerate(series.items()):
            stem = column.removesuffix("_mean")
            values, low, high = (
                np.array([row.get(end) for row in rows], dtype=np.float64)
                for end in (column, f"{stem}_low", f"{stem}_high")
            )
            colour = CYCLE[(j if alone else i) % len(CYCLE)]
            dash = DASHES[0 if alone else j % len(DASHES)]
            label = name if alone else f"{run} {name}"
            if np.isfinite(values).any():
                ax.plot(rounds, values, marker=".", label=label, color=colour, linestyle=dash)
            ax.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
    add_legend(ax)


def _draw_held_out(runs: RunRows) -> Figure:
    page = new_figure(3.6)
    value, behind = page.subplots(1, 2)
    first = next(iter(runs.values()))[0]
    rivals = [name for name in first if f"minus_{name}_mean" in first]
    label_panel(value, "Value on held-out instances", "rounds of learning", "mean of an episode")
    label_panel(
        behind,
        "Trained policy minus rival",
        "rounds of learning",
        "difference in value, same instances",
    )
    lines = {name: f"`{name}`" for name in rivals if len(runs) == 1}
    _draw_curves(value, runs, {"value_mean": "trained policy", **lines})
    _draw_curves(behind, runs, {f"minus_{name}_mean": f"minus `{name}`" for name in rivals})
    behind.axhline(0.0, color=GREY, linewidth=0.8)
    limit_to_learned(value)
    limit_to_learned(behind)
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
                "rolling_accuracy": one["rolling_accuracy"],
                **mean_with_error("accuracy", one["env_accuracy"]),
                **mean_with_error("committed", one["env_committed"]),
                "host_only_mean": mean_known(ablations[-1]["host_acc"] if ablations else ()),
                **mean_with_error("value", [row["network_value"] for row in episodes]),
                **mean_with_error("reward", one["env_reward"]),
                "return_mean": one["return_mean"],
                "score": log.score,
            }
        )
    return rows


def _draw_learning(runs: RunRows) -> Figure:
    page = new_figure(7.2)
    axes = page.subplot_mosaic("aa;vr", height_ratios=(1.25, 1))
    score = " or ".join(dict.fromkeys(rows[0]["score"] for rows in runs.values()))
    title = f"{score.capitalize()} at the end of an episode"
    label_panel(axes["a"], title, "round", f"validation {score}, %")
    label_panel(axes["v"], "Value of an episode", "round", f"{score} (0 to 1) minus price")
    label_panel(axes["r"], "Rewards of the policy", "round", "reward per episode")
    accuracy = {
        "accuracy_mean": "final",
        "committed_mean": "committed",
        "rolling_accuracy": "final, last 10 rounds",
        "host_only_mean": "host alone",
    }
    _draw_curves(axes["a"], runs, accuracy)
    _draw_curves(axes["v"], runs, {"value_mean": "value"})
    _draw_curves(axes["r"], runs, {"reward_mean": "sum", "return_mean": "discounted"})
    return page


def throughput_rows(log: RunLog) -> list[Row]:
    """A row per round: rates, seconds, and the share of every phase in the time of all of them."""
    rows = []
    for one in log.tables["throughput"]:
        profiles = rows_of_round(log.tables["phases"], one["round"])
        phases: dict[str, Any] = profiles[0]["phases"] if profiles else {}
        spent = {
            name: (phase["wall_s"] if phase["device_s"] is None else phase["device_s"]) or 0.0
            for name, phase in phases.items()
        }
        total = sum(spent.values())
        rows.append(
            {
                "round": one["round"],
                **{name: one[name] for name in (*RATE_COLUMNS, *WAIT_COLUMNS)},
                **{f"phase.{name}": value / total for name, value in spent.items() if total},
            }
        )
    return rows


def _plot_throughput(part: SubFigure, rows: Sequence[Row]) -> None:
    axes = part.subplot_mosaic("rw;pp")
    label_panel(axes["r"], "Rate of the rollouts", "round", "epochs of an env per second")
    label_panel(axes["w"], "Waiting", "round", "share of the wall time, 0 to 1")
    _draw_curves(axes["r"], {"": rows}, {"env_epochs_per_s": "rate"})
    _draw_curves(axes["w"], {"": rows}, WAIT_COLUMNS)
    axes["r"].set_ylim(bottom=0)
    phases = axes["p"]
    label_panel(phases, "Where the time of a round goes", "round", "share of the time, 0 to 1")
    names = dict.fromkeys(name for row in rows for name in row if name.startswith("phase."))
    base = np.zeros(len(rows))
    for i, name in enumerate(names):
        values = np.array([row.get(name) or 0.0 for row in rows])
        style: dict[str, Any] = {"label": name.removeprefix("phase.")}
        style["color"] = matplotlib.colormaps["tab20"](i)  # phases outnumber the colours of CYCLE
        phases.bar([row["round"] for row in rows], values, width=1.0, bottom=base, **style)
        base += values
    add_legend(phases)


def lifecycle_rows(log: RunLog) -> list[Row]:
    """Spans of epochs that a slot spent in a stage, rollbacks and new regimes; of the best round
    and of the last one.
    """
    rounds = log.tables["rounds"]
    if not rounds:
        return []
    best = max(rounds, key=lambda row: row["committed_mean"] or 0.0)["round"]
    shown = {rounds[-1]["round"]: "last", best: "best"}
    return [
        {"which": which, "round": round, **row}
        for round, which in sorted(shown.items(), key=lambda entry: entry[1])
        for row in _round_rows(log, round)
    ]


def _round_rows(log: RunLog, round: int) -> Iterator[Row]:
    events = list(log.events(("EpochCompleted", "SeedGerminated", *MARKS), {round - 1}))
    stages = [event.data.stage for event in events if isinstance(event.data, EpochCompleted)]
    start = next(iter(log.tables["starts"]), {"envs": 0, "slots": ()})
    envs = range(min(MAX_ENVS, start["envs"]))
    for env in envs:
        for i, slot in enumerate(start["slots"]):
            own = [epoch[env][i] for epoch in stages]
            sown = {
                event.epoch: event.data.blueprint
                for event in events
                if isinstance(event.data, SeedGerminated) and (event.env, event.slot) == (env, slot)
            }
            for span in _spans(own, sown):
                yield {"env": env, "slot": slot, **span}
    for event in events:
        if event.name in MARKS and event.env in envs:
            place = {"env": event.env, "slot": None, "stage": MARKS[event.name]}
            yield {**place, "start": event.epoch, "end": event.epoch, **EMPTY_SPAN}


def _spans(stages: Iterable[str], sown: Mapping[int | None, str]) -> Iterator[Row]:
    """Spans of a slot from its stages, epoch by epoch, and the blueprints by epoch of sowing."""
    stop = 0
    for stage, epochs in groupby(stages):
        start = stop
        stop += len(list(epochs))
        seeds = [blueprint for epoch, blueprint in sown.items() if (epoch or 0) <= start]
        empty = stage == Stage.DORMANT.name or not seeds
        occupant = EMPTY_SPAN if empty else {"seed": len(seeds), "blueprint": seeds[-1]}
        yield {"stage": stage, "start": start, "end": stop, **occupant}


def _lanes(rows: Iterable[Row]) -> dict[tuple[int, str], int]:
    """Envs and their slots, numbered in the order of the rows."""
    places = dict.fromkeys((row["env"], row["slot"]) for row in rows if row["slot"])
    return {place: i for i, place in enumerate(places)}


def _draw_lifecycles(runs: RunRows) -> Figure:
    lanes = max(len(_lanes(rows)) for rows in runs.values())
    return draw_each(runs, _plot_lifecycles, 1.5 + 0.13 * max(6, lanes))


def _plot_lifecycles(part: SubFigure, rows: Sequence[Row]) -> None:
    kinds = dict.fromkeys(row["which"] for row in rows)
    for ax, which in zip(part.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _plot_gantt(ax, [row for row in rows if row["which"] == which])
    add_stage_legend(part, {row["stage"] for row in rows})


def _plot_gantt(ax: Axes, rows: Sequence[Row]) -> None:
    """Draw a lane per env and slot: a bar per stage, the blueprint where a seed begins, a mark per
    rollback and new regime.
    """
    lanes = _lanes(rows)
    title = f"Round {rows[0]['round']}, the {rows[0]['which']} one"
    label_panel(ax, title, "epoch of the episode", "env and slot")
    named = set[tuple[int, int]]()
    for row in rows:
        start = row["start"]
        if row["stage"] in MARKERS:
            own = [lane for place, lane in lanes.items() if place[0] == row["env"]]
            ax.plot([start] * len(own), own, MARKERS[row["stage"]], color="black")
        elif row["seed"]:
            lane = lanes[row["env"], row["slot"]]
            colour = STAGE_COLOURS[row["stage"]]
            ax.barh(lane, row["end"] - start, left=start, height=0.9, color=colour)
            if (lane, row["seed"]) not in named:
                named.add((lane, row["seed"]))
                ax.text(start + 0.1, lane, row["blueprint"] or "", fontsize=5.5, va="center")
    ax.set_yticks(range(len(lanes)), [f"{env} {slot}" for env, slot in lanes], fontsize=6)
    ax.set_ylim(len(lanes) - 0.5, -0.5)
    ax.set_xlim(0, max(row["end"] for row in rows))
    ax.grid(visible=False, axis="y")


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
    seeds = {seed["slot"]: seed["blueprint"] for seed in episode["topology"]}
    slots = log.tables["starts"][0]["slots"] if log.tables["starts"] else [*seeds]
    head = {"round": episode["round"], "env": episode["env"]}
    level = ablation["host_acc"]
    rows = [{**head, "step": START, "low": 0.0, "high": level}]
    for slot, share in zip(slots, ablation["shapley"], strict=True):
        if share or (share is not None and slot in seeds):  # others are empty, or do not run yet
            step = f"{slot} {seeds.get(slot, '(gone)')}"
            rows.append({**head, "step": step, "low": level, "high": level + share})
            level += share
    rows.append({**head, "step": END, "low": 0.0, "high": ablation["accuracy"]})
    return [{**row, "score": log.score} for row in rows]


def last_ablations(log: RunLog, episode: Row) -> Row | None:
    """The ablations of the last epoch of an episode; None where they were not all measured."""
    rows = rows_of_round(log.tables["ablations"], episode["round"])
    last = next((row for row in rows if row["epoch"] == episode["epoch"]), None)
    env = episode["env"]
    if last is None or not last["exact"][env] or last["host_acc"][env] is None:
        return None
    return {name: last[name][env] for name in ("host_acc", "accuracy", "shapley")}


def _plot_contributions(part: SubFigure, rows: Sequence[Row]) -> None:
    ax = part.subplots()
    where = f"round {rows[0]['round']}, env {rows[0]['env']}"
    title = f"From the host to the final network ({where})"
    ax.set(title=title, ylabel=f"validation {rows[0]['score']}, %")
    for row in rows:
        gain = row["high"] - row["low"]
        total = row["step"] in (START, END)
        colour = GREY if total else GAIN if gain >= 0 else LOSS
        name = row["step"].replace(" ", "\n", 1)
        bar = ax.bar(name, gain, 0.6, bottom=row["low"], color=colour)
        ax.bar_label(bar, [f"{gain:.2f}" if total else f"{gain:+.2f}"], padding=2, fontsize=8)
    ends = [row["high"] for row in rows]
    room = max(2.0, max(ends) - min(ends)) * 0.4
    ax.set_ylim(max(0.0, min(ends) - room), max(ends) + room)


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
    "Scores are of the validation split at the end of an episode, over all envs of a "
    "round. Committed: with "
    "fossilized seeds only. Host alone: the same host with all seeds switched off. Bands: one "
    "standard error over the envs.",
    learning_rows,
    _draw_learning,
)
LIFECYCLE = Plot(
    "lifecycle",
    "Lives of the seeds",
    f"The best round by committed score, and the last one; the first {MAX_ENVS} envs. "
    "Bars are stages, the text is "
    "the blueprint, a cross is a rollback of the env, a stroke the begin of a regime. A "
    "slot without a bar is empty.",
    lifecycle_rows,
    _draw_lifecycles,
)
CONTRIBUTIONS = Plot(
    "contributions",
    "Contributions in the best episode",
    "Shapley values of the seeds: together they are the difference between the final "
    "network and the same host without "
    "seeds. The axis of the score does not begin at 0.",
    contribution_rows,
    partial(draw_each, draw=_plot_contributions, height=3.6),
)
THROUGHPUT = Plot(
    "throughput",
    "Throughput",
    "The time of making graphs is in none of the numbers. Shares are of the device's time "
    "where it has a clock, else "
    "of the host's.",
    throughput_rows,
    partial(draw_each, draw=_plot_throughput, height=6.0),
)
PLOTS = (HELD_OUT, LEARNING, LIFE, LIFECYCLE, CONTRIBUTIONS, THROUGHPUT)  # in the order of the page
