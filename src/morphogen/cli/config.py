"""Command `config`: explain the settings of a run."""

import argparse
import json
from argparse import Namespace
from difflib import get_close_matches
from functools import reduce
from typing import Any

from morphogen.cli import arguments, process
from morphogen.config.reference import Setting, list_settings
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

_CHOICES = ("preset", "task")  # flags that decide the values
PARSER = {
    "help": "explain settings: meaning, allowed values, default, value",
    "description": "Explain one setting (ppo.clip), a group of settings (ppo), or all of them: "
    "the default of the field, and the value that `morphogen train` uses, with --preset or "
    "--task the one under these.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `config`."""
    parser.set_defaults(who="ppo", policy=None, config=None, set=[])
    parser.add_argument(
        "field", metavar="FIELD", nargs="?", default="", help="setting or group (default: all)"
    )
    arguments.add_flags(parser, [flag for flag in arguments.FLAGS if flag.path in _CHOICES])
    parser.add_argument("--json", **arguments.JSON)


def run(args: Namespace) -> None:
    """Print the settings of a name."""
    settings = find_settings(args.field)
    spec = resolve(arguments.spec_from_args(args))
    words = [f"--{name} {vars(args)[name]}" for name in _CHOICES if vars(args)[name] is not None]
    source = " ".join(["morphogen train", *words])
    if args.json:
        process.print_json(
            [{**setting._asdict(), "value": find_value(spec, setting.path)} for setting in settings]
        )
    elif len(settings) == 1:
        for name, text in explain(settings[0], spec, source).items():
            print(f"{name:<9}{text}")
    else:
        rows = [
            {
                "setting": row.path,
                "default": show_value(row.default),
                "value": show_value(find_value(spec, row.path)),
                "meaning": row.meaning,
            }
            for row in settings
        ]
        process.print_tables([(f"{len(rows)} settings; value: as in `{source}`", rows)])


def find_settings(name: str) -> list[Setting]:
    """Return the settings of a name: one, all of a group, or all for "".  Raises ConfigError for
    an unknown name.
    """
    settings = list(list_settings())
    found = [
        setting for setting in settings if f"{setting.path}.".startswith(f"{name}." if name else "")
    ]
    if not found:
        paths = [setting.path for setting in settings]
        known = sorted({*paths, *(path.rpartition(".")[0] for path in paths if "." in path)})
        ends = [path for path in paths if path.rpartition(".")[2] == name]
        close = ends or get_close_matches(name, known, n=3) or ["one that `morphogen config` lists"]
        raise ConfigError(f"setting: expected {' or '.join(close)}, got {format_value(name)}")
    return found


def find_value(spec: RunSpec, path: str) -> Any:
    """Return the value of a setting, such as `ppo.clip`."""
    return reduce(getattr, path.split("."), spec)


def explain(setting: Setting, spec: RunSpec, source: str) -> dict[str, str]:
    """Lines about one setting.  source: the command that runs `spec`."""
    flags = [setting.flag] if setting.flag else []
    return {
        "setting": setting.path,
        "meaning": setting.meaning,
        "allowed": setting.allowed,
        "default": show_value(setting.default),
        "value": f"{show_value(find_value(spec, setting.path))} in `{source}`",
        "set by": ", ".join([*flags, f"--set {setting.path}=VALUE"]),
    }


def show_value(value: Any) -> str:
    """Show a value as in a config file."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
