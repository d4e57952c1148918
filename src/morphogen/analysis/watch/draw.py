"""Screen of a run: `draw(view) -> rich renderable`.  Letters and words repeat what colours say."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from morphogen.analysis.console import format_duration, round_number
from morphogen.analysis.watch.view import ActionView, EnvView, Note, RunView, SlotView
from morphogen.telemetry.kinds.run import Interval, RunStarted
from morphogen.telemetry.messages import format_counts
from morphogen.vocab.action import Op
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

SEVERITIES = {"info": "", "warning": "yellow", "error": "bold red"}
STATUS = {"running": "bold", "completed": "bold green", "stopped": "yellow", "failed": "bold red"}
IDLE_LIMIT_S = 30.0  # seconds without a new line before a remark
MIN_ENV_ROWS = 3  # rows of envs on the lowest screen
ALARM_LINES, NOTE_LINES = 4, 5  # lines
COLUMN_WIDTHS = {"env": 3, "params": 6, "reward": 7, "actions": 12}  # of an env, besides slots and accuracy
REGIME_WIDTH = 11  # of the column of regimes, which only runs with regimes have
NAME_WIDTH, NUMBER_WIDTH, BAR_WIDTH = 13, 8, 16
CURVE_WIDTHS = (6, 24)  # columns of a curve, least and most
SLOT_WIDTHS = (28, 18, 4)  # columns of a slot: with the word for its stage, with the letter, without blueprint
RAMP_CHARACTERS, ASCII_RAMP_CHARACTERS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
# stage -> word, letter, colour
STAGE_STYLES: dict[str, tuple[str, str, str]] = {
    Stage.DORMANT.name: ("empty", ".", "dim"),
    Stage.GERMINATED.name: ("germinated", "g", "cyan"),
    Stage.TRAINING.name: ("training", "t", "bright_blue"),
    Stage.BLENDING.name: ("blending", "b", "yellow"),
    Stage.HOLDING.name: ("holding", "h", "magenta"),
    Stage.FOSSILIZED.name: ("fossilized", "F", "bold green"),
    Stage.PRUNED.name: ("pruned", "x", "red"),
    Stage.EMBARGOED.name: ("embargoed", "-", "dim"),
    Stage.RESETTING.name: ("resetting", "-", "dim"),
}
# op -> letter; a small letter for an action that was not executed
OP_LETTERS: dict[str, str] = {
    Op.WAIT.name: ".",
    Op.GERMINATE.name: "G",
    Op.SET_ALPHA_TARGET.name: "T",
    Op.PRUNE.name: "P",
    Op.FOSSILIZE.name: "F",
    Op.ADVANCE.name: "A",
}
LEGEND = (
    "slots: . empty, g germinated, t training, b blending, h holding, F fossilized, x pruned, - cooling; "
    "actions: . wait, G germinate, T set alpha target, P prune, F fossilize, A advance, in small letters: not executed"
)
MINIMAL = "level minimal: alphas, accuracies, rewards and actions of epochs are not recorded"
_OCCUPIED_NAMES = frozenset(stage.name for stage in OCCUPIED)
_BLENDED_NAMES = frozenset(stage.name for stage in BLENDED)


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """Size and characters of a screen."""

    width: int = 120  # columns
    height: int | None = None  # lines; None = unlimited
    ascii: bool = False  # the terminal shows ASCII only

    @property
    def ramp(self) -> str:
        """The characters of curves and bars, from low to high."""
        return ASCII_RAMP_CHARACTERS if self.ascii else RAMP_CHARACTERS


UNLIMITED_FRAME = ScreenFrame()


def ramp_character(share: float, ramp: str = RAMP_CHARACTERS) -> str:
    """Character for a share in 0 .. 1; higher for larger shares."""
    return ramp[min(len(ramp) - 1, max(0, int(share * len(ramp))))]


def sparkline(values: Sequence[float | None], width: int, ramp: str = RAMP_CHARACTERS) -> str:
    """Line of the newest `width` values, scaled from their least to their largest; a blank was not measured."""
    shown = values[-width:]
    known = [value for value in shown if value is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    return "".join(
        " " if value is None else ramp_character((value - low) / span if span else 0.5, ramp) for value in shown
    )


def format_amount(value: float | None, form: str = ".1f") -> str:
    """Formatted number; a dash for None."""
    return "-" if value is None else format(value, form)


def stage_style(stage: str) -> tuple[str, str, str]:
    """Word, letter and colour of a stage; an unknown stage is shown by its name."""
    return STAGE_STYLES.get(stage, (stage, "?", ""))


def slot_cell(slot: SlotView, width: int, ramp: str = RAMP_CHARACTERS) -> Text:
    """Cell of a slot; width: one of SLOT_WIDTHS."""
    word, letter, style = stage_style(slot.stage)
    alpha = slot.alpha if slot.stage in _BLENDED_NAMES else None
    if width == SLOT_WIDTHS[2]:
        return Text(letter + ("" if alpha is None else ramp_character(alpha, ramp)), style)
    if slot.stage not in _OCCUPIED_NAMES:
        return Text(word, style)
    name = f"{f'{word:<10}' if width == SLOT_WIDTHS[0] else letter} {slot.blueprint or '?'}"
    return Text(f"{name:<{width - 5}}{'' if alpha is None else ramp_character(alpha, ramp) + f'{alpha:.2f}'}", style)


def action_letters(actions: Sequence[ActionView], width: int) -> str:
    """The newest actions, the newest last; a small letter for an action that was not executed."""
    letters = ((OP_LETTERS.get(action.op, "?"), action.success) for action in actions[-width:])
    return "".join(letter if success else letter.lower() for letter, success in letters)


def draw(view: RunView, *, run: str, idle: float = 0.0, frame: ScreenFrame = UNLIMITED_FRAME) -> RenderableType:
    """Draw the screen; `run`: path of the run, `idle`: seconds since its last event was written."""
    started = view.started
    if started is None:
        return Text(f"{run}: no event yet; waiting for the run to begin")
    status = "running" if view.ended is None else view.ended.status
    policy = started.config.get("policy_name", "ppo")
    facts = f"{started.task}, {policy}, seed {started.seed}, {started.envs} envs, telemetry {view.level}"
    top: list[RenderableType] = [
        _text_line("").append(status, STATUS[status]).append(f"  {facts}  {run}"),
        _progress_row(started, view),
        *map(_text_line, _remarks(view, idle)),
        Text(),
    ]
    sums = [Text(), *map(_text_line, _total_lines(view)), Text()]
    legend = [Text(), Text(LEGEND, "dim")]
    around = len(top) + 1 + len(sums) + ALARM_LINES + NOTE_LINES + 2 + len(LEGEND) // frame.width + 2
    rows = len(view.envs) if frame.height is None else max(MIN_ENV_ROWS, frame.height - around)
    if rows < started.envs:
        sums[0] = _text_line(f"... and {started.envs - rows} envs more", "dim")
    table = _env_table(view.envs[:rows], started.slots, frame, regimes=view.has_regimes)
    return Group(*top, table, *sums, _lower_panel(view, frame), *legend)


def _text_line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _progress_row(started: RunStarted, view: RunView) -> Table:
    share, summary, left = view.progress, view.summary, view.seconds_left
    where = f"round {round_number(view.round or 0)}/{started.rounds}  epoch {(view.epoch or 0) + 1}/{started.epochs} "
    rate = "" if summary is None else f"  {format_amount(summary.env_epochs_per_s, ',.0f')} env-epochs/s"
    eta = "" if left is None or view.ended is not None else f"  ETA {format_duration(left)}"
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)
    grid.add_row(_text_line(where), bar, _text_line(f"{share:.0%}{rate}{eta}"))
    return grid


def _remarks(view: RunView, idle: float) -> list[str]:
    lines = [MINIMAL] if view.is_sparse else []
    if view.ended is None and idle > IDLE_LIMIT_S:
        lines.append(f"nothing new for {format_duration(idle)}: the run may wait, have been stopped, or be gone")
    if view.unreadable:
        lines.append(f"{view.unreadable:,} lines of the event file are no events and were left out")
    if (result := view.evaluated) is not None:
        value, accuracy = _format_interval(result.network_value, ".3f"), _format_interval(result.committed_accuracy)
        lines.append(f"{result.episodes} held-out episodes: value {value}, committed accuracy {accuracy} %")
    if (ended := view.ended) is not None:
        best = ""
        if ended.best_round is not None:
            best = f", best round {round_number(ended.best_round)}: {format_amount(ended.best_accuracy)} %"
        lines.append(f"{ended.rounds_done} rounds in {format_duration(ended.run_s or 0.0)}{best}")
        lines += [f"error: {ended.error}"] if ended.error else []
    return lines


def _format_interval(interval: Interval, form: str = ".1f") -> str:
    ends = (interval["mean"], interval["low"], interval["high"])
    return "{} ({} .. {})".format(*(format_amount(end, form) for end in ends))


def _env_table(envs: Sequence[EnvView], names: Sequence[str], frame: ScreenFrame, *, regimes: bool) -> Table:
    """A row per env; the widest cells of slots that fit, then the curve."""
    least, most = CURVE_WIDTHS
    room = frame.width - sum(COLUMN_WIDTHS.values()) - len(COLUMN_WIDTHS) - NUMBER_WIDTH - regimes * (REGIME_WIDTH + 1)
    width = next((width for width in SLOT_WIDTHS if (width + 1) * len(names) + least <= room), SLOT_WIDTHS[-1])
    curve = min(most, max(least, room - (width + 1) * len(names)))
    grid = _new_table()
    grid.add_column("env", width=COLUMN_WIDTHS["env"], justify="right", no_wrap=True)
    if regimes:
        grid.add_column("regime", width=REGIME_WIDTH, no_wrap=True)
    for name in names:
        grid.add_column(name, width=width, no_wrap=True)
    grid.add_column("accuracy %", width=curve + NUMBER_WIDTH - 1, no_wrap=True)
    for name in ("params", "reward", "actions"):
        grid.add_column(name, width=COLUMN_WIDTHS[name], justify="left" if name == "actions" else "right", no_wrap=True)
    for number, env in enumerate(envs):
        line = sparkline(env.accuracy.all_points, curve, frame.ramp)
        grid.add_row(
            str(number),
            *((env.regime,) if regimes else ()),
            *(slot_cell(slot, width, frame.ramp) for slot in env.slots),
            f"{line:<{curve}} {format_amount(env.accuracy.last):>{NUMBER_WIDTH - 2}}",
            "-" if env.params_ratio is None else f"x{env.params_ratio:.2f}",
            format_amount(env.reward, "+.3f"),
            action_letters(env.actions, COLUMN_WIDTHS["actions"]),
        )
    return grid


def _new_table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)


def _total_lines(view: RunView) -> list[str]:
    words = {stage_style(name)[0]: count for name, count in view.stages.items()}
    lines = [f"slots of all envs: {format_counts(words)}"]
    if view.actions is not None:
        done = view.actions.succeeded
        ops = ", ".join(f"{op.lower()} {done.get(op, 0):,}/{n:,}" for op, n in view.actions.sampled.items() if n)
        lines.append(f"executed of sampled in the last round: {ops}")
    if view.anomalies:
        lines.append(f"anomalies so far: {format_counts(view.anomalies)}")
    return lines


def _lower_panel(view: RunView, frame: ScreenFrame) -> Table:
    """Curves over rounds on the left, messages on the right."""
    width = min(CURVE_WIDTHS[1], frame.width // 5)
    curves = _new_table()
    curves.add_column("over rounds", width=NAME_WIDTH)
    curves.add_column("", width=width)
    curves.add_column("first", width=NUMBER_WIDTH, justify="right")
    curves.add_column("last", width=NUMBER_WIDTH, justify="right")
    for name, curve in view.curves.items():
        ends = (format_amount(end, ".4g") for end in (curve.first, curve.last))
        curves.add_row(name, sparkline(curve.all_points, width, frame.ramp), *ends)
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(width=NAME_WIDTH + width + 2 * NUMBER_WIDTH + 3)
    grid.add_column(ratio=1)
    warnings = _note_lines("warnings", view.alarms, ALARM_LINES)
    grid.add_row(curves, Group(*warnings, *_note_lines("what happened", view.notes, NOTE_LINES)))
    return grid


def _note_lines(title: str, notes: Sequence[Note], most: int) -> list[Text]:
    lines = [_text_line(f"{note.where}  {note.text}", SEVERITIES[note.severity]) for note in reversed(notes[-most:])]
    return [Text(f"{title}, by round:epoch", "dim"), *(lines or [Text("none")])]
