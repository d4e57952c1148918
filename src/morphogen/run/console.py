"""What a run says on the terminal: progress to stderr, the closing table and summary to stdout."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TextIO

from rich import box, console, live, table, text

from morphogen.vocab.spec import RunSpec

LEGEND = (
    "return: what the policy was paid per episode; value: accuracy (as a share of 1) of the network it would deliver, "
    "minus the price of its parameters; seeds of the round: alive at its end, fossilized (kept for good), pruned"
)
WIDTH = 120  # of tables where no terminal sets a width
EDGE = 5  # rounds at either end that the closing summary compares


def amount(value: float | None, digits: int = 3) -> str:
    """A number for people; what could not be measured is a dash."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def duration(seconds: float) -> str:
    """`4:05` or `1:02:03`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _writer(stream: TextIO) -> console.Console:
    return console.Console(file=stream, width=None if stream.isatty() else WIDTH, markup=False, highlight=False)


class Console:
    """Live line on a terminal, one line per round elsewhere.  `quiet`: the closing table and summary only."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        err: TextIO | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._err, self._out = _writer(err or sys.stderr), _writer(out or sys.stdout)
        self._quiet, self._clock = quiet, clock
        self._live: live.Live | None = None
        self._began, self._rounds, self._done = clock(), 0, 0.0
        self._latest = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def start(self, spec: RunSpec, facts: Mapping[str, object]) -> None:
        """Say what is going to run, before the first round."""
        self._began, self._rounds = self._clock(), spec.rounds
        if self._quiet:
            return
        for name, fact in facts.items():
            self._say(f"{name:<22}{fact}")
        self._say(LEGEND)
        if self._err.is_terminal:
            self._live = live.Live(console=self._err, refresh_per_second=4, transient=True)
            self._live.start()

    def epoch(self, round: int, epoch: int, done_share: float) -> None:
        """One epoch is over; `done_share` in 0 .. 1 of the whole run."""
        self._done = done_share
        if self._live is not None:
            where = f"round {round + 1}/{self._rounds}  epoch {epoch + 1}  {done_share:.0%}  {self._eta() or 'closing'}"
            self._live.update(text.Text(f"{where}\n{self._latest}", no_wrap=True, overflow="ellipsis"))

    def round(self, summary: Any) -> None:
        """One round is over; `summary`: its BatchSummary."""
        self._latest = (
            f"return {amount(summary.return_mean)}  value {amount(summary.network_value_mean)}  "
            f"alive {summary.live}  fossilized {summary.fossilized}  pruned {summary.pruned}  "
            f"{amount(summary.env_epochs_per_s, 0)} env-epochs/s"
        )
        if self._live is None and not self._quiet:
            self._say(f"round {summary.round + 1}/{self._rounds}  {self._latest}  {self._eta()}".rstrip())

    def table(self, rows: Sequence[Mapping[str, object]], title: str = "") -> None:
        """A table on stdout, a row each; the keys of the first row are the columns."""
        self._stop()
        if not rows:
            return
        grid = table.Table(title=title or None, title_justify="left", box=box.SIMPLE)
        for name in rows[0]:
            grid.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right", no_wrap=True)
        for row in rows:
            grid.add_row(*(value if isinstance(value, str) else amount(value) for value in row.values()))  # type: ignore[arg-type]
        self._out.print(grid)

    def finish(self, result: Any) -> None:
        """Sum the run up on stdout; `result`: history (one BatchSummary per round) and run_dir."""
        self._stop()
        for line in closing(result.history, self._clock() - self._began):
            self._out.print(line, soft_wrap=True)
        if result.run_dir is not None:
            self._out.print(f"files: {result.run_dir}", soft_wrap=True)

    def _eta(self) -> str:
        if not 0.0 < self._done < 1.0:
            return ""
        return f"ETA {duration((self._clock() - self._began) * (1.0 - self._done) / self._done)}"

    def _say(self, line: str) -> None:
        self._err.print(line, soft_wrap=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def closing(history: Sequence[Any], seconds: float) -> list[str]:
    """Lines that sum up the rounds of a run."""
    if not history:
        return ["no round was run"]
    best = max(history, key=lambda summary: summary.accuracy_mean)
    numbers = {"return": "return_mean", "network value": "network_value_mean", "accuracy %": "accuracy_mean"}
    trends = [f"{label}: {_trend([getattr(one, name) for one in history])}" for label, name in numbers.items()]
    where = f"best round: {best.round + 1} with a mean accuracy of {amount(best.accuracy_mean, 1)} %"
    return [f"{len(history)} rounds in {duration(seconds)}", *trends, where]


def _trend(values: list[float | None]) -> str:
    """The mean over the first and over the last rounds, at most half of them each."""
    edge = min(EDGE, len(values) // 2)
    if not edge:
        return amount(values[0])
    first, last = amount(_mean(values[:edge])), amount(_mean(values[-edge:]))
    return f"{first} in the first {edge} rounds, {last} in the last {edge}" if edge > 1 else f"{first}, then {last}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
