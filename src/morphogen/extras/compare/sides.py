"""Sides of a comparison: run directories, or folders of them, by their names.  No torch."""

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from morphogen.config.fields import raise_all
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_value

Runs = dict[Path, RunSpec]  # resolved specs of a side, in the order of their training seeds
# network values of other tasks cannot be compared
SHARED_FIELDS = ("task", "instances", "instance")


def read_sides(names: Sequence[Path | str]) -> dict[str, Runs]:
    """Return the runs of each side.  Raises ConfigError for sides that cannot be compared."""
    sides = {str(name): _read_runs(str(name)) for name in names}
    if len(sides) < 2:
        raise ConfigError(f"compare: expected two or more sides, got {len(sides)}")
    _check_comparable(sides)
    return sides


def _read_runs(name: str) -> Runs:
    """Return the run in a run directory, or the runs in a folder of them."""
    path = expand_path(name)
    # unlike Path.is_file, false for an invalid name
    if os.path.isfile(path / run_directory.CONFIG):
        runs = [path]
    else:
        configs = glob.glob(f"*/{run_directory.CONFIG}", root_dir=path)
        runs = [path / os.path.dirname(config) for config in configs]
    if not runs:
        raise ConfigError(
            f"side: expected a run directory or a folder of them, got {format_value(name)}"
        )
    specs = {path: resolve(run_directory.open_directory(path)[1]) for path in runs}
    return dict(sorted(specs.items(), key=lambda run: (run[1].seed, run[0])))


def _check_comparable(sides: Mapping[str, Runs]) -> None:
    """Raise a ConfigError for sides with other numbers of runs, or other tasks."""
    (first, runs), *others = sides.items()
    spec = next(iter(runs.values()))
    faults: list[str] = []
    for name, other in others:
        if len(other) != len(runs):
            faults.append(f"{name}: expected {len(runs)} runs, as {first} has, got {len(other)}")
        faults += [
            f"{name}: expected the {field} of {first}, got another; their values cannot be compared"
            for field in SHARED_FIELDS
            if getattr(next(iter(other.values())), field) != getattr(spec, field)
        ]
    raise_all(faults)
