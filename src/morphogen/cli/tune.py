"""Command `tune`: search for rivals of a trained policy: fixed schedules, or thresholds of the heuristic."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

from morphogen.cli import arguments, process
from morphogen.cli.launcher import find_launcher
from morphogen.config.spec import RunSpec, resolve
from morphogen.storage import run_directory
from morphogen.telemetry.events import tidy

PARSER = {
    "help": "search the best fixed schedule or the best rules, a baseline for what a policy learns",
    "description": "Play many candidates on training instances, more often where they do well, and write the best "
    "one, an arm of `morphogen evaluate`. Of families open and static it is a declared schedule, `schedule:FILE`; "
    "beside it goes a portfolio of a few that cover the instances between them. Of family reactive it is a set of "
    "thresholds of the heuristic, `reactive:FILE`. Settings are those of `morphogen train`; held-out instances are "
    "never played.",
}
OPEN, STATIC, REACTIVE = "open", "static", "reactive"
FAMILIES = {
    OPEN: "seeds germinated, and pruned, at fixed times",
    STATIC: "seeds that are there from the start",
    REACTIVE: "rules with thresholds, which look",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `tune`."""
    parser.set_defaults(who="ppo", policy=None)
    rest = arguments.add_settings(parser)
    rest.add_argument(
        "--out", metavar="FILE", type=arguments.parse_path, required=True, help="file of the schedule, a new one"
    )
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in FAMILIES.items())
    rest.add_argument(
        "--family", choices=tuple(FAMILIES), default=OPEN, help=f"candidates (default {OPEN}). {meanings}"
    )
    rest.add_argument("--on", metavar="N", default="48", help="training instances of the last trial (default 48)")
    rest.add_argument("--worlds", metavar="N", default="2", help="worlds that each of them is played in (default 2)")
    rest.add_argument("--json", **arguments.JSON)


def run(args: Namespace) -> int | None:
    """Search, write both files, print the portfolio."""
    spec = resolve(arguments.spec_from_args(args))
    instances = arguments.parse_int_flag("--on", args.on, 1, 65_536)
    worlds = arguments.parse_int_flag("--worlds", args.worlds, 2, 1_000)
    files = {"--out": args.out}
    if args.family != REACTIVE:
        files["the portfolio"] = args.out.parent / f"{args.out.stem}.portfolio.json"
    for name, path in files.items():
        run_directory.check_new_file(name, path)

    def search(exchange: Any) -> None:
        options = {"instances": instances, "worlds": worlds, "report": process.print_progress, "exchange": exchange}
        search = _search_rules if args.family == REACTIVE else _search_schedules
        search(args, spec, list(files.values()), options)

    process.exit_on_signals()
    process.set_threads(spec.engine.threads)
    return find_launcher().launch(spec, args.command_line, search)


def _search_rules(args: Namespace, spec: RunSpec, paths: list[Path], options: dict[str, Any]) -> None:
    """Search thresholds; in the first process write them and print the summary."""
    search = import_module("morphogen.evaluation.threshold_search")
    result = search.search_thresholds(spec, **options)
    if not options["exchange"].first:
        return
    search.write_thresholds(result, *paths)
    if args.json:
        process.print_json(tidy({**search.summary_numbers(result), "files": [str(args.out)]}))
        return
    print(*search.summary_lines(result, spec), f"file: {args.out}", sep="\n")


def _search_schedules(args: Namespace, spec: RunSpec, paths: list[Path], options: dict[str, Any]) -> None:
    """Search schedules; in the first process write both files and print portfolio and summary."""
    search = import_module("morphogen.evaluation.successive_halving")
    result = search.search_schedules(spec, **options, static=args.family == STATIC)
    if not options["exchange"].first:
        return
    search.write_schedules(result, spec, *paths)
    tables = {"the portfolio, on the training instances it was chosen on": search.portfolio_table(result)}
    if args.json:
        names = [str(path) for path in paths]
        process.print_json(tidy({**search.summary_numbers(result), "files": names, "tables": tables}))
        return
    process.print_tables(tables.items())
    print(*search.summary_lines(result), f"files: {', '.join(map(str, paths))}", sep="\n")
