"""Flags of the command line that set fields of the config, and the settings that they make."""

import json
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Iterable
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from morphogen.cli import arguments
from morphogen.config.config_files import build_spec, nest_setting, parse_assignment, parse_settings
from morphogen.config.fields import Settings, merge_settings
from morphogen.config.files import error_line, read_text
from morphogen.config.reference import list_settings
from morphogen.config.registry import extra_parts
from morphogen.config.spec import RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError


class Flag(NamedTuple):
    """Flag of the command line that sets a field."""

    name: str
    group: str  # title in help texts
    path: str  # of the field: `ppo.clip`
    options: dict[str, Any]


def _read_table() -> dict[str, Settings]:
    """Return options of `ArgumentParser.add_argument`, by title of a group and name of a flag; the
    flags of extras are last.
    """
    table = json.loads(Path(__file__).with_name("flags.json").read_bytes())
    for path, group in extra_parts("morphogen.settings").items():
        for field in fields(group) if group.FLAGS else ():
            options = {"dest": f"{path}.{field.name}", "metavar": field.name.upper()}
            options |= {"nargs": "+"} if isinstance(field.default, tuple) else {}
            table[group.FLAGS][f"--{path.rpartition('.')[2]}-{field.name}"] = options
    return table


_TABLE = _read_table()
FLAGS = [
    Flag(name, group, options["dest"], options)
    for group, flags in _TABLE.items()
    for name, options in flags.items()
]


def add_settings(parser: ArgumentParser) -> _ArgumentGroup:
    """Add flags and files that make a config; return the group for further flags."""
    add_flags(parser, FLAGS)
    rest = parser.add_argument_group("settings and output")
    rest.add_argument(
        "--config",
        metavar="FILE",
        type=arguments.parse_path,
        help="JSON file with settings, as config.json of a run",
    )
    arguments.add_set(rest)
    return rest


def add_flags(parser: ArgumentParser, flags: Iterable[Flag]) -> None:
    """Add flags in their groups; the docstring of a field is the help of its flag."""
    parser.register("type", "number", arguments.parse_number)
    parser.register("type", "list", lambda text: text.split(","))
    meanings = {setting.path: setting.meaning for setting in list_settings()}
    # groups without flags are not printed
    groups = {title: parser.add_argument_group(title) for title in _TABLE}
    for flag in flags:
        groups[flag.group].add_argument(flag.name, help=meanings[flag.path], **flag.options)


def flag_settings(args: Namespace) -> Settings:
    """Return the settings of `--set` and of the flags in use."""
    values = vars(args)
    layers = [
        nest_setting(flag.path.split("."), values[flag.path])
        for flag in FLAGS
        if values.get(flag.path) is not None
    ]
    return reduce(merge_settings, [*map(parse_assignment, args.set), *layers], {})


def spec_from_args(args: Namespace, *, overrides: Settings | None = None) -> RunSpec:
    """Return the spec of a command line: defaults < preset < file < flags < `overrides`."""
    flags = merge_settings(flag_settings(args), overrides or {})
    settings = _read_config(args.config) if args.config else {}
    bare = args.config is None and "preset" not in flags and "task" not in flags
    base: Settings = {"preset": DEFAULT_PRESET} if bare else {}
    return build_spec(base, settings, flags)


def _read_config(path: Path) -> Settings:
    """Return the settings of a config file.  Raises ConfigError for an unreadable file."""
    try:
        return parse_settings(read_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--config: expected a readable file, got {path}: {error_line(error)}"
        ) from None
    except ConfigError as error:
        raise ConfigError(f"--config: {path}: {error}") from None
