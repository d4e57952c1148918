"""The screen: `draw(view) -> rich renderable`.  What is not recorded is said, not made up."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from morphogen.analysis.console import format_duration
from morphogen.analysis.tables import round_number
from morphogen.analysis.watch import cells
from morphogen.analysis.watch.cells import ScreenFrame, format_amount
from morphogen.analysis.watch.view import EnvView, Note, RunView
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.telemetry.messages import format_counts

SEVERITIES = {"info": "", "warning": "yellow", "error": "bold red"}
STATUS = {"running": "bold", "completed": "bold green", "stopped": "yellow", "failed": "bold red"}
IDLE_LIMIT_S = 30.0  # seconds without a new line before it is said
UNLIMITED_FRAME = ScreenFrame()  # no limit to the lines
MIN_ENV_ROWS = 3  # rows of envs, however low the screen is
ALARM_LINES, NOTE_LINES = 4, 5  # lines
COLUMN_WIDTHS = {"env": 3, "params": 6, "reward": 7, "actions": 12}  # of an env, besides slots and accuracy
NAME_WIDTH, NUMBER_WIDTH, BAR_WIDTH = 13, 8, 16
CURVE_WIDTHS = (6, 24)  # columns of a curve, at least and at most
# what is left out
MINIMAL = "level minimal: alphas, accuracies, rewards and actions of epochs are not recorded"
LIFECYCLE_ONLY = "lifecycle_only: nothing but the run, whole episodes and the life of seeds is recorded"


def draw(view: RunView, *, run: str, idle: float = 0.0, frame: ScreenFrame = UNLIMITED_FRAME) -> RenderableType:
    """The whole screen; `run`: where the run lies, `idle`: seconds since its last line was written."""
    started = view.started
    if started is None:
        return Text(f"{run}: no event yet; waiting for the run to begin")
    top: list[RenderableType] = [
        _header(started, view, run),
        _progress_row(started, view),
        *map(_text_line, _remarks(view, idle)),
        Text(),
    ]
    sums = [Text(), *map(_text_line, _total_lines(view)), Text()]
    legend = [Text(), Text(cells.LEGEND, "dim")]
    around = len(top) + 1 + len(sums) + ALARM_LINES + NOTE_LINES + 2 + len(cells.LEGEND) // frame.width + 2
    rows = len(view.envs) if frame.height is None else max(MIN_ENV_ROWS, frame.height - around)
    if rows < started.envs:
        sums[0] = _text_line(f"... and {started.envs - rows} envs more", "dim")
    return Group(*top, _env_table(view.envs[:rows], started.slots, frame), *sums, _lower_panel(view, frame), *legend)


def _text_line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _header(started: RunStarted, view: RunView, run: str) -> Text:
    status = "running" if view.ended is None else view.ended.status
    who = started.config.get("policy_name", "ppo")
    what = f"{started.task}, {who}, seed {started.seed}, {started.envs} envs, telemetry {view.level}"
    return _text_line("").append(status, STATUS[status]).append(f"  {what}  {run}")


def _progress_row(started: RunStarted, view: RunView) -> Table:
    share, summary, left = view.progress, view.summary, view.seconds_left
    where = f"round {round_number(view.round or 0)}/{started.rounds}  epoch {(view.epoch or 0) + 1}/{started.epochs} "
    rate = "" if summary is None else f"  {format_amount(summary.env_epochs_per_s, ',.0f')} env-epochs/s"
    eta = "" if left is None or view.ended is not None else f"  ETA {format_duration(left)}"
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        _text_line(where),
        ProgressBar(total=1.0, completed=share, width=BAR_WIDTH),
        _text_line(f"{share:.0%}{rate}{eta}"),
    )
    return grid


def _remarks(view: RunView, idle: float) -> list[str]:
    """Summary rows of the whole run."""
    found = [LIFECYCLE_ONLY] if view.lifecycle_only else [MINIMAL] if view.level == "minimal" else []
    if view.ended is None and idle > IDLE_LIMIT_S:
        found.append(f"nothing new for {format_duration(idle)}: the run may wait, have been stopped, or be gone")
    if view.dropped:
        found.append(f"not written: {format_counts(view.dropped)}")
    if view.unreadable:
        found.append(f"{view.unreadable:,} lines of the event file are no events and were left out")
    return [*found, *_end_lines(view)]


def _end_lines(view: RunView) -> list[str]:
    found = []
    if (judged := view.evaluated) is not None:
        value, accuracy = judged.network_value, judged.committed_accuracy
        found.append(
            f"{judged.episodes} held-out episodes: network value {_format_interval(value, '.3f')}, "
            f"committed accuracy {_format_interval(accuracy, '.1f')} %"
        )
    if (ended := view.ended) is not None:
        found.append(f"{ended.rounds_done} rounds in {format_duration(ended.run_s or 0.0)}")
        if ended.best_round is not None:
            found[-1] += f", best round {round_number(ended.best_round)}: {format_amount(ended.best_accuracy)} %"
        found += [f"error: {ended.error}"] if ended.error else []
    return found


def _format_interval(found: dict[str, float | None], form: str) -> str:
    mean, low, high = (format_amount(found[name], form) for name in ("mean", "low", "high"))
    return f"{mean} ({low} .. {high})"


def _env_table(envs: Sequence[EnvView], names: Sequence[str], frame: ScreenFrame) -> Table:
    """One row per env; slots in as many words as there is room for, then the curve."""
    least, most = CURVE_WIDTHS
    room = frame.width - sum(COLUMN_WIDTHS.values()) - len(COLUMN_WIDTHS) - NUMBER_WIDTH
    width = next((one for one in cells.SLOT_WIDTHS if (one + 1) * len(names) + least <= room), cells.SLOT_WIDTHS[-1])
    curve = min(most, max(least, room - (width + 1) * len(names)))
    grid = _new_table()
    grid.add_column("env", width=COLUMN_WIDTHS["env"], justify="right", no_wrap=True)
    for name in names:
        grid.add_column(name, width=width, no_wrap=True)
    grid.add_column("accuracy %", width=curve + NUMBER_WIDTH - 1, no_wrap=True)
    for name in ("params", "reward", "actions"):
        grid.add_column(name, width=COLUMN_WIDTHS[name], justify="left" if name == "actions" else "right", no_wrap=True)
    for number, env in enumerate(envs):
        slots = [cells.slot_cell(one, width, frame.ramp) for one in env.slots]
        grid.add_row(str(number), *slots, *_env_numbers(env, curve, frame))
    return grid


def _new_table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)


def _env_numbers(env: EnvView, curve: int, frame: ScreenFrame) -> tuple[str, ...]:
    line = cells.sparkline(env.accuracy.all_points, curve, frame.ramp)
    return (
        f"{line:<{curve}} {format_amount(env.accuracy.last):>{NUMBER_WIDTH - 2}}",
        "-" if env.params_ratio is None else f"x{env.params_ratio:.2f}",
        format_amount(env.reward, "+.3f"),
        cells.action_letters(env.actions, COLUMN_WIDTHS["actions"]),
    )


def _total_lines(view: RunView) -> list[str]:
    """All envs together."""
    words = {cells.stage_style(name)[0]: count for name, count in view.stages.items()}
    found = [f"slots of all envs: {format_counts(words)}"]
    if view.actions is not None:
        done = view.actions.succeeded
        ops = ", ".join(f"{op.lower()} {done.get(op, 0):,}/{n:,}" for op, n in view.actions.sampled.items() if n)
        found.append(f"executed of sampled in the last round: {ops}")
    if view.anomalies:
        found.append(f"anomalies so far: {format_counts(view.anomalies)}")
    return found


def _lower_panel(view: RunView, frame: ScreenFrame) -> Table:
    """Curves over rounds on the left, what happened on the right."""
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(width=NAME_WIDTH + _curve_width(frame) + 2 * NUMBER_WIDTH + 3)
    grid.add_column(ratio=1)
    right = [*_note_lines("warnings", view.alarms, ALARM_LINES), *_note_lines("what happened", view.notes, NOTE_LINES)]
    grid.add_row(_curve_table(view, frame), Group(*right))
    return grid


def _curve_width(frame: ScreenFrame) -> int:
    return min(CURVE_WIDTHS[1], frame.width // 5)


def _curve_table(view: RunView, frame: ScreenFrame) -> Table:
    grid = _new_table()
    grid.add_column("over rounds", width=NAME_WIDTH)
    grid.add_column("", width=_curve_width(frame))
    grid.add_column("first", width=NUMBER_WIDTH, justify="right")
    grid.add_column("last", width=NUMBER_WIDTH, justify="right")
    for name, curve in view.curves.items():
        line = cells.sparkline(curve.all_points, _curve_width(frame), frame.ramp)
        grid.add_row(name, line, format_amount(curve.first, ".4g"), format_amount(curve.last, ".4g"))
    return grid


def _note_lines(title: str, found: Sequence[Note], most: int) -> list[Text]:
    """The newest notes, the newest first."""
    lines = [_text_line(f"{one.where}  {one.text}", SEVERITIES[one.severity]) for one in reversed(found[-most:])]
    return [Text(f"{title}, by round:epoch", "dim"), *(lines or [Text("none")])]
