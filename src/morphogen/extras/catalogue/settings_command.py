"""Command `config`: explain the settings of a run."""

import argparse
import json
import sys
from argparse import Namespace
from functools import reduce
from typing import Any

from morphogen.cli import arguments, process, setting_flags
from morphogen.config.reference import Setting, list_settings
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.extras.catalogue.settings_page import render_page
from morphogen.vocab.text import format_choice

_CHOICES = ("preset", "task")  # flags that decide the values
PARSER = {
    "description": "Explain one setting (ppo.clip), a group of settings (ppo), or all of them: "
    "the default of the field, and the value that `morphogen train` uses, with --preset or "
    "--task the one under these.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `config`."""
    parser.set_defaults(config=None, set=[])
    parser.add_argument(
        "field", metavar="FIELD", nargs="?", default="", help="setting or group (default: all)"
    )
    setting_flags.add_flags(parser, [flag for flag in setting_flags.FLAGS if flag.path in _CHOICES])
    form = parser.add_mutually_exclusive_group()
    arguments.add_json(form)
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print a page: name, default, allowed values and meaning, a table per group",
    )


def run(args: Namespace) -> None:
    """Print the settings of a name: one with all its facts, several as a table."""
    settings = find_settings(args.field)
    if args.markdown:
        print_page(settings, args)
        return
    spec = resolve(setting_flags.spec_from_args(args))
    rows = [explain(setting, spec) for setting in settings]
    if args.json:
        process.print_json(rows)
        return
    words = [f" --{name} {vars(args)[name]}" for name in _CHOICES if vars(args)[name] is not None]
    title = f"{len(rows)} settings; value: as in `morphogen train{''.join(words)}`"
    shown = [
        {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in row.items()}
        for row in rows
    ]
    if len(rows) == 1:
        lines = [f"{name:<9}{fact}\n" for name, fact in shown[0].items()]
        sys.stdout.write("".join(lines))
    else:
        columns = ("setting", "default", "value", "meaning")
        process.print_tables([(title, [{name: row[name] for name in columns} for row in shown])])


def print_page(settings: list[Setting], args: Namespace) -> None:
    """Print settings as Markdown.  Raises ConfigError for flags that decide the values."""
    flags = [f"--{name}" for name in _CHOICES if vars(args)[name] is not None]
    if flags:
        raise ConfigError(f"--markdown: expected without {flags[0]}, because it prints defaults")
    sys.stdout.write(render_page(settings))


def find_settings(name: str) -> list[Setting]:
    """Return the settings of a name: one, all of a group, or all for "".  Raises ConfigError for
    an unknown name.
    """
    settings = list(list_settings())
    found = [each for each in settings if not name or f"{each.path}.".startswith(f"{name}.")]
    if not found:
        got = format_choice(name, [each.path for each in settings])
        raise ConfigError(f"setting: expected one that `morphogen config` lists, got {got}")
    return found


def explain(setting: Setting, spec: RunSpec) -> dict[str, Any]:
    """Return the facts about a setting, with its value in a spec."""
    flags = [flag.name for flag in setting_flags.FLAGS if flag.path == setting.path]
    return {
        "setting": setting.path,
        "meaning": setting.meaning,
        "allowed": setting.allowed,
        "default": setting.default,
        "value": reduce(getattr, setting.path.split("."), spec),
        "set by": ", ".join([*flags, f"--set {setting.path}=VALUE"]),
    }
