"""Command `report`: an HTML page with the pictures of runs, and their numbers as CSV."""

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module

from morphogen.cli import arguments, process
from morphogen.vocab.text import escape_text

PARSER = {
    "description": "Write a page with learning curves, lives of the seeds, their contributions "
    "and the throughput of a run, or of several side by side; every picture as PNG and its "
    "numbers as CSV beside it. Works on a run that is not over. Needs the extra "
    "morphogen[report].",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `report`."""
    parser.add_argument(
        "runs", metavar="RUN_DIR", nargs="+", type=arguments.parse_path, help="run directories"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=arguments.parse_path,
        help="output folder (default: report/ in the first of them)",
    )
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Write the report and print its path; as JSON the paths of all files."""
    page = import_module("morphogen.extras.pictures.page").report(*args.runs, out=args.out)
    if args.json:
        pictures, numbers = (
            sorted(map(str, page.parent.glob(f"*.{suffix}"))) for suffix in ("png", "csv")
        )
        process.print_json({"page": str(page), "pictures": pictures, "numbers": numbers})
    else:
        sys.stdout.write(escape_text(str(page)) + "\n")
