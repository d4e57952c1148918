"""Series: runs of one configuration that differ in their training seeds, one after the other, and
their table.
"""

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from morphogen.cli import arguments, process
from morphogen.cli.process import EXITS
from morphogen.config import files
from morphogen.config.config_files import dump_config
from morphogen.config.spec import RIVALS, RunSpec, resolve
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError, RankError
from morphogen.log import run_directory
from morphogen.vocab.text import format_value

if TYPE_CHECKING:  # they load torch
    from morphogen.log.writer import Losses
    from morphogen.ppo.exchange import Exchange
    from morphogen.train.loop import Parts
    from morphogen.train.session import TrainResult

MAX_RUNS = 1_000  # of a series
SEEDS = "1,3,7 or 1..5"  # form of `--seeds` in help texts
Row = dict[str, Any]


class SeriesResult(NamedTuple):
    """End of a series: what its runs lost, and the errors of those that failed."""

    losses: "Losses"
    errors: dict[Path, Exception]
    stopped: bool = False
    run_dir: None = None  # each run has its own

    def raise_error(self) -> None:
        """Raise the first error with its run, if there is one."""
        for run, error in self.errors.items():
            error.args = (f"{run}: {error}",)
            raise error


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `--seeds`: numbers, and ranges with both ends.  Raises ConfigError for
    any other text.
    """
    seeds: list[int] = []
    for word in text.split(","):
        ends = [
            arguments.parse_int_flag("--seeds", end, 0, arguments.MAX_SEED)
            for end in word.split("..", 1)
        ]
        if not 0 <= ends[-1] - ends[0] < MAX_RUNS - len(seeds):
            raise ConfigError(
                f"--seeds: expected up to {MAX_RUNS:,} seeds, as in {SEEDS}, got "
                f"{format_value(text)}"
            )
        seeds += range(ends[0], ends[-1] + 1)
    arguments.check_unique("--seeds", [str(seed) for seed in seeds])
    return seeds


def check_runs(runs: Mapping[Path, RunSpec]) -> None:
    """Raise a ConfigError unless every run is new, or an earlier one of the same configuration."""
    for path, spec in runs.items():
        if not (path / run_directory.CONFIG).exists():
            run_directory.check_new_directory(path)
        elif dump_config(resolve(run_directory.open_directory(path)[1])) != dump_config(spec):
            raise ConfigError(f"--out: expected no run of another configuration, got {path}")


def train_run(
    run: Path, spec: RunSpec, *, command: str, console: Any, parts: "Parts", exchange: "Exchange"
) -> "TrainResult | None":
    """Train a run that is missing, or resume one that was stopped; None for a run that is
    complete.
    """
    train = import_module("morphogen.train.train")
    status = exchange.on_first(lambda: find_status(run))
    if status is None:
        return train.train_ppo_vectorized(
            spec, out=run, command=command, console=console, parts=parts, exchange=exchange
        )
    if status == run_directory.STATUS_COMPLETED:
        return None
    return train.resume(run, spec, console=console, parts=parts, exchange=exchange)


def find_status(run: Path) -> str | None:
    """Return the status of a run; None if there is none."""
    if not (run / run_directory.CONFIG).exists():
        return None
    return str(run_directory.open_directory(run)[2].get("status"))


def train_seeds(
    runs: Mapping[Path, RunSpec],
    *,
    command: str,
    console: Any,
    parts: "Parts",
    exchange: "Exchange",
) -> SeriesResult:
    """Train the runs of a series in order, until a signal stops them; a run that fails does not
    stop the others.

    Raises: RankError; any other unexpected error where several processes train, which would wait
    for each other.
    """
    alone = import_module("morphogen.ppo.exchange").ALONE
    empty = import_module("morphogen.log.writer").Losses()
    failed: dict[str, str] = {}
    incomplete = False
    errors = dict[Path, Exception]()
    for run, spec in runs.items():
        if any(exchange.facts(bool(parts.hooks.should_stop()))):
            return SeriesResult(type(empty)(failed, incomplete), errors, stopped=True)
        try:
            result = train_run(
                run, spec, command=command, console=console, parts=parts, exchange=exchange
            )
        except Exception as error:
            common = isinstance(error, tuple(EXITS)) and not isinstance(error, RankError)
            if not common and exchange is not alone:
                raise
            errors[run] = error
            process.print_notes([f"{run}: {type(error).__name__}: {error}"])
            continue
        losses = empty if result is None else result.losses
        failed |= {f"{name} of {run.name}": why for name, why in losses.failed.items()}
        incomplete |= losses.incomplete
        if result is not None and result.stopped:
            return SeriesResult(type(empty)(failed, incomplete), errors, stopped=True)
    return SeriesResult(type(empty)(failed, incomplete), errors)


def seed_rows(runs: Mapping[Path, RunSpec], failed: Collection[Path]) -> list[Row]:
    """Return a row per run: its status, and means over its held-out instances; None where there is
    no result.
    """
    states = {run: "failed" if run in failed else find_status(run) or "not begun" for run in runs}
    return [
        {"seed": spec.seed, "status": states[run], **_means(run, spec)}
        for run, spec in runs.items()
    ]


def _means(run: Path, spec: RunSpec) -> Row:
    """Return the means of the final evaluation of a run, by the headings of a table."""
    result = run / run_directory.RESULT
    value = TASKS[spec.task].value_name
    policies = files.parse_json(files.read_bytes(result))["policies"] if result.is_file() else {}
    means = {
        name: {number: sum(values) / len(values) for number, values in numbers.items()}
        for name, numbers in policies.items()
    }
    own = means.get(spec.policy_name, {})
    rivals = {
        f"minus {name}": means.get(name, {}).get("network_value")
        for name in RIVALS
        if name != spec.policy_name
    }
    return {
        value: own.get("network_value"),
        **{
            name: None if mean is None else own["network_value"] - mean
            for name, mean in rivals.items()
        },
        "accuracy %": own.get("committed_accuracy"),
        "parameters": own.get("params"),
    }


def over_seeds(rows: list[Row]) -> dict[str, Row]:
    """Return the mean of every column over the seeds that have a result, with Student's interval;
    none for one seed.
    """
    seed_interval = import_module("morphogen.evaluation.bootstrap").seed_interval
    columns = {
        name: [row[name] for row in rows if row[name] is not None] for name in list(rows[0])[2:]
    }
    return {
        name: seed_interval([[value] for value in values])._asdict()
        for name, values in columns.items()
        if values[1:]
    }


def print_series(
    folder: Path,
    runs: Mapping[Path, RunSpec],
    *,
    failed: Collection[Path] = (),
    as_json: bool = False,
) -> None:
    """Print the closing table of a series, or the same as JSON."""
    rows = seed_rows(runs, failed)
    means = over_seeds(rows)
    if as_json:
        process.print_json({"run_dir": str(folder), "seeds": rows, "over seeds": means})
        return
    format_estimate = import_module("morphogen.evaluation.bootstrap").format_estimate
    process.print_tables(
        [(f"{len(rows)} training seeds: means over the held-out instances of each", rows)]
    )
    lines = [f"{name} over the seeds: {format_estimate(mean)}" for name, mean in means.items()]
    print(*lines, f"files: {folder}", sep="\n")
