"""The lives of slots, epoch by epoch: the best round and the last one."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from morphogen.analysis.plots import canvas
from morphogen.analysis.plots.canvas import Plot, RunRows
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row, round_number
from morphogen.telemetry.events import Envelope
from morphogen.vocab import stage as stages
from morphogen.vocab.stage import Stage

MAX_ENVS = 16  # that are shown
LIFECYCLE_EVENTS = ("StageChanged", "SeedGerminated", "RolledBack")
ROLLBACK = "rollback"
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


def lifecycle_rows(log: RunLog) -> list[Row]:
    """Spans of epochs that a slot spent in a stage, and rollbacks; of the best round and of the last one."""
    rounds = log.tables["rounds"]
    if not rounds:
        return []
    best = max(rounds, key=lambda row: row["committed_mean"] or 0.0)["round"]
    shown = {best: "best", **({} if best == rounds[-1]["round"] else {rounds[-1]["round"]: "last"})}
    end = 1 + max((row["epoch"] for row in log.tables["episodes"]), default=0)
    return [{"which": which, **row} for round, which in shown.items() for row in _round_rows(log, round, end)]


def _round_rows(log: RunLog, round: int, end: int) -> list[Row]:
    here = f'"round":{round},'
    events = log.events(lambda line: here in line and any(f'"{name}"' in line for name in LIFECYCLE_EVENTS))
    mine = [event for event in events if event.round is not None and round_number(event.round) == round]
    start = next(iter(log.tables["starts"]), {"envs": 0, "slots": ()})
    places = [(env, slot) for env in range(min(MAX_ENVS, start["envs"])) for slot in start["slots"]]
    spans = [
        {"env": env, "slot": slot, **span}
        for env, slot in places
        for span in _spans([event for event in mine if (event.env, event.slot) == (env, slot)], end)
    ]
    backs = [
        {"env": event.env, "slot": None, **_span(ROLLBACK, event.epoch, event.epoch)}
        for event in mine
        if event.name == "RolledBack" and (event.env or 0) < MAX_ENVS
    ]
    return [{"round": round, **row} for row in [*spans, *backs]]


def _spans(events: Iterable[Envelope], end: int) -> Iterator[Row]:
    """Stages of a slot, from its events; stages that lasted no epoch are left out."""
    born = {event.epoch: event.data.blueprint for event in events if event.name == "SeedGerminated"}
    moves = [(event.epoch or 0, event.data.to) for event in events if event.name == "StageChanged"]
    name, seed = None, 0
    for (start, stage), (stop, _) in pairwise([(0, Stage.DORMANT.name), *moves, (end, "")]):
        if stage == Stage.GERMINATED.name:
            name, seed = born.get(start), seed + 1
        if stop > start:
            yield {
                **_span(stage, start, stop),
                **({} if stage == Stage.DORMANT.name else {"seed": seed, "blueprint": name}),
            }


def _span(stage: str, start: int | None, end: int | None) -> Row:
    return {"stage": stage, "start": start, "end": end, "seed": None, "blueprint": None}


def _draw_lifecycle(found: RunRows) -> Figure:
    return canvas.stack_runs(found, _plot_lifecycles, _figure_height)


def _figure_height(rows: Sequence[Row]) -> float:
    return 1.5 + 0.13 * max(6, len(_slot_keys(rows)))


def _slot_keys(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """Envs and their slots, in the order of the rows."""
    return list(dict.fromkeys((row["env"], row["slot"]) for row in rows if row["slot"]))


def _plot_lifecycles(part: SubFigure, rows: Sequence[Row]) -> None:
    kinds = [which for which in ("best", "last") if any(row["which"] == which for row in rows)]
    axes = part.subplots(1, len(kinds), squeeze=False)[0]
    for ax, which in zip(axes, kinds, strict=True):
        _plot_gantt(ax, [row for row in rows if row["which"] == which], which)
    used = {row["stage"] for row in rows}
    patches = [Patch(color=colour, label=name.lower()) for name, colour in COLOURS.items() if name in used]
    part.legend(handles=patches, loc="outside lower center", ncols=len(COLOURS))


def _plot_gantt(ax: Axes, rows: list[Row], which: str) -> None:
    """A row per env and slot, a bar per stage, a label per seed, a cross per rollback."""
    places = _slot_keys(rows)
    at = {place: i for i, place in enumerate(places)}
    round = rows[0]["round"]
    canvas.label_panel(ax, f"Round {round}, the {which} one", "epoch of the episode", "env and slot")
    _plot_bars(ax, [row for row in rows if row["stage"] in COLOURS], at)
    for row in rows:
        if row["stage"] == ROLLBACK:
            mine = [i for place, i in at.items() if place[0] == row["env"]]
            ax.plot([row["start"]] * len(mine), mine, linestyle="", marker="x", color=canvas.BLACK, markersize=5)
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
    f"The best round by committed accuracy, and the last one; the first {MAX_ENVS} envs. "
    "Bars are stages, the text is the "
    "blueprint, a cross is a rollback of the env. A slot without a bar is empty.",
    lifecycle_rows,
    _draw_lifecycle,
)
