"""Command `compare`: runs as sides of a comparison, checked and played."""

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import TYPE_CHECKING

from morphogen.cli import arguments, process
from morphogen.cli.launcher import find_launcher
from morphogen.extras.compare.sides import read_sides
from morphogen.log import run_directory

if TYPE_CHECKING:  # it loads torch
    from morphogen.ppo.exchange import Exchange

PARSER = {
    "description": "Compare the first side with each of the others: on pairs of training seeds, "
    "and on the same held-out instances. A verdict is given only where the interval of the "
    "difference leaves out 0.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `compare`."""
    parser.add_argument("sides", metavar="SIDE", nargs="+", help="run directory, or folder of them")
    parser.add_argument(
        "--episodes",
        metavar="N",
        default="256",
        help="held-out episodes of every run (default 256)",
    )
    arguments.add_json_file(parser)
    find_launcher().add_flag(parser)


def run(args: Namespace) -> int | None:
    """Play the runs of all sides, print the table and the verdicts."""
    episodes = arguments.parse_int_flag("--episodes", args.episodes, 1, arguments.MAX_EPISODES)
    sides = read_sides(args.sides)
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    launcher = find_launcher()
    spec = next(iter(sides[args.sides[0]].values()))
    first = launcher.read_flag(args, spec)

    def play(exchange: "Exchange") -> None:
        comparison = import_module("morphogen.extras.compare.comparison")
        numbers = comparison.compare(
            *args.sides, episodes=episodes, report=process.print_progress, exchange=exchange
        )
        if exchange.first:
            process.write_json(args.json, numbers)
        pairs = numbers["pairs"]
        count = f"{episodes} held-out instances for each of {len(numbers['seeds'])} pairs of runs"
        process.print_tables([(count, [comparison.pair_row(pair) for pair in pairs])])
        for pair in pairs:
            sys.stdout.write(f"{pair['first']} against {pair['second']}: {pair['verdict']}\n")

    process.exit_on_signals()
    process.set_threads(first.engine.threads)
    return launcher.launch(first, args.command_line, play)
