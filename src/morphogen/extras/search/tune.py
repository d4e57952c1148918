"""Command `tune`: search rivals of a trained policy: fixed schedules, or rules with thresholds."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.cli.launcher import find_launcher
from morphogen.config import files
from morphogen.config.spec import resolve
from morphogen.log import run_directory
from morphogen.log.events import tidy

PARSER = {
    "description": "Play many candidates on training instances, more often where they do well, and "
    "write the best one, an arm of `morphogen evaluate`. Of families open and static it is a "
    "declared schedule, `schedule:FILE`. Of family reactive it is a set of thresholds of the "
    "heuristic, `reactive:FILE`. "
    "Settings are as in `morphogen train`; held-out instances are never played.",
}
FAMILIES = {
    "open": "seeds germinated, and pruned, at fixed times",
    "static": "seeds that are there from the start",
    "reactive": "rules with thresholds, which look",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `tune`."""
    rest = setting_flags.add_settings(parser)
    rest.add_argument(
        "--out",
        metavar="FILE",
        type=arguments.parse_path,
        required=True,
        help="file of the best candidate, a new one",
    )
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in FAMILIES.items())
    rest.add_argument(
        "--family",
        choices=tuple(FAMILIES),
        default="open",
        help=f"candidates (default %(default)s). {meanings}",
    )
    rest.add_argument(
        "--on", metavar="N", default="48", help="training instances of the last trial (default 48)"
    )
    rest.add_argument(
        "--worlds",
        metavar="N",
        default="2",
        help="worlds that each of them is played in (default 2)",
    )
    arguments.add_json(rest)


def run(args: Namespace) -> int | None:
    """Search, write the files, print the result."""
    spec = resolve(setting_flags.spec_from_args(args))
    instances = arguments.parse_int_flag("--on", args.on, 1, 65_536)
    worlds = arguments.parse_int_flag("--worlds", args.worlds, 2, 1_000)
    run_directory.check_new_file("--out", args.out)

    def search(exchange: Any) -> None:
        setup = import_module("morphogen.env.setup").build_setup(spec, exchange)
        open_context = import_module("morphogen.evaluation.arms").open_context
        context = open_context(setup, process.print_progress)
        numbers, data = _load_search(args.family)(context, instances=instances, worlds=worlds)
        if exchange.first:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomic(args.out, data)
            numbers |= {"instances": instances, "worlds": worlds, "file": str(args.out)}
            _print_numbers(numbers, as_json=args.json)

    process.exit_on_signals()
    process.set_threads(spec.engine.threads)
    return find_launcher().launch(spec, args.command_line, search)


def _load_search(family: str) -> Callable[..., Any]:
    """Return the search of a family of candidates."""
    if family == "reactive":
        return import_module("morphogen.extras.search.threshold_search").search_thresholds
    search = import_module("morphogen.extras.search.successive_halving").search_schedules
    return partial(search, static=family == "static")


def _print_numbers(numbers: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        process.print_json(tidy(numbers))
        return
    for name, value in numbers.items():
        print(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")
