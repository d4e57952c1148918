"""Command `watch`: a live table of the rounds of a run."""

import contextlib
import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module

from morphogen.cli import arguments, process, streams

PARSER = {
    "description": "Follow a run in the terminal: a row per round with accuracy, value, seeds "
    "and alarms. The run may have just begun; the table ends with the run, or with Ctrl-C, which "
    "does not affect the run.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `watch`."""
    parser.add_argument("run", metavar="RUN", type=arguments.parse_path, help="its run directory")
    parser.add_argument("--once", action="store_true", help="print the current state, and end")


def run(args: Namespace) -> None:
    """Follow a run until it ends or Ctrl-C is pressed."""
    process.exit_on_signals()
    with contextlib.suppress(KeyboardInterrupt):
        import_module("morphogen.extras.watch.rounds_table").watch(
            args.run, once=args.once, is_over=lambda: streams.find_error(sys.stdout) is not None
        )
