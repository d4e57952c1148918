"""Terminal output of a run: progress to stderr, the closing table and summary to stdout."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TextIO

from rich import box, console, progress, status, table

from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.log.events import Envelope, mean_known
from morphogen.log.kinds.run import HeldOutPlayed
from morphogen.log.writer import Sink
from morphogen.vocab.objective import ACCURACY, ANYTIME, DELIVERED
from morphogen.vocab.text import count_noun, escape_text

LEGEND = (
    "return: reward of the policy per episode; value: {value}; "
    "seeds of the round: alive at its end, fossilized (kept for good), pruned"
)
VALUES = {  # by the objective of the task
    DELIVERED: "{score} (as a share of 1) of the network it would deliver, minus the price of its "
    "parameters",
    ANYTIME: "mean over the epochs of the {score} (as a share of 1) in use, minus the price of "
    "all parameters added",
}
TABLE_WIDTH = 120  # of tables where no terminal sets a width
EDGE_ROUNDS = 5  # rounds at either end that the closing summary compares
COLUMNS = (
    progress.TextColumn("{task.fields[where]}", markup=False),
    progress.BarColumn(bar_width=20),
    progress.TaskProgressColumn(),
    progress.TextColumn("{task.fields[numbers]}", markup=False),
)


def round_number(round: int) -> int:
    """Number of a round as people read it: rounds count from 1."""
    return round + 1


def format_number(value: float | None, digits: int = 3) -> str:
    """A number for people; what could not be measured is a dash."""
    return (
        "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    )


def format_cell(value: Any) -> str:
    """A cell of a table for people: printable text, or a number."""
    return escape_text(value) if isinstance(value, str) else format_number(value)


def format_duration(seconds: float) -> str:
    """`4:05` or `1:02:03`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def open_console(stream: TextIO) -> console.Console:
    """A console on a stream, as wide as its terminal; text is taken as it is."""
    return console.Console(
        file=stream, width=None if stream.isatty() else TABLE_WIDTH, markup=False, highlight=False
    )


