"""Seeds: stages of their slots by epoch, contributions in the best episode, and blueprints over the whole run."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, group_rows, label_panel
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.analysis.views import blueprint_table, rows_of_round
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.kinds.epoch import SeedGerminated, StageChanged
from morphogen.vocab import stage as stages
from morphogen.vocab.stage import Stage

MAX_ENVS = 16  # that are shown
MARKS = {"RolledBack": "rollback", "RegimeBegan": "regime"}  # events of an env in an epoch, as rows
MARKERS = {"rollback": ("x", 5), "regime": ("|", 8)}  # and how they are drawn: marker, size
LIFECYCLE_EVENTS = ("StageChanged", "SeedGerminated", *MARKS)
OCCUPIED_NAMES = tuple(stage.name for stage in stages.OCCUPIED)
MIN_LABEL_EPOCHS = 3  # epochs from which the name of a blueprint fits
COLOURS = {
    Stage.GERMINATED.name: canvas.YELLOW,
    Stage.TRAINING.name: canvas.ORANGE,
    Stage.BLENDING.name: canvas.SKY,
    Stage.HOLDING.name: canvas.PURPLE,
    Stage.FOSSILIZED.name: canvas.GREEN,
    Stage.PRUNED.name: canvas.VERMILLION,
    Stage.EMBARGOED.name: canvas.GREY,
    Stage.RESETTING.name: canvas.PALE,
}
FATES = {
    "fossilized": canvas.GREEN,
    "pruned.action": canvas.VERMILLION,
    "pruned.ramp": canvas.ORANGE,
    "pruned.governor": canvas.BLACK,
    "alive": canvas.SKY,
}
START, END = "host alone", "final"
EMPTY_SPAN: Row = {"seed": None, "blueprint": None}


def lifecycle_rows(log: RunLog) -> list[Row]:
    """Spans of epochs that a slot spent in a stage, rollbacks and new regimes, in the best and the last round."""
    rounds = log.tables["rounds"]
    if not rounds:
        return []
    best = max(rounds, key=lambda row: row["committed_mean"] or 0.0)["round"]
    shown = {best: "best", **({} if best == rounds[-1]["round"] else {rounds[-1]["round"]: "last"})}
    end = 1 + max((row["epoch"] for row in log.tables["episodes"]), default=0)
    return [{"which": which, **row} for round, which in shown.items() for row in _round_rows(log, round, end)]


def _round_rows(log: RunLog, round: int, end: int) -> list[Row]:
    round_events = list(log.events(LIFECYCLE_EVENTS, {round - 1}))
    start = next(iter(log.tables["starts"]), {"envs": 0, "slots": ()})
    places = [(env, slot) for env in range(min(MAX_ENVS, start["envs"])) for slot in start["slots"]]
    spans = [
        {"env": env, "slot": slot, **span}
        for env, slot in places
        for span in _spans([event for event in round_events if (event.env, event.slot) == (env, slot)], end)
    ]
    marks = [
        {"env": event.env, "slot": None, "stage": MARKS[event.name], "start": event.epoch, "end": event.epoch}
        for event in round_events
        if event.name in MARKS and (event.env or 0) < MAX_ENVS
    ]
    return [{"round": round, **row} for row in [*spans, *(mark | EMPTY_SPAN for mark in marks)]]


def _spans(events: Iterable[Envelope], end: int) -> Iterator[Row]:
    """Stages of a slot, from its events; stages that lasted no epoch are left out."""
    born = {event.epoch: event.data.blueprint for event in events if isinstance(event.data, SeedGerminated)}
    moves = [(event.epoch or 0, event.data.to) for event in events if isinstance(event.data, StageChanged)]
    name, seed = None, 0
    for (start, stage), (stop, _) in pairwise([(0, Stage.DORMANT.name), *moves, (end, "")]):
        if stage == Stage.GERMINATED.name:
            name, seed = born.get(start), seed + 1
        if stop > start:
            occupant = EMPTY_SPAN if stage == Stage.DORMANT.name else {"seed": seed, "blueprint": name}
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
    patches = [Patch(color=colour, label=name.lower()) for name, colour in COLOURS.items() if name in used]
    part.legend(handles=patches, loc="outside lower center", ncols=len(COLOURS))


def _plot_gantt(ax: Axes, rows: list[Row], which: str) -> None:
    """A row per env and slot, a bar per stage, a label per seed, a mark per rollback and new regime."""
    places = _slot_keys(rows)
    at = {place: i for i, place in enumerate(places)}
    label_panel(ax, f"Round {rows[0]['round']}, the {which} one", "epoch of the episode", "env and slot")
    _plot_bars(ax, [row for row in rows if row["stage"] in COLOURS], at)
    for row in rows:
        if row["stage"] in MARKERS:
            lanes, (marker, size) = [i for place, i in at.items() if place[0] == row["env"]], MARKERS[row["stage"]]
            style = {"linestyle": "", "marker": marker, "markersize": size, "color": canvas.BLACK}
            ax.plot([row["start"]] * len(lanes), lanes, **style)
    ax.set_yticks(range(len(places)), [f"{env} {slot}" for env, slot in places], fontsize=6)
    for i, (one, other) in enumerate(pairwise(places)):
        if one[0] != other[0]:
            ax.axhline(i + 0.5, color=canvas.GREY, linewidth=0.5)
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set_xlim(0, max(row["end"] for row in rows))
    ax.grid(visible=False, axis="y")
    canvas.set_integer_x(ax)


def _plot_bars(ax: Axes, rows: list[Row], at: dict[tuple[int, str], int]) -> None:
    """A bar per span; the name of a seed where its life began."""
    lives: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        y = at[row["env"], row["slot"]]
        ax.barh(y, row["end"] - row["start"], left=row["start"], height=0.9, color=COLOURS[row["stage"]])
        if row["stage"] in OCCUPIED_NAMES:
            lives.setdefault((y, row["seed"]), []).append(row)
    for (y, _), life in lives.items():
        start, end = life[0]["start"], life[-1]["end"]
        if life[0]["blueprint"] and end - start >= MIN_LABEL_EPOCHS:
            ax.text(start + 0.1, y, life[0]["blueprint"], fontsize=5.5, va="center", clip_on=True)


LIFECYCLE = Plot(
    "lifecycle",
    "Lives of the seeds",
    f"The best round by committed accuracy, and the last one; the first {MAX_ENVS} envs. Bars are stages, the text is "
    "the blueprint, a cross is a rollback of the env, a stroke the begin of a regime. A slot without a bar is empty.",
    lifecycle_rows,
    canvas.stack_runs(_plot_lifecycles, lambda rows: 1.5 + 0.13 * max(6, len(_slot_keys(rows)))),
)


def contribution_rows(log: RunLog) -> list[Row]:
    """From the bare host to the final network of the best episode, seed by seed; Shapley values add up."""
    measured = [(row, ablation) for row in log.tables["episodes"] if (ablation := last_ablations(log, row))]
    if not measured:
        return []
    episode, ablation = max(measured, key=lambda entry: entry[0]["committed_accuracy"] or 0.0)
    slots = log.tables["starts"][0]["slots"] if log.tables["starts"] else [seed["slot"] for seed in episode["topology"]]
    seeds = {seed["slot"]: seed for seed in episode["topology"]}
    head = {"round": episode["round"], "env": episode["env"]}
    level = ablation["host_acc"]
    rows = [{**head, "step": START, "low": 0.0, "high": level, "interaction": None}]
    for slot, share, interaction in zip(slots, ablation["shapley"], ablation["interaction_sum"], strict=True):
        if share is None or (not share and slot not in seeds):
            continue  # nothing grows there, or it does not run yet
        step = f"{slot} {seeds[slot]['blueprint'] if slot in seeds else '(gone)'}"
        rows.append({**head, "step": step, "low": level, "high": level + share, "interaction": interaction})
        level += share
    return [*rows, {**head, "step": END, "low": 0.0, "high": ablation["accuracy"], "interaction": None}]


def last_ablations(log: RunLog, episode: Row) -> Row | None:
    """The ablations of the last epoch of an episode; None where they were not all measured."""
    rows = rows_of_round(log.tables["ablations"], episode["round"])
    parts = [row for row in rows if row["epoch"] == episode["epoch"]]
    env = episode["env"]
    whole: dict[str, Any] = {}
    for name in ("exact", "host_acc", "accuracy", "shapley", "interaction_sum"):
        values = [value for part in parts for value in part[name]]  # parts in order hold neighbouring envs
        whole[name] = values[env] if env < len(values) else None
    return whole if whole["exact"] and whole["host_acc"] is not None else None


def _plot_contributions(part: SubFigure, rows: Sequence[Row]) -> None:
    fall, bars = part.subplots(1, 2, width_ratios=(2.0, 1.0))
    where = f"round {rows[0]['round']}, env {rows[0]['env']}"
    label_panel(fall, f"From the host to the final network ({where})", "", "validation accuracy, %")
    label_panel(bars, "Interaction with the other seeds", "accuracy, points", "")
    gains, totals = [row["high"] - row["low"] for row in rows], [row["step"] in (START, END) for row in rows]
    colours = [canvas.GREY if total else _sign_colour(gain) for gain, total in zip(gains, totals, strict=True)]
    texts = [f"{gain:.2f}" if total else f"{gain:+.2f}" for gain, total in zip(gains, totals, strict=True)]
    names = [_break_label(row["step"]) for row in rows]
    drawn = fall.bar(names, gains, 0.6, bottom=[row["low"] for row in rows], color=colours)
    fall.bar_label(drawn, texts, padding=2, fontsize=8)
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
    return step.replace(" ", "\n", 1)


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
        known = [(i + shift, row) for i, row in enumerate(rows) if row[f"{name}_mean"] is not None]
        values, errors = ([row[f"{name}_{part}"] or 0.0 for _, row in known] for part in ("mean", "error"))
        style = {"fmt": "o", "color": colour, "capsize": 3, "label": name}
        worth.errorbar(values, [place for place, _ in known], xerr=errors, **style)
    worth.axvline(0, color=canvas.BLACK, linewidth=0.8)
    price.barh(names, [row["macs_share"] or 0.0 for row in rows], color=canvas.SKY)
    texts = [f"{row['params']:,.0f} parameters" if row["params"] is not None else "" for row in rows]
    price.bar_label(price.containers[0], texts, padding=3, fontsize=8)
    price.margins(x=0.6)
    fates.invert_yaxis()
    part.legend(loc="outside lower left", ncols=len(FATES) + 2)


CONTRIBUTIONS = Plot(
    "contributions",
    "Contributions in the best episode",
    "Shapley values of the seeds: together they are the difference between the final network and the same host without "
    "seeds. Interaction: what a seed is worth with the others beyond what it is worth alone. The axis of accuracy does "
    "not begin at 0.",
    contribution_rows,
    canvas.stack_runs(_plot_contributions, 3.6),
)
BLUEPRINTS = Plot(
    "blueprints",
    "Blueprints",
    "Over the whole run. Contribution: accuracy that is lost when the seed is switched off. Shapley: its fair share of "
    "the gain.",
    lambda log: blueprint_table(log.tables),
    canvas.stack_runs(_plot_blueprints, lambda rows: 1.7 + 0.32 * len(rows)),
    lambda log: blueprint_table(log.tables),
)
