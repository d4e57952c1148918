"""Values of flags, and flags that several commands share.  Loads no config."""

import contextlib
from argparse import ArgumentParser, ArgumentTypeError, _ArgumentGroup
from pathlib import Path

from morphogen.errors import ConfigError
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_value

MAX_SEED = 2**63 - 1
MAX_EPISODES = 10_000  # held-out episodes of an arm
NEW_RUN = "run directory, new or empty"
QUIET = "no progress, only the closing table"
Flags = ArgumentParser | _ArgumentGroup


def add_json(flags: Flags) -> None:
    """Add the flag for one JSON document in place of text."""
    text = "print one JSON document, and nothing else on stdout"
    flags.add_argument("--json", action="store_true", help=text)


def add_json_file(flags: Flags) -> None:
    """Add the flag for a JSON file."""
    text = "write the numbers to a new file too"
    flags.add_argument("--json", metavar="FILE", type=parse_path, help=text)


def add_set(flags: Flags) -> None:
    """Add the flag for settings without a flag of their own."""
    text = "any field; the value is JSON"
    flags.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=text)


def parse_path(text: str) -> Path:
    """Return the path in `text`, for argparse, which takes the sentence of an ArgumentTypeError
    only.
    """
    try:
        return expand_path(text)
    except ConfigError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_number(text: str) -> int | float | str:
    """Return the number in `text`; any other text stays text, and the field refuses it."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def parse_int_flag(flag: str, text: str, low: int, high: int = 1_000_000) -> int:
    """Return the integer of a flag that is no setting.  Raises ConfigError unless it is in low ..
    high.
    """
    number = parse_number(text)
    if not isinstance(number, int) or not low <= number <= high:
        raise ConfigError(
            f"{flag}: expected an integer in {low} .. {high}, got {format_value(number)}"
        )
    return number