def describe(event: Envelope) -> str:
    """Describe an event in one line: its name, and the fields that are known."""
    known = {name: value for name, value in event.data.payload().items() if value is not None}
    fields = ", ".join(f"{name} {_short(value)}" for name, value in known.items())
    return f"{event.name}: {fields}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Console(Sink):
    """Live progress on a terminal, and everywhere a line per round.  `quiet`: errors, closing table
    and summary only.

    A sink of events too: it says at once what is out of the ordinary.
    """

    def __init__(
        self,
        quiet: bool = False,
        *,
        err: TextIO | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._err, self._out = open_console(err or sys.stderr), open_console(out or sys.stdout)
        self._quiet = quiet
        self._clock = clock
        self._bar: progress.Progress | None = None
        self._spinner: status.Status | None = None
        self._spec = RunSpec()
        self._start_s = clock()
        self._done_before = 0.0
        self._done = 0.0
        self._accuracy: float | None = None
        self._waiting: list[str] = []  # numbers of `wait` on the instances of the learning curve

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def start(self, spec: RunSpec, facts: Mapping[str, object], *, done: float = 0.0) -> None:
        """Announce the run; `done`: the share of it that was run before."""
        self._spec = spec
        self._start_s = self._clock()
        self._done_before = done
        for name, fact in facts.items():
            self._note(f"{name:<22}{fact}")
        value = VALUES[TASKS[spec.task].objective].format(score=self._score)
        self._note(LEGEND.format(value=value))
        if self._err.is_terminal and not self._quiet:
            self._bar = progress.Progress(
                *COLUMNS, console=self._err, refresh_per_second=4, transient=True
            )
            self._bar.add_task("", total=1.0, where=self._position(0), numbers="")
            self._bar.start()

    def end_compiling(self, unit: str, seconds: float | None) -> None:
        """Report the seconds of compiling a unit; None: the compiler begins."""
        self._stop()
        if seconds is not None:
            self._note(f"compiling {unit}: {seconds:,.0f} s")
        elif self._err.is_terminal and not self._quiet:
            self._spinner = self._err.status(f"compiling {unit}")
            self._spinner.start()

    def end_epoch(
        self, round: int, epoch: int, done_share: float, accuracy: float | None = None
    ) -> None:
        """One epoch is over; `done_share` in 0 .. 1 of the complete run; accuracy: of the epoch
        before, percent.
        """
        self._done = done_share
        self._accuracy = accuracy or self._accuracy
        if self._bar is None:
            return
        mean = format_number(self._accuracy, 1)
        self._bar.update(
            self._bar.task_ids[0],
            completed=done_share,
            where=f"{self._position(round)}  epoch {epoch + 1}/{self._spec.episode_length}",
            numbers=f"{self._score} {mean} %  {self._eta() or 'closing'}",
        )

    def end_round(self, summary: Any) -> None:
        """One round is over; `summary`: its BatchSummary."""
        self._accuracy = summary.accuracy_mean
        parts = (
            self._position(summary.round),
            f"{self._score} {format_number(summary.accuracy_mean, 1)} %",
            f"return {format_number(summary.return_mean)}",
            f"value {format_number(summary.network_value_mean)}",
            f"alive {summary.live}",
            f"fossilized {summary.fossilized}",
            f"pruned {summary.pruned}",
            f"rolled back {summary.rollbacks}" if summary.rollbacks else "",
            f"{format_number(summary.env_epochs_per_s, 0)} env-epochs/s",
            self._eta(),
        )
        self._note("  ".join(filter(None, parts)))

    def end_play(self, played: HeldOutPlayed) -> None:
        """Report a play of the learning curve, beside the play of `wait` on the same instances."""
        shown = {
            self._score: f"{format_number(mean_known(played.score), 1)} %",
            "parameters": format_number(mean_known(played.params), 0),
            "value": format_number(mean_known(played.network_value)),
        }
        numbers = ", ".join(f"{name} {number}" for name, number in shown.items())
        rival = f" (wait: {', '.join(self._waiting)})" if self._waiting else ""
        if played.policy == "wait":
            self._waiting = list(shown.values())
        self._note(f"held-out after round {played.rounds}, {played.policy}: {numbers}{rival}")

    def start_evaluation(self, episodes: int) -> None:
        """Announce work after the last round that shows no progress."""
        instances = count_noun(episodes, "held-out instance")
        self._note(f"final evaluation: each policy plays {instances}")

    def write(self, events: Iterable[Envelope]) -> None:
        """Print warnings and errors about the run and its rounds."""
        for event in events:
            if event.severity in (("error",) if self._quiet else ("warning", "error")):
                self._say(f"{event.severity}: {describe(event)}")

    def warn(self, lines: Iterable[str]) -> None:
        """Print a warning, whatever is left out."""
        for line in lines:
            self._say(f"warning: {line}")

    def print_table(self, rows: Sequence[Mapping[str, object]], title: str = "") -> None:
        """Print a table on stdout, a line per row; the keys of the first row are the columns.

        Columns beyond the width of the terminal follow in further blocks, each led by the first
        column.
        """
        self._stop()
        if not rows:
            return
        columns = {name: [format_cell(row[name]) for row in rows] for name in rows[0]}
        widths = {name: max(map(len, [name, *cells])) + 3 for name, cells in columns.items()}
        first, *others = columns
        blocks = [[first]]
        for name in others:
            used = sum(widths[each] for each in blocks[-1])
            # a column wider than the terminal has a block of its own
            if used + widths[name] >= self._out.width and len(blocks[-1]) > 1:
                blocks.append([first])
            blocks[-1].append(name)
        for block in blocks:
            grid = table.Table(title=title or None, title_justify="left", box=box.SIMPLE)
            for name in block:
                justify = "left" if isinstance(rows[0][name], str) else "right"
                grid.add_column(name, justify=justify, overflow="fold")
            for cells in zip(*(columns[name] for name in block), strict=True):
                grid.add_row(*cells)
            self._out.print(grid)
            title = ""

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines on stdout."""
        self._stop()
        for line in lines:
            self._out.print(escape_text(line), soft_wrap=True)

    def finish(self, result: Any) -> None:
        """Sum the run up on stdout; `result`: history (one BatchSummary per round) and run_dir."""
        lines = closing_lines(result.history, self._clock() - self._start_s, self._score)
        if result.run_dir is not None:
            lines.append(f"files: {result.run_dir}")
        self.print_lines(lines)

    @property
    def _score(self) -> str:
        return TASKS[self._spec.task].score_name

    def _position(self, round: int) -> str:
        return f"round {round_number(round)}/{self._spec.rounds}"

    def _eta(self) -> str:
        if not self._done_before < self._done < 1.0:
            return ""
        spent = self._clock() - self._start_s
        new = self._done - self._done_before
        return f"ETA {format_duration(spent * (1.0 - self._done) / new)}"

    def _note(self, line: str) -> None:
        if not self._quiet:
            self._say(line)

    def _say(self, line: str) -> None:
        self._err.print(escape_text(line), soft_wrap=True)

    def _stop(self) -> None:
        """End the progress on the terminal."""
        for live in (self._bar, self._spinner):
            if live is not None:
                live.stop()
        self._bar = self._spinner = None


def closing_lines(history: Sequence[Any], seconds: float, score: str = ACCURACY) -> list[str]:
    """Lines that sum up the rounds of a run.  score: its name."""
    if not history:
        return ["no round was run"]
    best = max(history, key=lambda summary: summary.accuracy_mean)
    accuracy = format_number(best.accuracy_mean, 1)
    lines = [
        f"{count_noun(len(history), 'round')} in {format_duration(seconds)}",
        f"return: {_trend([summary.return_mean for summary in history])}",
        f"value: {_trend([summary.network_value_mean for summary in history])}",
        f"{score} %: {_trend([summary.accuracy_mean for summary in history])}",
        f"best round: {round_number(best.round)} with a mean {score} of {accuracy} %",
    ]
    odd = Counter(kind for summary in history for kind in summary.anomalies)
    counts = ", ".join(f"{kind} {count:,}" for kind, count in odd.items())
    return [*lines, f"rounds with anomalies: {counts}"] if odd else lines


def _trend(values: list[float | None]) -> str:
    """The mean over the first and over the last rounds, at most half of them each."""
    edge = min(EDGE_ROUNDS, len(values) // 2)
    if not edge:
        return format_number(values[0])
    first = format_number(mean_known(values[:edge]))
    last = format_number(mean_known(values[-edge:]))
    return (
        f"{first} in the first {edge} rounds, {last} in the last {edge}"
        if edge > 1
        else f"{first}, then {last}"
    )
