"""Grids of configurations: `--grid envs=1,8 engine.compile=off,default` is every combination of the values."""

import itertools
import json
from argparse import Namespace
from collections.abc import Sequence
from functools import reduce
from typing import Any

from morphogen.cli import options
from morphogen.config.config_files import as_settings, parse_value
from morphogen.config.fields import Settings, merge_settings, raise_all
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

GRID_DEFAULTS: Settings = {
    "rounds": options.BENCH_ROUNDS,
    "engine": {"phase_profile": True},
}  # where no flag says otherwise
MIN_ROUNDS = 2  # rounds: the first one warms up
GridAxis = list[tuple[str, Settings]]  # `envs=8`, {"envs": 8}


def expand_grid(args: Namespace) -> dict[str, RunSpec]:
    """Return the resolved specs by their labels in the grid, "" without a grid.  Raises ConfigError with all faults."""
    axes = [_parse_axis(text) for text in args.grid]
    _check_unique([axis[0][0].partition("=")[0] for axis in axes])
    found, faults = {}, []
    for place in itertools.product(*axes):
        try:
            found[",".join(text for text, _ in place)] = _resolve_point(args, [settings for _, settings in place])
        except ConfigError as error:
            faults += [line for line in str(error).splitlines() if line not in faults]
    raise_all(faults)
    return found


def _resolve_point(args: Namespace, settings: Sequence[Settings]) -> RunSpec:
    spec = resolve(options.spec_from_args(args, defaults=GRID_DEFAULTS, overrides=reduce(merge_settings, settings, {})))
    if spec.rounds < MIN_ROUNDS:
        raise ConfigError(f"rounds is {spec.rounds}; want >= {MIN_ROUNDS} to measure, of which the first one warms up")
    return spec


def _parse_axis(text: str) -> GridAxis:
    path, equals, raw = text.partition("=")
    values = _parse_values(path, raw) if equals and raw and all(path.split(".")) else []
    if not values:
        raise ConfigError(f"--grid is {format_value(text)}; want KEY=V1,V2, as in --grid envs=1,8 data.batch=16,32")
    axis = [(f"{path}={_format_value(value)}", options.nest_setting(path, value)) for value in values]
    _check_unique([label for label, _ in axis])
    return axis


def _parse_values(path: str, raw: str) -> list[Any]:
    """Split values at commas: JSON values, or else words and numbers."""
    try:
        values, found = as_settings(parse_value(f"[{raw}]"), path)
    except ConfigError:
        return [options.parse_number(word) for word in raw.split(",")]
    raise_all(found)
    return values


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_unique(names: Sequence[str]) -> None:
    raise_all([f"--grid has {name} twice; want it once" for name in dict.fromkeys(names) if names.count(name) > 1])
