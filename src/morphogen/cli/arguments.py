"""Flags of the command line, taken from the fields of the config, and the settings that they
make.
"""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic.fields import FieldInfo

from morphogen.config.config_files import build_spec, nest_setting, parse_assignment, parse_settings
from morphogen.config.fields import (
    GROUPS,
    Names,
    OneOf,
    Settings,
    check_flag,
    fields_of,
    merge_settings,
    raise_all,
)
from morphogen.config.files import read_text
from morphogen.config.parts import POLICIES
from morphogen.config.spec import POLICY_MEANINGS, SCHEDULE_FILE, RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import format_value

_INTEGER = re.compile("[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
MAX_SEED = 2**63 - 1
MAX_EPISODES = 10_000  # MAX_EPISODES: held-out episodes of an arm
POLICY_HELP = f"""policies of heuristic:
{chr(10).join(f"  {name:<14}{text}" for name, text in POLICY_MEANINGS.items() if name != "ppo")}
  {SCHEDULE_FILE + "FILE":<14}a JSON file that declares which action is taken in which epoch"""
NEW_RUN = "run directory, new or empty"
QUIET = "no progress, only the closing table"
JSON: dict[str, Any] = {
    "action": "store_true",
    "help": "print one JSON document, and nothing else on stdout",
}
SET_HELP = "any field; the value is JSON"
# the flag --set
SET: dict[str, Any] = {"metavar": "KEY=VALUE", "action": "append", "default": [], "help": SET_HELP}


class CommandFlag(NamedTuple):
    """A flag, the config field that it sets, and its help."""

    name: str
    path: str
    group: str
    text: str
    options: dict[str, Any]  # of argparse, for the value


def _list_flags(kind: Any, above: str = "") -> Iterator[CommandFlag]:
    for name, info in fields_of(kind).items():
        path = f"{above}{name}"
        extra = info.json_schema_extra
        if hasattr(info.annotation, "PATH"):
            yield from _list_flags(info.annotation, f"{path}.")
        elif isinstance(extra, dict) and extra["flag"]:
            options = {"metavar": extra["value"], **_value_options(info)}
            yield CommandFlag(
                str(extra["flag"]), path, str(extra["group"]), str(info.description), options
            )


def _value_options(info: FieldInfo) -> dict[str, Any]:
    if info.annotation is bool:
        return {"action": "store_const", "const": not info.default}
    names = next((mark for mark in info.metadata if isinstance(mark, Names)), None)
    if names is not None:
        return {"nargs": "+"} if names.most is None else {"type": lambda text: text.split(",")}
    kinds = get_args(info.annotation) or (info.annotation,)
    return (
        {"type": parse_number} if getattr(kinds[0], "__origin__", kinds[0]) in (int, float) else {}
    )


def add_policy(parser: ArgumentParser) -> ArgumentParser:
    """Add the choice of the policy; return the parser."""
    parser.add_argument(
        "who", choices=("ppo", "heuristic"), metavar="ppo|heuristic", help="default: ppo"
    )
    parser.add_argument(
        "--policy", metavar="NAME", help="with heuristic: another baseline or a schedule, see below"
    )
    return parser


def add_settings(parser: ArgumentParser) -> _ArgumentGroup:
    """Add flags and files that make a config; return the group for further flags."""
    add_flags(parser, FLAGS)
    rest = parser.add_argument_group("settings and output")
    rest.add_argument(
        "--config",
        metavar="FILE",
        type=parse_path,
        help="JSON file with settings, as config.json of a run",
    )
    rest.add_argument("--set", **SET)
    return rest


def add_flags(parser: ArgumentParser, flags: Sequence[CommandFlag]) -> None:
    """Add flags in their groups."""
    groups = {
        name: parser.add_argument_group(name)
        for name in GROUPS
        if name in {flag.group for flag in flags}
    }
    for flag in flags:
        groups[flag.group].add_argument(flag.name, dest=flag.path, help=flag.text, **flag.options)


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
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


FLAGS: tuple[CommandFlag, ...] = tuple(_list_flags(RunSpec))


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


def check_unique(flag: str, names: Sequence[str]) -> None:
    """Raise a ConfigError for every name that occurs twice."""
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    raise_all(
        [f"{flag}: expected every name once, got {format_value(name)} twice" for name in repeated]
    )


def flag_settings(args: Namespace) -> Settings:
    """Return the settings of `--set` and of the flags in use."""
    values = vars(args)
    layers = [
        nest_setting(path.split("."), values[path])
        for _, path, *_ in FLAGS
        if values.get(path) is not None
    ]
    return reduce(merge_settings, [*map(parse_assignment, args.set), *layers], {})


def spec_from_args(
    args: Namespace, *, defaults: Settings | None = None, overrides: Settings | None = None
) -> RunSpec:
    """Return the spec of a command line: defaults < preset < file < `defaults` < flags <
    `overrides`.
    """
    policy = _choose_policy(args)
    flags = reduce(merge_settings, [flag_settings(args), policy, overrides or {}])
    settings, faults = _read_config(args.config) if args.config else ({}, [])
    bare = args.config is None and "preset" not in flags and "task" not in flags
    base: Settings = {"preset": DEFAULT_PRESET} if bare else {}
    return build_spec(base, settings, defaults or {}, flags, faults=faults)


def _choose_policy(args: Namespace) -> Settings:
    """Return the setting of the policy that a command line names, if it names one."""
    if args.policy is None:
        return {"policy_name": args.who} if args.named or args.who != "ppo" else {}
    faults = []
    if args.who == "ppo":
        usage = f"`morphogen {args.command} heuristic --policy NAME`"
        faults = [f"--policy: expected {usage}, got ppo and {format_value(args.policy)}"]
    try:
        check_flag("--policy", args.policy, OneOf(POLICIES, SCHEDULE_FILE))
    except ConfigError as error:
        faults.append(str(error))
    raise_all(faults)
    return {"policy_name": args.policy}


def _read_config(path: Path) -> tuple[Settings, list[str]]:
    """Return the settings of a config file and its faults.  Raises ConfigError for an unreadable
    file.
    """
    try:
        return parse_settings(read_text(path))
    except OSError as error:
        raise ConfigError(
            f"--config: expected a readable file, got {path}: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config: expected UTF-8 text, got {path}") from None
    except ConfigError as error:
        raise ConfigError(f"--config: {path}: {error}") from None
