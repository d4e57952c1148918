"""Flags of the command line, taken from the fields of the config, and the settings that they
make.
"""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from morphogen.cli import arguments
from morphogen.config.config_files import build_spec, nest_setting, parse_assignment, parse_settings
from morphogen.config.fields import GROUPS, Names, Settings, merge_settings, unwrap
from morphogen.config.files import error_line, read_text
from morphogen.config.reference import Setting, list_settings
from morphogen.config.spec import RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError

FLAGS: tuple[Setting, ...] = tuple(setting for setting in list_settings() if setting.flag)


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


def add_flags(parser: ArgumentParser, settings: Sequence[Setting]) -> None:
    """Add the flags of settings in their groups."""
    # groups without flags are not printed
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for setting in settings:
        if (flag := setting.flag) is not None:
            options = _value_options(setting.field, flag.value)
            groups[flag.group].add_argument(
                flag.name, dest=setting.path, help=setting.meaning, **options
            )


def _value_options(field: FieldInfo, value: str) -> dict[str, Any]:
    if field.annotation is bool:
        return {"action": "store_const", "const": not field.default}
    options: dict[str, Any] = {"metavar": value}
    kind, marks = unwrap(field.annotation, field.metadata)
    names = next((mark for mark in marks if isinstance(mark, Names)), None)
    if names is not None and names.most is None:
        options["nargs"] = "+"
    elif names is not None:
        options["type"] = lambda text: text.split(",")
    elif kind in (int, float):
        options["type"] = arguments.parse_number
    return options


def flag_settings(args: Namespace) -> Settings:
    """Return the settings of `--set` and of the flags in use."""
    values = vars(args)
    layers = [
        nest_setting(setting.path.split("."), values[setting.path])
        for setting in FLAGS
        if values.get(setting.path) is not None
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
