"""Command `compare`: runs, presets or reward rules as sides of a comparison, checked, trained and
played.
"""

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from morphogen.cli import arguments, process
from morphogen.cli.launcher import find_launcher
from morphogen.cli.train import watch_run
from morphogen.config.spec import RunSpec
from morphogen.extras.compare import series
from morphogen.extras.compare.sides import read_sides
from morphogen.log import run_directory

if TYPE_CHECKING:  # it loads torch
    from morphogen.ppo.exchange import Exchange

COMPARISON_FILE = "comparison.json"
PARSER = {
    "description": "Compare the first side with each of the others: on pairs of training seeds, "
    "and on the same held-out instances. Presets and rules are trained first, a run per seed "
    "below --out; existing runs are used, or resumed. A verdict is given only where the interval "
    "of the difference leaves out 0.",
}


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
    first = launcher.read_flag(args, sides[0].spec)
    runs = {run: spec for side in sides if side.needs_training for run, spec in side.runs.items()}

    def play(exchange: "Exchange") -> int | None:
        code = _train_runs(runs, exchange, quiet=args.quiet)
        if code is not None:
            return code
        comparison = import_module("morphogen.extras.compare.comparison")
        numbers = comparison.compare_sides(
            sides, episodes=episodes, report=process.print_progress, exchange=exchange
        )
        if exchange.first:
            process.write_json(args.json, numbers)
            process.write_json(None if args.out is None else args.out / COMPARISON_FILE, numbers)
        pairs = numbers["pairs"]
        count = f"{episodes} held-out instances for each of {len(numbers['seeds'])} pairs of runs"
        process.print_tables([(count, [comparison.pair_row(pair) for pair in pairs])])
        for pair in pairs:
            sys.stdout.write(f"{pair['first']} against {pair['second']}: {pair['verdict']}\n")
        return None

    process.set_threads(first.engine.threads)
    return launcher.launch(first, args.command_line, play, trains=True)


def _train_runs(runs: dict[Path, RunSpec], exchange: "Exchange", *, quiet: bool) -> int | None:
    """Train the missing runs of all sides; return the exit code of a signal that stopped them."""
    with watch_run(sys.stderr if exchange.first else None, quiet=quiet) as (console, parts, stop):
        result = series.train_seeds(
            runs, command="morphogen compare", console=console, parts=parts, exchange=exchange
        )
    result.raise_error()
    return next((code for code in exchange.facts(stop.exit_code) if code is not None), None)
