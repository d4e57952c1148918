"""Command `watch`: a live view of a run in the terminal."""

import contextlib
import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module

from morphogen.cli import arguments, process, streams

PARSER = {
    "help": "follow a running run in the terminal",
    "description": "Follow a run in the terminal: its envs with slots and alphas, curves, actions, anomalies. The run "
    "may have just begun; the view ends with the run, or with Ctrl-C, which does not affect the run.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `watch`."""
    parser.add_argument("run", metavar="RUN", type=arguments.parse_path, help="its run directory")
    parser.add_argument("--once", action="store_true", help="print the current state, and end")


def run(args: Namespace) -> None:
    """Follow a run until it ends or Ctrl-C is pressed."""
    process.exit_on_signals()
    with contextlib.suppress(KeyboardInterrupt):
        import_module("morphogen.analysis.watch.loop").watch(
            args.run, once=args.once, is_over=lambda: streams.is_lost(sys.stdout)
        )
