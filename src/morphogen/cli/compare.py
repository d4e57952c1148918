"""Command `compare`: runs, presets or reward rules as sides of a comparison, checked, trained and
played.
"""

import contextlib
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from morphogen.cli import arguments, process, series
from morphogen.cli.launcher import find_launcher
from morphogen.config.config_files import build_spec, parse_assignment
from morphogen.config.fields import OneOf, Settings, check_flag, raise_all
from morphogen.config.parts import RULES
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET, PRESETS
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.train.stop_signals import StopSignals
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import read_count
from morphogen.vocab.text import format_choice

if TYPE_CHECKING:  # they load torch
    from morphogen.evaluation.bootstrap import Array, Estimate
    from morphogen.evaluation.play import ArmResult
    from morphogen.ppo.exchange import Exchange

NO_VERDICT = "no verdict"
BOOTSTRAP_SEED = 0
COMPARED_FIELDS = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
RULE_PREFIX = "rule:"
COMPARISON_FILE = "comparison.json"
# network values of other tasks cannot be compared
SHARED_FIELDS = ("task", "instances", "instance")
PARSER = {
    "description": "Compare the first side with each of the others: on pairs of training seeds, "
    "and on the same held-out instances. Presets and rules are trained first, a run per seed "
    "below --out; existing runs are used, or resumed. A verdict is given only where the interval "
    "of the difference leaves out 0.",
}
Row = dict[str, Any]


