"""Commands by name: the line of each in the help, and the module that runs it."""

import contextlib
from importlib import metadata
from typing import NamedTuple


class Command(NamedTuple):
    """A command, as packages offer it at the entry points `morphogen.commands`.

    The module is imported when the command is used.  It has `PARSER`, the other texts of its help,
    `add_arguments(parser)`, and `run(args)`, which returns an exit code or None.
    """

    help: str
    module: str


COMMANDS = {
    "train": Command("train a policy, or run a baseline on the same path", "morphogen.cli.train"),
    "resume": Command(
        "resume a run that was stopped or killed, or add rounds", "morphogen.cli.resume"
    ),
}


def list_commands() -> dict[str, Command]:
    """Return the commands of this package, then of extras and other packages.

    A faulty package offers no command, because it must not stop the others.
    """
    offered: dict[str, Command] = {}
    for point in metadata.entry_points(group="morphogen.commands"):
        with contextlib.suppress(Exception):
            command = point.load()
            if isinstance(command, Command):
                offered[point.name] = command
    return COMMANDS | offered | COMMANDS  # no package replaces a command
