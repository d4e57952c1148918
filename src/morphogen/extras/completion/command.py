"""Command `completion`: a script with which a shell completes commands, flags, names and paths (by
shtab).
"""

import argparse
import importlib.util
import sys
from argparse import Namespace
from importlib import import_module

from morphogen.config.parts import POLICIES
from morphogen.config.reference import list_settings
from morphogen.errors import ConfigError

SHELLS = ("bash", "zsh", "fish", "tcsh")
EXTRA = "completion"
# by the names of values in help texts
_FOLDERS = ("DIR", "RUN_DIR", "RUN")
_FILES = ("FILE", "PATH", "SIDE")
PARSER = {
    "description": "Print a script with which a shell completes commands, flags, names of tasks, "
    "presets, rules and settings, and paths. It holds the names that are known when it is made. "
    "Needs the extra morphogen[completion].",
    "epilog": """examples:
  eval "$(morphogen completion bash)"                                     in ~/.bashrc
  morphogen completion zsh > ~/.zfunc/_morphogen                          a folder of $fpath
  morphogen completion fish > ~/.config/fish/completions/morphogen.fish""",
    "formatter_class": argparse.RawDescriptionHelpFormatter,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: Namespace) -> None:
    """Print the script of a shell."""
    if importlib.util.find_spec("shtab") is None:
        raise ConfigError(f"morphogen completion needs shtab: pip install 'morphogen[{EXTRA}]'")
    shtab = import_module("shtab")
    parser = import_module("morphogen.cli.main").build_parser("")
    settings = list(list_settings())
    names = {setting.path: setting.names for setting in settings}
    names |= {"policy": list(POLICIES), "field": [setting.path for setting in settings]}
    [commands] = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for action in (action for command in commands.choices.values() for action in command._actions):
        if names.get(action.dest):
            action.choices = names[action.dest]
        elif action.metavar in (*_FOLDERS, *_FILES):
            action.complete = shtab.DIRECTORY if action.metavar in _FOLDERS else shtab.FILE
    sys.stdout.write(shtab.complete(parser, args.shell) + "\n")
