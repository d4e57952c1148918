"""The screen: `draw(view) -> rich renderable`.  What is not recorded is said, not made up."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from morphogen.analysis.console import duration
from morphogen.analysis.watch import cells
from morphogen.analysis.watch.cells import Frame, amount
from morphogen.analysis.watch.view import Env, Note, View
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.telemetry.messages import counts

SEVERITIES = {"info": "", "warning": "yellow", "error": "bold red"}
STATUS = {"running": "bold", "completed": "bold green", "stopped": "yellow", "failed": "bold red"}
QUIET = 30.0  # seconds without a new line before it is said
WHOLE = Frame()  # no limit to the lines
LEAST = 3  # rows of envs, however low the screen is
ALARMS, NOTES = 4, 5  # lines
COLUMNS = {"env": 3, "params": 6, "reward": 7, "actions": 12}  # of an env, besides slots and accuracy
NAME, NUMBER, BAR = 13, 8, 16
CURVES = (6, 24)  # columns of a curve, at least and at most
# what is left out
MINIMAL = "level minimal: alphas, accuracies, rewards and actions of epochs are not recorded"
LIFECYCLE_ONLY = "lifecycle_only: nothing but the run, whole episodes and the life of seeds is recorded"


def draw(view: View, *, run: str, idle: float = 0.0, frame: Frame = WHOLE) -> RenderableType:
    """The whole screen; `run`: where the run lies, `idle`: seconds since its last line was written."""
    started = view.started
    if started is None:
        return Text(f"{run}: no event yet; waiting for the run to begin")
    top: list[RenderableType] = [
        _head(started, view, run),
        _progress(started, view),
        *map(_line, _remarks(view, idle)),
        Text(),
    ]
    sums = [Text(), *map(_line, _sums(view)), Text()]
    legend = [Text(), Text(cells.LEGEND, "dim")]
    around = len(top) + 1 + len(sums) + ALARMS + NOTES + 2 + len(cells.LEGEND) // frame.width + 2
    rows = len(view.envs) if frame.height is None else max(LEAST, frame.height - around)
    if rows < started.envs:
        sums[0] = _line(f"... and {started.envs - rows} envs more", "dim")
    return Group(*top, _envs(view.envs[:rows], started.slots, frame), *sums, _below(view, frame), *legend)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _head(started: RunStarted, view: View, run: str) -> Text:
    status = "running" if view.ended is None else view.ended.status
    who = started.config.get("policy_name", "ppo")
    what = f"{started.task}, {who}, seed {started.seed}, {started.envs} envs, telemetry {view.level}"
    return _line("").append(status, STATUS[status]).append(f"  {what}  {run}")


def _progress(started: RunStarted, view: View) -> Table:
    share, summary, left = view.share, view.summary, view.seconds_left
    where = f"round {(view.round or 0) + 1}/{started.rounds}  epoch {(view.epoch or 0) + 1}/{started.epochs} "
    rate = "" if summary is None else f"  {amount(summary.env_epochs_per_s, ',.0f')} env-epochs/s"
    eta = "" if left is None or view.ended is not None else f"  ETA {duration(left)}"
    grid = Table.grid(padding=(0, 1))
    grid.add_row(_line(where), ProgressBar(total=1.0, completed=share, width=BAR), _line(f"{share:.0%}{rate}{eta}"))
    return grid


def _remarks(view: View, idle: float) -> list[str]:
    """What there is to say about the run as a whole."""
    found = [LIFECYCLE_ONLY] if view.lifecycle_only else [MINIMAL] if view.level == "minimal" else []
    if view.ended is None and idle > QUIET:
        found.append(f"nothing new for {duration(idle)}: the run may wait, have been stopped, or be gone")
    if view.dropped:
        found.append(f"not written: {counts(view.dropped)}")
    if view.unreadable:
        found.append(f"{view.unreadable:,} lines of the event file are no events and were left out")
    return [*found, *_end(view)]


def _end(view: View) -> list[str]:
    found = []
    if (judged := view.evaluated) is not None:
        value, accuracy = judged.network_value, judged.committed_accuracy
        found.append(
            f"{judged.episodes} held-out episodes: network value {_interval(value, '.3f')}, "
            f"committed accuracy {_interval(accuracy, '.1f')} %"
        )
    if (ended := view.ended) is not None:
        found.append(f"{ended.rounds_done} rounds in {duration(ended.run_s or 0.0)}")
        if ended.best_round is not None:
            found[-1] += f", best round {ended.best_round + 1}: {amount(ended.best_accuracy)} %"
        found += [f"error: {ended.error}"] if ended.error else []
    return found


def _interval(found: dict[str, float | None], form: str) -> str:
    return f"{amount(found['mean'], form)} ({amount(found['low'], form)} .. {amount(found['high'], form)})"


def _envs(envs: Sequence[Env], names: Sequence[str], frame: Frame) -> Table:
    """One row per env; slots in as many words as there is room for, then the curve."""
    least, most = CURVES
    room = frame.width - sum(COLUMNS.values()) - len(COLUMNS) - NUMBER
    width = next((one for one in cells.WIDTHS if (one + 1) * len(names) + least <= room), cells.WIDTHS[-1])
    curve = min(most, max(least, room - (width + 1) * len(names)))
    grid = _table()
    grid.add_column("env", width=COLUMNS["env"], justify="right", no_wrap=True)
    for name in names:
        grid.add_column(name, width=width, no_wrap=True)
    grid.add_column("accuracy %", width=curve + NUMBER - 1, no_wrap=True)
    for name in ("params", "reward", "actions"):
        grid.add_column(name, width=COLUMNS[name], justify="left" if name == "actions" else "right", no_wrap=True)
    for number, env in enumerate(envs):
        slots = [cells.slot(one, width, frame.ramp) for one in env.slots]
        grid.add_row(str(number), *slots, *_numbers(env, curve, frame))
    return grid


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)


def _numbers(env: Env, curve: int, frame: Frame) -> tuple[str, ...]:
    line = cells.spark(env.accuracy.drawn, curve, frame.ramp)
    return (
        f"{line:<{curve}} {amount(env.accuracy.last):>{NUMBER - 2}}",
        "-" if env.params_ratio is None else f"x{env.params_ratio:.2f}",
        amount(env.reward, "+.3f"),
        cells.actions(env.actions, COLUMNS["actions"]),
    )


def _sums(view: View) -> list[str]:
    """All envs together."""
    words = {cells.look(name)[0]: count for name, count in view.stages.items()}
    found = [f"slots of all envs: {counts(words)}"]
    if view.actions is not None:
        done = view.actions.succeeded
        ops = ", ".join(f"{op.lower()} {done.get(op, 0):,}/{n:,}" for op, n in view.actions.sampled.items() if n)
        found.append(f"executed of sampled in the last round: {ops}")
    if view.anomalies:
        found.append(f"anomalies so far: {counts(view.anomalies)}")
    return found


def _below(view: View, frame: Frame) -> Table:
    """Curves over rounds on the left, what happened on the right."""
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(width=NAME + _curve(frame) + 2 * NUMBER + 3)
    grid.add_column(ratio=1)
    right = [*_notes("warnings", view.alarms, ALARMS), *_notes("what happened", view.notes, NOTES)]
    grid.add_row(_curves(view, frame), Group(*right))
    return grid


def _curve(frame: Frame) -> int:
    return min(CURVES[1], frame.width // 5)


def _curves(view: View, frame: Frame) -> Table:
    grid = _table()
    grid.add_column("over rounds", width=NAME)
    grid.add_column("", width=_curve(frame))
    grid.add_column("first", width=NUMBER, justify="right")
    grid.add_column("last", width=NUMBER, justify="right")
    for name, curve in view.curves.items():
        line = cells.spark(curve.drawn, _curve(frame), frame.ramp)
        grid.add_row(name, line, amount(curve.first, ".4g"), amount(curve.last, ".4g"))
    return grid


def _notes(title: str, found: Sequence[Note], most: int) -> list[Text]:
    """The newest notes, the newest first."""
    lines = [_line(f"{one.where}  {one.text}", SEVERITIES[one.severity]) for one in reversed(found[-most:])]
    return [Text(f"{title}, by round:epoch", "dim"), *(lines or [Text("none")])]
