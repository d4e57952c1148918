"""Launchers: what runs the body of a command, in this process or in several that share the work.

An extra registers a launcher of its own at the entry point `morphogen.launchers`.  Loads no torch.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from morphogen.config.spec import RunSpec

if TYPE_CHECKING:  # it loads torch
    from morphogen.ppo.exchange import Exchange

ENTRY_POINTS = "morphogen.launchers"
Body = Callable[["Exchange"], int | None]  # of a command; returns its exit code


class Launcher:
    """Launcher of commands in this process alone; the base of all others."""

    def add_flag(self, parser: ArgumentParser) -> None:
        """Add the flag for the number of processes to a command without the settings of a run."""

    def read_flag(self, args: Namespace, spec: RunSpec) -> RunSpec:
        """Return the spec with the number of processes of that flag."""
        del args
        return spec

    def restarts(self) -> tuple[int, int]:
        """Return how often this process was restarted, and how often it may be."""
        return 0, 0

    def check(self, spec: RunSpec) -> None:
        """Raise a ConfigError that `launch` would raise for a run."""

    def launch(
        self, spec: RunSpec, command_line: str, body: Body, *, trains: bool = False
    ) -> int | None:
        """Run the body of a command; return its exit code.

        Args:
            spec: resolved.
            command_line: of the command.
            body: called with the exchange between the processes.
            trains: whether the processes share the envs of a run; else they share episodes.
        """
        del spec, command_line, trains
        return body(import_module("morphogen.ppo.exchange").ALONE)


@cache
def find_launcher() -> Launcher:
    """Return the registered launcher; without one, the launcher of this process alone."""
    points = metadata.entry_points(group=ENTRY_POINTS)
    return next((point.load()() for point in points), Launcher())
