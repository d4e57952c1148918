"""Command `bench`: configurations measured one after the other, and the form of measured numbers.

Each configuration runs in its own process, with its own threads, graphs and peak of memory.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from morphogen.cli import arguments, process
from morphogen.config.config_files import as_settings, nest_setting, parse_value
from morphogen.config.fields import Settings, merge_settings, raise_all
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.vocab.text import format_value, name_map

CPU_INFO = Path("/proc/cpuinfo")
LEVELS = ("normal", "debug")  # of telemetry that has the rates of a round
ROUNDS = 3
MIN_ROUNDS = 2  # the default and the fewest, the warm-up round included
DEFAULTS: Settings = {"rounds": ROUNDS, "engine": {"phase_profile": True}}
UNLABELLED_POINT = "as configured"  # the point without a grid
COLUMNS = name_map(  # heading -> measure
    "env-epochs/s=env_epochs_per_s, samples/s=samples_per_s, first round=warm_up_env_epochs_per_s, "
    "compile s=compile_s, graphs, fallbacks=graph_fallbacks, rolled back=rollbacks, peak "
    "MiB=peak_memory"
)
# prefix of measures of phases; numbers from INTEGER_FROM have no decimals
SHARE_PREFIX = "share_"
INTEGER_FROM = 100
PARSER = {
    "help": "measure how fast a configuration runs, and where its time goes",
    "description": "Run a few rounds of a configuration, given as for `train`, and print the "
    "rate, where the time goes, the time of compiling and the peak of memory. The first round is "
    "a warm-up and is reported separately. No run directory is written.",
    "usage": "morphogen bench [ppo|heuristic] [flags]",
    "epilog": f"""Settings are as in `morphogen train`; {ROUNDS} rounds unless --rounds or --set
says otherwise.

examples:
  morphogen bench --envs 8                                        the default run, with 8 hosts
  morphogen bench --grid envs=1,8,64 engine.compile=off,default   six measurements
  morphogen bench --task digits --rounds 6 --json x.json          five rounds, kept in a file

{arguments.POLICY_HELP}""",
    "formatter_class": argparse.RawDescriptionHelpFormatter,
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """Median over the runs, and half the range between the quartiles."""

    name: str
    value: float
    spread: float
    runs: int
    unit: str  # ratio, share, ms, ...


PointMeasures = dict[str, Measure]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench`."""
    rest = arguments.add_settings(arguments.add_policy(parser))
    grid = "measure every value of a field, as in envs=1,8,64; of several, every combination"
    rest.add_argument(
        "--grid", metavar="KEY=V1,V2", nargs="+", action="extend", default=[], help=grid
    )
    explain = "measure only how the convolutions can be computed, and print which way is chosen"
    either = rest.add_mutually_exclusive_group()
    either.add_argument(
        "--json",
        metavar="FILE",
        type=arguments.parse_path,
        help="also write the numbers to a new file",
    )
    either.add_argument("--explain", action="store_true", help=explain)


def run(args: Namespace) -> None:
    """Measure every point of the grid; print the measured points even after an error."""
    specs = expand_grid(args)
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    process.exit_on_signals()
    process.note_missing_kernels()
    if args.explain:
        for label, spec in specs.items():
            process.print_tables([(label or UNLABELLED_POINT, run_probe("explain", spec))])
        return
    points = {}
    try:
        for label, point in measure_points(specs, args.json):
            points[label] = point
            process.print_progress(format_point(label, point))
    finally:
        process.print_tables(point_tables(points).items())


def expand_grid(args: Namespace) -> dict[str, RunSpec]:
    """Return the resolved specs by their labels in the grid, "" without a grid.  Raises ConfigError
    with all faults.
    """
    axes = [_parse_axis(text) for text in args.grid]
    arguments.check_unique("--grid", [axis[0][0].partition("=")[0] for axis in axes])
    specs = {}
    faults = []
    for point in itertools.product(*axes):
        overrides = reduce(merge_settings, [settings for _, settings in point], {})
        try:
            spec = resolve(arguments.spec_from_args(args, defaults=DEFAULTS, overrides=overrides))
            if spec.rounds < MIN_ROUNDS:
                raise ConfigError(
                    f"rounds: expected >= {MIN_ROUNDS} with the warm-up, got {spec.rounds}"
                )
            if spec.telemetry.level not in LEVELS:
                limits = "telemetry: expected the level normal or debug to read the rates from"
                raise ConfigError(f"{limits}, got {spec.telemetry.level}")
            specs[",".join(text for text, _ in point)] = spec
        except ConfigError as error:
            faults += [line for line in str(error).splitlines() if line not in faults]
    raise_all(faults)
    return specs