class ComparisonSide(NamedTuple):
    """Runs of one side, one per training seed."""

    name: str
    runs: dict[Path, RunSpec]  # resolved
    needs_training: bool  # missing runs are trained, stopped ones resumed


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `compare`."""
    parser.add_argument(
        "sides",
        metavar="SIDE",
        nargs="+",
        help="run directory, folder of them, preset or rule:NAME",
    )
    parser.add_argument(
        "--seeds",
        metavar="SEEDS",
        help=f"training seeds of presets and rules, {series.SEEDS} (default 0)",
    )
    parser.add_argument(
        "--rounds", metavar="N", help="rounds of every run (default: as configured)"
    )
    arguments.add_set(parser, "any field, for all sides")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=arguments.parse_path,
        help="folder of trained presets and rules: DIR/SIDE/SEED",
    )
    parser.add_argument(
        "--episodes",
        metavar="N",
        default="256",
        help="held-out episodes of every run (default 256)",
    )
    arguments.add_json_file(parser)
    find_launcher().add_flag(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, only the table")


def run(args: Namespace) -> int | None:
    """Train the missing runs, play all of them, print the table and the verdicts."""
    episodes = arguments.parse_int_flag("--episodes", args.episodes, 1, arguments.MAX_EPISODES)
    sides = read_sides(args)
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    launcher = find_launcher()
    first = launcher.read_flag(args, next(iter(sides[0].runs.values())))

    def play(exchange: "Exchange") -> int | None:
        code = _train_sides(sides, exchange, quiet=args.quiet)
        if code is None:
            numbers = compare_sides(
                sides, episodes=episodes, report=process.print_progress, exchange=exchange
            )
            _print_comparison(args, numbers, write=exchange.first)
        return code

    process.set_threads(first.engine.threads)
    return launcher.launch(first, args.command_line, play, trains=True)


def _print_comparison(args: Namespace, numbers: Row, *, write: bool) -> None:
    """Print the table and the verdicts; write the numbers to files."""
    for path in (
        (args.json, None if args.out is None else args.out / COMPARISON_FILE) if write else ()
    ):
        process.write_json(path, numbers)
    title = (
        f"{numbers['episodes']} held-out instances for each of {len(numbers['seeds'])} pairs of "
        "runs"
    )
    process.print_tables([(title, [pair_row(pair) for pair in numbers["pairs"]])])
    print(
        *(
            f"{pair['first']} against {pair['second']}: {pair['verdict']}"
            for pair in numbers["pairs"]
        ),
        sep="\n",
    )


def read_sides(args: Namespace) -> tuple[ComparisonSide, ...]:
    """Return the sides of a command line.  Raises ConfigError for sides that cannot be compared."""
    names = args.sides
    arguments.check_unique("compare", names)
    if len(names) < 2:
        raise ConfigError(f"compare: expected two or more sides, got {len(names)}")
    sides = tuple(_side_to_train(name, args) or _existing_side(name) for name in names)
    flags = {"--seeds": args.seeds, "--rounds": args.rounds, "--set": args.set, "--out": args.out}
    for flag, value in flags.items():
        if value and not any(side.needs_training for side in sides):
            raise ConfigError(f"{flag}: expected a preset or rule as a side, got runs only")
    _check_comparable(sides)
    return sides


def compare(*runs: Path | str, episodes: int = 256, report: Callable[[str], None] = print) -> Row:
    """Compare runs that exist, as the command `compare` does: all of them play the same held-out
    instances.

    Args:
        runs: two or more sides, each a run directory or a folder of run directories with other
        training seeds.
        episodes: held-out episodes of every run.
        report: receives a line after each run.

    Returns: the numbers of `comparison.json`: network values per run and episode, and under
    `pairs`, for the first side with each of the others, the difference with its intervals, the
    effect size and the verdict.
    Raises: ConfigError for sides that cannot be compared, CheckpointError for damaged policies.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {"preset": "tiny", "rounds": 1, "envs": 4, "final_episodes": 0}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for policy in ("wait", "random"):
        ...         result = mg.train_ppo_vectorized(
        ...             **fields, policy_name=policy, out=f"{folder}/{policy}"
        ...         )
        ...     numbers = mg.compare(
        ...         f"{folder}/wait", f"{folder}/random", episodes=2, report=lambda line: None
        ...     )
        >>> pair = numbers["pairs"][0]
        >>> round(pair["difference"]["value"], 3), pair["verdict"]
        (0.155, 'no verdict')
    """
    episodes = read_count("episodes", episodes)
    if len(runs) < 2:
        raise ConfigError(f"compare: expected two or more sides, got {len(runs)}")
    sides = tuple(_existing_side(str(run)) for run in runs)
    _check_comparable(sides)
    return compare_sides(sides, episodes=episodes, report=report)


def _check_comparable(sides: Sequence[ComparisonSide]) -> None:
    """Raise ConfigError for sides with other numbers of runs, or other tasks."""
    (first, *rest), faults = sides, list[str]()
    for side in rest:
        if len(side.runs) != len(first.runs):
            faults.append(
                f"{side.name}: expected {len(first.runs)} runs, as {first.name} has, got "
                f"{len(side.runs)}"
            )
        spec, expected = (next(iter(each.runs.values())) for each in (side, first))
        faults += [
            f"{side.name}: expected the {name} of {first.name}, got another; their values "
            "cannot be compared"
            for name in SHARED_FIELDS
            if getattr(spec, name) != getattr(expected, name)
        ]
    raise_all(faults)


def _side_to_train(name: str, args: Namespace) -> ComparisonSide | None:
    """Return the side of a preset or a rule; None for a path."""
    settings: Settings = {"preset": name}
    if name.startswith(RULE_PREFIX):
        rule = name.removeprefix(RULE_PREFIX)
        check_flag("side", rule, OneOf(RULES))
        settings = {"reward": {"rule": rule}}
    elif name not in PRESETS:
        return None
    if args.out is None:
        raise ConfigError(f"--out: expected a directory to train {name} in, got nothing")
    if args.rounds is not None:
        settings["rounds"] = arguments.parse_int_flag("--rounds", args.rounds, 1)
    base = {"preset": DEFAULT_PRESET, "final_episodes": 0, "evaluation": {"every_rounds": 0}}
    layers = [base, *map(parse_assignment, args.set), settings]
    seeds = series.parse_seeds(args.seeds or "0")
    folder = args.out / name.replace(":", "-")
    runs = {folder / str(seed): resolve(build_spec(*layers, {"seed": seed})) for seed in seeds}
    series.check_runs(runs)
    return ComparisonSide(name, runs, needs_training=True)


def _existing_side(name: str) -> ComparisonSide:
    """Return the side of a run directory, or of a folder of them, in the order of their seeds."""
    path = expand_path(name)
    folders = [path]
    # unlike Path.is_file, false for an invalid name
    if not os.path.isfile(path / run_directory.CONFIG):
        with contextlib.suppress(OSError, ValueError):
            folders = sorted(path.iterdir())
    runs = [folder for folder in folders if os.path.isfile(folder / run_directory.CONFIG)]
    if not runs:
        known = f"a preset ({', '.join(PRESETS)}) or {RULE_PREFIX}NAME"
        raise ConfigError(
            f"side: expected a run directory, a folder of them, {known}, got "
            f"{format_choice(name, PRESETS)}"
        )
    specs = {path: resolve(run_directory.open_directory(path)[1]) for path in runs}
    ordered = sorted(runs, key=lambda path: (specs[path].seed, path))
    return ComparisonSide(name, {path: specs[path] for path in ordered}, needs_training=False)


def _train_sides(
    sides: Sequence[ComparisonSide], exchange: "Exchange", *, quiet: bool
) -> int | None:
    """Train the missing runs of all sides; return the exit code of a signal that stopped them."""
    runs = {run: spec for side in sides if side.needs_training for run, spec in side.runs.items()}
    console = import_module("morphogen.log.console").Console
    engine = import_module("morphogen.train.loop")
    with (
        console(quiet=quiet or not exchange.first, out=sys.stderr) as screen,
        StopSignals() as stop,
    ):
        hooks = engine.Hooks(should_stop=lambda: stop.exit_code is not None)
        result = series.train_seeds(
            runs,
            command="morphogen compare",
            console=screen,
            parts=engine.Parts(hooks=hooks),
            exchange=exchange,
        )
    result.raise_error()
    return next((code for code in exchange.facts(stop.exit_code) if code is not None), None)


def compare_sides(
    sides: Sequence[ComparisonSide],
    *,
    episodes: int,
    report: Callable[[str], None],
    exchange: "Exchange | None" = None,
) -> Row:
    """Play every run of every side; return all numbers for a file, the pairs of sides among them.

    Runs make pairs by their position: a pair plays the instances of the seed of its first run.
    """
    results: dict[str, list[ArmResult]] = {side.name: [] for side in sides}
    for side in sides:
        for (run, spec), first in zip(side.runs.items(), sides[0].runs.values(), strict=True):
            result = _play_run(run, spec, first, episodes, exchange)
            results[side.name].append(result)
            report(f"{run}: {episodes} episodes in {result.seconds:.1f} s")
    stack = import_module("numpy").stack
    values = {
        name: stack([result.network_value for result in runs]) for name, runs in results.items()
    }
    first, *rest = values
    return {
        "episodes": episodes,
        "seeds": [spec.seed for spec in sides[0].runs.values()],
        "sides": {
            side.name: _side_facts(side, results[side.name], values[side.name]) for side in sides
        },
        "pairs": [compare_pair(first, other, values[first], values[other]) for other in rest],
    }


def _play_run(
    run: Path, spec: RunSpec, first: RunSpec, episodes: int, exchange: "Exchange | None"
) -> "ArmResult":
    """Play the policy of a run on the instances of the run `first`, a part in every process."""
    worlds = import_module("morphogen.evaluation.evaluate").evaluation_spec(
        spec, seed=first.seed, envs=first.envs
    )
    exchange = exchange or import_module("morphogen.ppo.exchange").ALONE
    setup = import_module("morphogen.env.setup").build_setup(worlds, exchange)
    transfers = import_module("morphogen.device.transfers").Transfers(
        setup.device, time.perf_counter
    )
    policies = import_module("morphogen.env.policies")
    play = import_module("morphogen.evaluation.play")
    with import_module("torch").no_grad():
        arm = policies.build_arm(f"{policies.TRAINED_PREFIX}{run}", setup)
        return play.play_arm(setup, transfers, arm, name=str(run), episodes=episodes)


def compare_pair(first: str, second: str, first_values: "Array", second_values: "Array") -> Row:
    """Return the statistics of a pair of sides.  first_values, second_values: network values [R,
    n], paired.

    `over seeds`: interval over other training seeds, None with one seed; a verdict needs both
    intervals to exclude 0.
    """
    bootstrap = import_module("morphogen.evaluation.bootstrap")
    differences = first_values - second_values
    difference = bootstrap.interval(differences, seed=BOOTSTRAP_SEED)
    seeds = bootstrap.seed_interval(differences)
    better = bootstrap.improvement_probability(first_values, second_values, seed=BOOTSTRAP_SEED)
    return {
        "first": first,
        "second": second,
        "difference": difference._asdict(),
        "over seeds": None if seeds is None else seeds._asdict(),
        "effect": bootstrap.effect_size(first_values, second_values),
        "P(first is better)": better._asdict(),
        "verdict": verdict(first, second, difference, seeds),
    }


def verdict(first: str, second: str, difference: "Estimate", seeds: "Estimate | None") -> str:
    """Name the better side if every interval of the difference excludes 0."""
    if not all(estimate.excludes_zero for estimate in (difference, seeds) if estimate is not None):
        return NO_VERDICT
    better, worse = (first, second) if difference.value > 0 else (second, first)
    return f"{better} is better than {worse}"


def pair_row(pair: Row) -> Row:
    """Return the row of a pair in a table."""
    format_estimate = import_module("morphogen.evaluation.bootstrap").format_estimate
    seeds = pair["over seeds"]
    return {
        "sides": " minus ".join(Path(pair[side]).name for side in ("first", "second")),
        "value (95 % interval)": format_estimate(pair["difference"], "+"),
        "over seeds": "-" if seeds is None else f"{seeds['low']:+.3f} .. {seeds['high']:+.3f}",
        "effect": pair["effect"],
        "P(first is better)": format_estimate(pair["P(first is better)"]),
    }


def _side_facts(side: ComparisonSide, results: "Sequence[ArmResult]", values: "Array") -> Row:
    bootstrap = import_module("morphogen.evaluation.bootstrap")
    return {
        "runs": [str(run) for run in side.runs],
        "seeds": [spec.seed for spec in side.runs.values()],
        "mean": bootstrap.interval(values, seed=BOOTSTRAP_SEED)._asdict(),
        "iqm": bootstrap.iqm(values, seed=BOOTSTRAP_SEED)._asdict(),
        "seconds": [result.seconds for result in results],
        **{
            name: [getattr(result, name).tolist() for result in results] for name in COMPARED_FIELDS
        },
    }
