"""Command `export`: a network that a run has kept, as a file that needs no morphogen."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from morphogen.cli import arguments, process
from morphogen.errors import ConfigError
from morphogen.extras.export.kept_files import (
    BEST,
    MEDIAN,
    SUFFIXES,
    TRAINED,
    Row,
    form_of,
    list_networks,
)
from morphogen.log import run_directory
from morphogen.vocab.text import escape_text, format_choice

PARSER = {
    "description": "Write a network that a run has kept: its parameters by name, a program of "
    "torch, or ONNX. Prints its parameters, its score, and three lines of Python that load the "
    "file; the lines of torch and onnx need no morphogen. `morphogen inspect RUN` lists the "
    "networks of a run. Reads the data of the run for the shape of a sample.",
    "epilog": "example: morphogen export runs/mine --pick best --out grown.onnx",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `export`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        type=arguments.parse_path,
        help="a run directory with kept networks (setting evaluation.keep.networks)",
    )
    parser.add_argument(
        "--arm",
        metavar="NAME",
        default=TRAINED,
        help="arm of the final evaluation; trained: the policy of the run (default %(default)s)",
    )
    parser.add_argument(
        "--pick",
        metavar="P",
        default=BEST,
        help=f"{BEST}, {MEDIAN}, or the number of an env of the final evaluation "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--format", choices=SUFFIXES.values(), help="of the file (default: as its name says)"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=arguments.parse_path,
        required=True,
        help="new file: .safetensors, .pt2 (torch) or .onnx",
    )


def run(args: Namespace) -> None:
    """Find the network, write the file, and print how to load it."""
    run_directory.open_directory(args.run)
    facts = find_network(args.run, list_networks(args.run), args.arm, args.pick)
    run_directory.check_new_file("--out", args.out)
    outputs: Any = import_module("morphogen.extras.export.network_files")
    form = args.format or form_of("--out", args.out)
    outputs.check_packages("--out", form)
    process.exit_on_signals()
    kept: Any = import_module("morphogen.extras.export.kept_networks")
    module, example, facts = kept.load_network(args.run / facts["file"])
    lines = outputs.save_network(module, example, args.out, form, facts)
    title = (
        f"{facts['pick']} of {facts['arm']} (env {facts['env']}): {facts['parameters']:,} "
        f"parameters, score {facts['score']:.2f} %, value {facts['value']:.3f}"
    )
    for line in (title, f"{args.out}, loaded by", *lines):
        sys.stdout.write(escape_text(line) + "\n")


def find_network(run: Any, rows: Sequence[Row], arm: str, pick: str) -> Row:
    """Return the facts about a kept network.  Raises: ConfigError."""
    if not rows:
        raise ConfigError(
            f"{run}: expected a run with networks, which --keep-networks best or all "
            "(evaluation.keep.networks) keeps of its final evaluation, got none"
        )
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    own = [row for row in rows if arm in (row["arm"], row["policy"])]
    if not own:
        got = format_choice(arm, arms)
        raise ConfigError(f"--arm: expected one of {', '.join(arms)}, got {got}")
    for row in own:
        if pick in (row["pick"], str(row["env"])):
            return row
    numbers = ", ".join(str(row["env"]) for row in own)
    raise ConfigError(
        f"--pick: expected {BEST}, {MEDIAN} or the number of a kept network of {arm} ({numbers}), "
        f"got {format_choice(pick, [BEST, MEDIAN])}"
    )
