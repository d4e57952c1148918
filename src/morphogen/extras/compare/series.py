"""Flag `--seeds` of `train`: runs that differ in their training seeds, one after the other, and
their table.
"""

import sys
from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from morphogen.cli import arguments, process
from morphogen.cli.process import EXITS
from morphogen.cli.train import choose_directory, open_directory, print_dry_run, run_training
from morphogen.config import files
from morphogen.config.config_files import dump_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError, RankError
from morphogen.log import run_directory
from morphogen.vocab.text import format_value

if TYPE_CHECKING:  # they load torch, or numpy
    from morphogen.log.writer import Losses
    from morphogen.ppo.exchange import Exchange

MAX_RUNS = 1_000  # of a series
SEEDS = "1,3,7 or 1..5"  # form of `--seeds` in help texts
Row = dict[str, Any]


class SeriesResult(NamedTuple):
    """End of a series: whether its logs lack lines, and the errors of runs that failed."""

    losses: "Losses"
    errors: dict[Path, Exception]
    stopped: bool = False
    run_dir: None = None  # each run has its own


def add_flag(parser: Any) -> None:
    """Add the flag `--seeds`."""
    text = f"train a run for each seed, {SEEDS}, one after the other, in DIR/seed-N; print a table"
    parser.add_argument("--seeds", metavar="SEEDS", help=f"{text} of them")


def is_asked(args: Namespace) -> bool:
    """Return whether the command line names seeds."""
    return args.seeds is not None


def run(args: Namespace, spec: RunSpec) -> int | None:
    """Train a run per seed, print the table; an error of a run is raised at the end."""
    out = choose_directory(args, spec)
    if vars(args)["seed"] is not None:
        raise ConfigError("--seed, --seeds: expected one of them, got both")
    if spec.telemetry.dir is not None:
        raise ConfigError(
            "telemetry.dir: expected null with --seeds, whose runs cannot share a folder, "
            f"got {format_value(spec.telemetry.dir)}"
        )
    seeds = parse_seeds(args.seeds)
    check_runs(_list_runs(spec, seeds, out))
    import_module("morphogen.train.sinks").check_sinks(spec)
    if args.dry_run:
        names = ", ".join(map(str, seeds))
        print_dry_run(args, spec, {"run directory": str(out), "training seeds": names})
        return None

    def start(train: Any, *, exchange: Any, **hooks: Any) -> SeriesResult:
        del train
        with open_directory(args, spec, exchange) as folder:
            runs = _list_runs(spec, seeds, folder)
            result = train_seeds(runs, command=args.command_line, exchange=exchange, **hooks)
        print_series(folder, seed_rows(runs, result.errors), as_json=args.json)
        if result.stopped:
            process.print_notes([f"stopped: the same command with --out {folder} continues"])
            return result
        for path, error in result.errors.items():
            error.args = (f"{path}: {error}",)
            raise error
        return result

    return run_training(args, spec, start, prints=True)


def _list_runs(spec: RunSpec, seeds: list[int], out: Path) -> dict[Path, RunSpec]:
    return {out / f"seed-{seed}": replace(spec, seed=seed) for seed in seeds}


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
    return [*dict.fromkeys(seeds)]


def check_runs(runs: Mapping[Path, RunSpec]) -> None:
    """Raise a ConfigError unless every run is new, or an earlier one of the same configuration."""
    for path, spec in runs.items():
        if not (path / run_directory.CONFIG).exists():
            run_directory.check_new_directory(path)
        elif dump_config(resolve(run_directory.open_directory(path)[1])) != dump_config(spec):
            raise ConfigError(f"--out: expected no run of another configuration, got {path}")


def find_status(run: Path) -> str | None:
    """Return the status of a run; None if there is none."""
    if not (run / run_directory.CONFIG).exists():
        return None
    return str(run_directory.open_directory(run)[2].get("status"))


def train_seeds(
    runs: Mapping[Path, RunSpec], *, command: str, exchange: "Exchange", **hooks: Any
) -> SeriesResult:
    """Train the runs of a series in order, until a signal stops them; a run that fails does not
    stop the others.  Resumes a run that was stopped, and leaves a complete one as it is.

    Raises: RankError; any other unexpected error where several processes train, which would wait
    for each other.
    """
    train = import_module("morphogen.train.train")
    alone = import_module("morphogen.ppo.exchange").ALONE
    incomplete = stopped = False
    errors = dict[Path, Exception]()
    for run, spec in runs.items():
        status = exchange.on_first(lambda run=run: find_status(run))
        if status == run_directory.STATUS_COMPLETED:
            continue
        try:
            if status is None:
                result = train.train_ppo_vectorized(
                    spec, out=run, command=command, exchange=exchange, **hooks
                )
            else:
                result = train.resume(run, spec, exchange=exchange, **hooks)
        except Exception as error:
            common = isinstance(error, tuple(EXITS)) and not isinstance(error, RankError)
            if not common and exchange is not alone:
                raise
            errors[run] = error
            process.print_notes([f"{run}: {type(error).__name__}: {error}"])
            continue
        process.print_notes(f"{run.name}: {line}" for line in result.losses.lines())
        incomplete |= result.losses.incomplete
        stopped = result.stopped
        if stopped:
            break
    losses = import_module("morphogen.log.writer").Losses(incomplete=incomplete)
    return SeriesResult(losses, errors, stopped)


def seed_rows(runs: Mapping[Path, RunSpec], failed: Collection[Path]) -> list[Row]:
    """Return a row per run: its status, and means over its held-out instances; None where there is
    no result.
    """
    rows: list[Row] = []
    for run, spec in runs.items():
        status = "failed" if run in failed else find_status(run) or "not begun"
        rows.append({"seed": spec.seed, "status": status, **_means(run, spec)})
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _means(run: Path, spec: RunSpec) -> Row:
    """Return the means of the final evaluation of a run, by the headings of a table."""
    result = run / run_directory.RESULT
    policies = files.parse_json(files.read_bytes(result))["policies"] if result.is_file() else {}
    own = policies.pop(spec.policy_name, None)
    if own is None:
        return {}
    value = fmean(own["network_value"])
    task = TASKS[spec.task]
    return {
        task.value_name: value,
        **{
            f"minus {name}": value - fmean(each["network_value"]) for name, each in policies.items()
        },
        f"{task.score_name} %": fmean(own["committed_accuracy"]),
        "parameters": fmean(own["params"]),
    }


def print_series(folder: Path, rows: list[Row], *, as_json: bool) -> None:
    """Print the closing table of a series, or the same as JSON.

    Below the rows of the runs stands the mean of every column over the seeds with a result, with
    Student's interval; none for one seed.
    """
    bootstrap = import_module("morphogen.evaluation.bootstrap")
    means: dict[str, Row] = {}
    for name in [*rows[0]][2:]:
        values = [[row[name]] for row in rows if row[name] is not None]
        if len(values) > 1:
            means[name] = bootstrap.seed_interval(values)._asdict()
    if as_json:
        process.print_json({"run_dir": str(folder), "seeds": rows, "over seeds": means})
        return
    process.print_tables(
        [(f"{len(rows)} training seeds: means over the held-out instances of each", rows)]
    )
    for name, mean in means.items():
        sys.stdout.write(f"{name} over the seeds: {bootstrap.format_estimate(mean)}\n")
    sys.stdout.write(f"files: {folder}\n")
