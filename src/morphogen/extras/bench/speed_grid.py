"""Command `bench`: configurations measured one after the other."""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.config import files
from morphogen.config.config_files import dump_config, nest_setting, parse_value
from morphogen.config.fields import Settings, merge_settings
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError, DeviceError
from morphogen.log import run_directory
from morphogen.vocab.text import format_value

LEVELS = ("normal", "debug")  # of telemetry that has the rates of a round
DEFAULTS: Settings = {"rounds": 3, "telemetry": {"level": LEVELS[0]}}
SINGLE_POINT = "as configured"
PARSER = {
    "description": "Run a few rounds of a configuration, given as for `train`, and print the "
    "rate, where the time goes, the time of compiling and the peak of memory. The first round is "
    "a warm-up and is reported separately. No run directory is written.",
    "epilog": f"""Settings are as in `morphogen train`; {DEFAULTS["rounds"]} rounds unless --rounds
or --set says otherwise.

examples:
  morphogen bench --envs 8                                        the default run, with 8 hosts
  morphogen bench --grid envs=1,8,64 engine.compile=off,default   six measurements
  morphogen bench --task digits --rounds 6 --json x.json          five rounds, kept in a file""",
    "formatter_class": argparse.RawDescriptionHelpFormatter,
}
Point = dict[str, Any]  # machine, numbers and shares of `probe.measure`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench`."""
    rest = setting_flags.add_settings(parser)
    grid = "measure every value of a field, as in envs=1,8,64; of several, every combination"
    rest.add_argument(
        "--grid", metavar="KEY=V1,V2", nargs="+", action="extend", default=[], help=grid
    )
    arguments.add_json_file(rest)


def run(args: Namespace) -> int | None:
    """Measure every point of the grid; print the measured points even after an error."""
    specs = expand_grid(args)
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    process.exit_on_signals()
    process.note_missing_kernels()
    points: dict[str, Point] = {}
    code = 0
    try:
        for label, spec in specs.items():
            if not args.grid:
                process.set_threads(spec.engine.threads)
                points[label] = import_module("morphogen.extras.bench.probe").measure(spec)
            elif code := measure_apart(spec, args.imports, points, label):
                break
            process.write_json(args.json, points)
    finally:
        process.print_tables(point_tables(points))
    return code


def expand_grid(args: Namespace) -> dict[str, RunSpec]:
    """Return the resolved specs by their labels in the grid.  Raises ConfigError for an invalid
    one.
    """
    specs = {}
    for point in itertools.product(*map(_parse_axis, args.grid)):
        overrides = reduce(merge_settings, [settings for _, settings in point], {})
        spec = resolve(setting_flags.spec_from_args(args, defaults=DEFAULTS, overrides=overrides))
        if spec.rounds < 2:
            raise ConfigError(f"rounds: expected >= 2 with the warm-up, got {spec.rounds}")
        if spec.telemetry.level not in LEVELS:
            raise ConfigError(
                f"telemetry.level: expected {' or '.join(LEVELS)} to read the rates from, got "
                f"{spec.telemetry.level}"
            )
        specs[",".join(label for label, _ in point) or SINGLE_POINT] = spec
    return specs


def _parse_axis(text: str) -> list[tuple[str, Settings]]:
    """Return the points of an axis: `envs=1,8` -> [("envs=1", {"envs": 1}), ("envs=8", {"envs":
    8})].
    """
    path, equals, raw = text.partition("=")
    if not (equals and raw and all(path.split("."))):
        raise ConfigError(
            f"--grid: expected KEY=V1,V2, as in envs=1,8 data.batch=16,32, got {format_value(text)}"
        )
    try:
        values = parse_value(f"[{raw}]")
    except ConfigError:  # words and numbers instead of JSON
        values = [arguments.parse_number(word) for word in raw.split(",")]
    return [
        (
            f"{path}={value if isinstance(value, str) else json.dumps(value)}",
            nest_setting(path.split("."), value),
        )
        for value in values
    ]


def measure_apart(
    spec: RunSpec, imports: Sequence[str], points: dict[str, Point], label: str
) -> int:
    """Measure a configuration in a process of its own, add it to `points`; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        config, numbers = (Path(folder) / name for name in ("config.json", "numbers.json"))
        config.write_text(dump_config(spec))
        words = ["--config", str(config), "--rounds", str(spec.rounds), "--json", str(numbers)]
        parts = [word for name in imports for word in ("--import", name)]
        command = [sys.executable, "-m", "morphogen", "bench", *words, *parts]
        code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
        if code < 0:
            raise DeviceError(f"{label}: signal {-code} ended it (9: usually out of memory)")
        if code == 0:
            points[label] = files.parse_json(files.read_bytes(numbers))[SINGLE_POINT]
            rate = points[label]["numbers"]["env-epochs/s"]
            process.print_progress(f"{label}: {rate:,.1f} env-epochs/s")
    return code


def point_tables(points: Mapping[str, Point]) -> list[tuple[str, list[Point]]]:
    """Return titles and rows: rates and sizes, then the shares of phases, if they were measured."""
    numbers = [{"point": label, **point["numbers"]} for label, point in points.items()]
    shares = [
        {"point": label, **point["shares"]} for label, point in points.items() if point["shares"]
    ]
    return [("medians over the rounds after the first", numbers), ("share of a round", shares)]
