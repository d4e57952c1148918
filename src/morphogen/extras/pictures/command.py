"""Command `report`: an HTML page with the pictures of runs, and their numbers as CSV."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from morphogen.cli import arguments, process
from morphogen.errors import ConfigError
from morphogen.vocab.text import escape_text

PARSER = {
    "description": "Write a page with learning curves, lives of the seeds, their contributions "
    "and the throughput of a run, or of several side by side; every picture as PNG and its "
    "numbers as CSV beside it. Works on a run that is not over. With --life one picture only. "
    "Needs the extra morphogen[report].",
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
    parser.add_argument(
        "--life",
        metavar="FILE",
        type=arguments.parse_path,
        help="write one picture only: one env's life, FILE ends in .svg or .png",
    )
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Write the report, or one picture, and print its path; as JSON the paths of all files."""
    page = import_module("morphogen.extras.pictures.page")
    if args.life is not None:
        _draw_life(page.draw_life, args)
        return
    path = page.report(*args.runs, out=args.out)
    if args.json:
        pictures, numbers = (
            sorted(map(str, path.parent.glob(f"*.{suffix}"))) for suffix in ("png", "csv")
        )
        process.print_json({"page": str(path), "pictures": pictures, "numbers": numbers})
    else:
        sys.stdout.write(escape_text(str(path)) + "\n")


def _draw_life(draw: Callable[[Path, Path], None], args: Namespace) -> None:
    if len(args.runs) > 1:
        raise ConfigError(f"--life: expected one run directory, got {len(args.runs)}")
    if args.out is not None:
        raise ConfigError("--life: expected without --out, because it writes one file only")
    draw(args.runs[0], args.life)
    if args.json:
        process.print_json({"picture": str(args.life)})
    else:
        sys.stdout.write(escape_text(str(args.life)) + "\n")
