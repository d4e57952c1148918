"""Command `config`: explain the settings of a run."""

import argparse
import json
import sys
from argparse import Namespace
from difflib import get_close_matches
from typing import Any

from morphogen.cli import process
from morphogen.config.reference import Setting, list_settings
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

PARSER = {
    "help": "explain settings: meaning, allowed values, default",
    "description": "Explain one setting (ppo.clip), a group of settings (ppo), or all of them.",
    "epilog": "Defaults are those of the class; presets and tasks may set others: `morphogen train --print-config`.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `config`."""
    parser.add_argument("field", metavar="FIELD", nargs="?", default="", help="setting or group (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> None:
    """Print the settings of a name."""
    settings = find_settings(args.field)
    if args.json:
        rows = [setting._asdict() for setting in settings]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    elif len(settings) == 1:
        for name, text in explain(settings[0]).items():
            print(f"{name:<9}{text}")
    else:
        rows = [{"setting": row.path, "default": show_value(row.default), "meaning": row.meaning} for row in settings]
        process.print_tables([(f"{len(rows)} settings", rows)])


def find_settings(name: str) -> list[Setting]:
    """Return the settings of a name: one, those of a group, or all for "".  Raises ConfigError for an unknown name."""
    settings = list(list_settings())
    found = [setting for setting in settings if f"{setting.path}.".startswith(f"{name}." if name else "")]
    if not found:
        paths = [setting.path for setting in settings]
        known = sorted({*paths, *(path.rpartition(".")[0] for path in paths if "." in path)})
        ends = [path for path in paths if path.rpartition(".")[2] == name]
        close = ends or get_close_matches(name, known, n=3) or ["one that `morphogen config` lists"]
        raise ConfigError(f"setting: expected {' or '.join(close)}, got {format_value(name)}")
    return found


def explain(setting: Setting) -> dict[str, str]:
    """Lines about one setting."""
    flags = [setting.flag] if setting.flag else []
    return {
        "setting": setting.path,
        "meaning": setting.meaning,
        "allowed": setting.allowed,
        "default": show_value(setting.default),
        "set by": ", ".join([*flags, f"--set {setting.path}=VALUE"]),
    }


def show_value(value: Any) -> str:
    """Show a default as in a config file."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)
