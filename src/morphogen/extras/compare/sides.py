"""Sides of a comparison: runs that exist, and presets and reward rules that are trained first.  No
torch.
"""

import glob
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from morphogen.cli import arguments
from morphogen.config.config_files import build_spec, parse_assignment
from morphogen.config.fields import OneOf, Settings, check_flag, raise_all
from morphogen.config.parts import RULES
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET, PRESETS
from morphogen.errors import ConfigError
from morphogen.extras.compare import series
from morphogen.log import run_directory
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_choice

RULE_PREFIX = "rule:"
# network values of other tasks cannot be compared
SHARED_FIELDS = ("task", "instances", "instance")


class ComparisonSide(NamedTuple):
    """Runs of one side, one per training seed."""

    name: str
    runs: dict[Path, RunSpec]  # resolved
    needs_training: bool  # missing runs are trained, stopped ones resumed

    @property
    def spec(self) -> RunSpec:
        """Spec of the first run."""
        return next(iter(self.runs.values()))


def read_sides(args: Namespace) -> list[ComparisonSide]:
    """Return the sides of a command line.  Raises ConfigError for sides that cannot be compared."""
    arguments.check_unique("compare", args.sides)
    check_count(args.sides)
    sides = [trained_side(name, args) or existing_side(name) for name in args.sides]
    flags = {"--seeds": args.seeds, "--rounds": args.rounds, "--set": args.set, "--out": args.out}
    for flag, value in flags.items():
        if value and not any(side.needs_training for side in sides):
            raise ConfigError(f"{flag}: expected a preset or rule as a side, got runs only")
    check_comparable(sides)
    return sides


def check_count(names: Sequence[object]) -> None:
    """Raise a ConfigError for fewer than two sides."""
    if len(names) < 2:
        raise ConfigError(f"compare: expected two or more sides, got {len(names)}")


def check_comparable(sides: Sequence[ComparisonSide]) -> None:
    """Raise a ConfigError for sides with other numbers of runs, or other tasks."""
    first = sides[0]
    faults: list[str] = []
    for side in sides[1:]:
        if len(side.runs) != len(first.runs):
            faults.append(
                f"{side.name}: expected {len(first.runs)} runs, as {first.name} has, got "
                f"{len(side.runs)}"
            )
        faults += [
            f"{side.name}: expected the {name} of {first.name}, got another; their values "
            "cannot be compared"
            for name in SHARED_FIELDS
            if getattr(side.spec, name) != getattr(first.spec, name)
        ]
    raise_all(faults)


def trained_side(name: str, args: Namespace) -> ComparisonSide | None:
    """Return the side of a preset or a rule; None for a path."""
    settings: Settings = {"preset": name}
    if name.startswith(RULE_PREFIX):
        rule = name.removeprefix(RULE_PREFIX)
        check_flag("side", rule, OneOf(RULES))
        settings = {"reward": {"rule": rule}}
    elif name not in PRESETS:
        return None
    if args.out is None:
        raise ConfigError(f"--out: expected a directory to train {name} in, got nothing")
    if args.rounds is not None:
        settings["rounds"] = arguments.parse_int_flag("--rounds", args.rounds, 1)
    base = {"preset": DEFAULT_PRESET, "final_episodes": 0, "evaluation": {"every_rounds": 0}}
    layers = [base, *map(parse_assignment, args.set), settings]
    seeds = series.parse_seeds(args.seeds or "0")
    folder = args.out / name.replace(":", "-")
    runs = {folder / str(seed): resolve(build_spec(*layers, {"seed": seed})) for seed in seeds}
    series.check_runs(runs)
    return ComparisonSide(name, runs, needs_training=True)


def existing_side(name: str) -> ComparisonSide:
    """Return the side of a run directory, or of a folder of them, in the order of their seeds."""
    path = expand_path(name)
    # unlike Path.is_file, false for an invalid name
    if os.path.isfile(path / run_directory.CONFIG):
        runs = [path]
    else:
        configs = glob.glob(f"*/{run_directory.CONFIG}", root_dir=path)
        runs = [path / os.path.dirname(config) for config in configs]
    if not runs:
        known = f"a preset ({', '.join(PRESETS)}) or {RULE_PREFIX}NAME"
        raise ConfigError(
            f"side: expected a run directory, a folder of them, {known}, got "
            f"{format_choice(name, PRESETS)}"
        )
    specs = {path: resolve(run_directory.open_directory(path)[1]) for path in runs}
    ordered = sorted(runs, key=lambda path: (specs[path].seed, path))
    return ComparisonSide(name, {path: specs[path] for path in ordered}, needs_training=False)