def _parse_axis(text: str) -> list[tuple[str, Settings]]:
    """Return the points of an axis: `envs=1,8` -> [("envs=1", {"envs": 1}), ("envs=8", {"envs":
    8})].
    """
    path, equals, raw = text.partition("=")
    values: list[Any] = []
    if equals and raw and all(path.split(".")):
        try:
            values, faults = as_settings(parse_value(f"[{raw}]"), path)
        except ConfigError:  # words and numbers instead of JSON
            values = [arguments.parse_number(word) for word in raw.split(",")]
            faults = []
        raise_all(faults)
    if not values:
        raise ConfigError(
            f"--grid: expected KEY=V1,V2, as in envs=1,8 data.batch=16,32, got {format_value(text)}"
        )
    labels = [
        f"{path}={value if isinstance(value, str) else json.dumps(value)}" for value in values
    ]
    arguments.check_unique("--grid", labels)
    return [
        (label, nest_setting(path.split("."), value))
        for label, value in zip(labels, values, strict=True)
    ]


def run_probe(function: str, spec: RunSpec) -> Any:
    """Call a function of `probe` on a spec in a new process."""
    return process.run_in_process(
        "morphogen.cli.probe", function, spec, threads=spec.engine.threads
    )


def measure_points(
    specs: Mapping[str, RunSpec], path: Path | None
) -> Iterator[tuple[str, PointMeasures]]:
    """Yield every point after its measurement.  The file at `path` holds all points so far."""
    measures: list[Measure] = []
    checksums: dict[str, float] = {}
    for label, spec in specs.items():
        machine, checksums[label or UNLABELLED_POINT], rows = run_probe("probe", spec)
        measures += [replace(row, name=f"{row.name}[{label}]") if label else row for row in rows]
        if path is not None:
            write_measures(path, {**machine, "checksums": checksums}, measures)
        yield label or UNLABELLED_POINT, {row.name: row for row in rows}


def format_point(label: str, point: PointMeasures) -> str:
    """Format a point in one line."""
    rate = point["env_epochs_per_s"]
    compiled = point["compile_s"]
    memory = f", peak {point['peak_memory'].value:,.0f} MiB" if "peak_memory" in point else ""
    times = (
        f"{rate.value:,.1f} +- {rate.spread:,.1f} env-epochs/s, compiled for "
        f"{compiled.value:,.1f} s"
    )
    return f"{label}: {times}{memory}"


def point_tables(points: Mapping[str, PointMeasures]) -> dict[str, list[Row]]:
    """Return rows by title: rates and sizes, then the shares of phases; no rows without points."""
    numbers = []
    shares = []
    for label, point in points.items():
        cells = {
            heading: _round_large(point[name].value) if name in point else None
            for heading, name in COLUMNS.items()
        }
        spread = _round_large(point["env_epochs_per_s"].spread)
        numbers.append(
            {"point": label, "env-epochs/s": cells["env-epochs/s"], "+-": spread, **cells}
        )
        if "control_share" in point:
            phases = [name for name in point if name.startswith(SHARE_PREFIX)]
            values = {name.removeprefix(SHARE_PREFIX): point[name].value for name in phases}
            shares.append({"point": label, "control": point["control_share"].value, **values})
    return {"medians over the rounds after the first": numbers, "share of a round": shares}


def _round_large(value: float) -> float | int:
    return round(value) if value >= INTEGER_FROM or value == int(value) else value


def median_measure(name: str, values: Sequence[float], unit: str) -> Measure:
    """Return the median of values and half their quartile range."""
    low, _, high = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else (values[0],) * 3
    )
    return Measure(name, statistics.median(values), (high - low) / 2, len(values), unit)


def machine_facts(*, device: str, threads: int) -> dict[str, Any]:
    """Return machine, versions and settings of a measurement."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kernels = import_module("morphogen.kernels")
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "tensordict", "torchrl")},
        "kernels": kernels.AVAILABLE,
        "convolutions": kernels.CAN_CONVOLVE,  # by a kernel too
    }


def write_measures(path: Path, facts: Mapping[str, Any], measures: Iterable[Measure]) -> None:
    """Write machine and table as JSON; an existing file is replaced atomically.

    facts: of the machine, with checksums of the computed results.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    process.write_json(path, {"machine": facts, "measures": [asdict(row) for row in measures]})
