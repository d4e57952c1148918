"""Command `inspect`: facts and tables of a run directory or a checkpoint."""

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module

from morphogen.cli import arguments, process
from morphogen.log.events import tidy
from morphogen.vocab.text import escape_text

PARSER = {
    "description": "Print what a run is, how far it came, and its tables: rounds, blueprints, "
    "actions, anomalies; or the position of a checkpoint and its files.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `inspect`."""
    parser.add_argument(
        "path",
        metavar="PATH",
        type=arguments.parse_path,
        help="run directory, or a checkpoint in one",
    )
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Print the facts, then the tables; as JSON with all rows."""
    inspect_path = import_module("morphogen.extras.inspection.inspect_run").inspect_path
    if args.json:
        process.print_json(tidy(inspect_path(args.path, most=None)._asdict()))
        return
    contents = inspect_path(args.path)
    for name, fact in contents.facts.items():
        sys.stdout.write(escape_text(f"{name:<22}{fact}") + "\n")
    process.print_tables(contents.tables.items())
