"""Command `tune`: search for the best fixed schedule, and for a portfolio that covers most instances."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path

from morphogen.cli import arguments, process, rank_processes
from morphogen.config.spec import resolve
from morphogen.storage import run_directory

PARSER = {
    "help": "search the best fixed schedule, a baseline for what a policy learns",
    "description": "Play many declared schedules on training instances, more often where they do well, and write the "
    "best one: `morphogen train heuristic --policy schedule:FILE` takes it. Beside it goes a portfolio of a few "
    "that cover the instances between them. Settings are those of `morphogen train`; held-out instances are never "
    "played.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `tune`."""
    parser.set_defaults(who="ppo", policy=None)
    rest = arguments.add_settings(parser)
    rest.add_argument("--out", metavar="FILE", type=Path, required=True, help="file of the schedule, a new one")
    rest.add_argument("--on", metavar="N", default="48", help="training instances of the last trial (default 48)")
    rest.add_argument("--worlds", metavar="N", default="2", help="worlds that each of them is played in (default 2)")


def run(args: Namespace) -> None:
    """Search, write both files, print the portfolio."""
    spec = resolve(arguments.spec_from_args(args))
    instances = arguments.parse_int_flag("--on", args.on, 1, 65_536)
    worlds = arguments.parse_int_flag("--worlds", args.worlds, 2, 1_000)
    files = {"--out": args.out, "the portfolio": args.out.parent / f"{args.out.stem}.portfolio.json"}
    for name, path in files.items():
        run_directory.check_new_file(name, path)
    process.exit_on_signals()
    halving = "morphogen.evaluation.successive_halving"
    with rank_processes.open_ranks(spec, spec.engine.ranks or 1, args.command_line) as join:
        process.set_threads(spec.engine.threads)
        search, collectives = import_module(halving).search_schedules, join()
        report = process.print_progress
        result = search(spec, instances=instances, worlds=worlds, report=report, collectives=collectives)
        collectives.close()
    if not process.has_console():
        return
    halving = import_module(halving)
    halving.write_schedules(result, spec, *files.values())
    title = "the portfolio, on the training instances it was chosen on"
    process.print_tables([(title, halving.portfolio_table(result))])
    print(*halving.summary_lines(result), f"files: {', '.join(map(str, files.values()))}", sep="\n")
