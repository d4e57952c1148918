"""Command `morphogen`: parser of all commands, exit codes and errors."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any, NoReturn

from morphogen.cli import process, streams
from morphogen.cli.command_table import list_commands
from morphogen.cli.process import EXITS
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_choice, format_value, suggest

INTERRUPTED = 130
IMPORT = (
    "Python file, or dotted name of a module, that registers parts of your own; may be repeated"
)


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse; a command refuses unknown arguments itself, so that the error names its own
        help.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = suggest(unknown[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice of an argument, and name the closest one."""
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            fault = f"expected one of {', '.join(known)}, got {format_choice(value, known)}"
            raise argparse.ArgumentError(action, fault)

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError for wrong usage."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def run_process() -> int:
    """Run the command of this process; return the exit code.

    Nobody needs to watch: a stream that is closed, full or broken does not stop the command.  Child
    processes take no modules from the working directory.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    streams.guard_streams()
    try:
        code = main(sys.argv[1:])
    except SystemExit as end:  # of --help, or of a signal
        code = end.code if isinstance(end.code, int) else 0
    return process.finish(code)


def main(argv: Sequence[str]) -> int:
    """Run one command; return the exit code.  Errors of the user are lines on stderr, without a
    traceback.
    """
    words = list(argv)
    try:
        args = parse_args(words, metadata.version("morphogen"))
        args.command_line = shlex.join(["morphogen", *words])
        for name in args.imports:
            import_module("morphogen.config.part_files").import_parts(name)
        code = args.execute(args)
    except tuple(EXITS) as error:
        process.print_error(error)
        return process.exit_code(error)
    except KeyboardInterrupt:
        print("morphogen: stopped", file=sys.stderr)
        return INTERRUPTED
    return code or 0


def build_parser(version: str, command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; only `command` has its flags, so that no other module is imported.

    Without a command, all of them have their flags.
    """
    top = _Parser(
        prog="morphogen",
        allow_abbrev=False,
        description="Train a controller that grows neural networks: it germinates, blends, keeps "
        "or prunes seeds.",
    )
    top.add_argument("--version", action="version", version=f"morphogen {version}")
    parsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (text, place) in list_commands().items():
        if command not in (name, None):
            parsers.add_parser(name, help=text)
            continue
        module = import_module(place)
        parser = parsers.add_parser(name, help=text, **module.PARSER, allow_abbrev=False)
        module.add_arguments(parser)
        parser.set_defaults(execute=module.run)
        parser.add_argument(
            "--import", dest="imports", metavar="FILE", action="append", default=[], help=IMPORT
        )
    return top


def parse_args(argv: Sequence[str], version: str) -> argparse.Namespace:
    """Return the parsed command line; `named` is True if `ppo` or `heuristic` is written out."""
    for i, word in enumerate(argv, 1):
        # argparse drops a bare -- after an equals sign
        if not word.isprintable() or (word.startswith("-") and word.endswith("=--")):
            raise ConfigError(
                f"argument {i}: expected printable text and no bare -- as a value, got "
                f"{format_value(word)}"
            )
    words = list(argv)
    named = len(words) > 1 and not words[1].startswith("-")
    if words[:1] == ["train"] and not named:
        words.insert(1, "ppo")
    args = build_parser(version, words[0] if words else "").parse_args(words)
    args.named = named
    return args
