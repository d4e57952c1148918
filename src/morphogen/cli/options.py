"""The flags of the command line, taken from the fields of the config, and the settings that they make."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from morphogen.config.config_files import build_spec, merge_layers, parse_assignment, parse_settings
from morphogen.config.fields import Names, OneOf, Settings, check_flag, fields_of, merge_settings, to_settings
from morphogen.config.preset import DEFAULT_PRESET
from morphogen.config.spec import BASELINES, SCHEDULE_FILE, RunSpec
from morphogen.errors import ConfigError
from morphogen.storage.safe_read import read_bytes
from morphogen.vocab.text import format_value

_WHOLE = re.compile("[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class CommandFlag:
    """A flag, the config field that it sets, and its help."""

    name: str
    path: str
    kind: str  # word, number, words, one (a list of one), on and off (no value: true, false)
    value: str  # name of the value in the help
    group: str
    text: str


MAX_SEED, MAX_EPISODES = 2**63 - 1, 10_000  # the last seed; most held-out episodes of an arm
BENCH_ROUNDS = 3  # that a benchmark runs, the warm-up included


def _list_flags(kind: type, above: str = "") -> Iterator[CommandFlag]:
    for name, info in fields_of(kind).items():
        path, extra = f"{above}{name}", info.json_schema_extra
        if hasattr(info.annotation, "PATH"):
            yield from _list_flags(info.annotation, f"{path}.")
        elif isinstance(extra, dict) and extra["flag"]:
            texts = {key: str(extra[key]) for key in ("value", "group")}
            yield CommandFlag(str(extra["flag"]), path, _flag_kind(info), text=str(info.description), **texts)


def _flag_kind(info: FieldInfo) -> str:
    if info.annotation is bool:
        return "off" if info.default else "on"
    names = next((mark for mark in info.metadata if isinstance(mark, Names)), None)
    if names is not None:
        return "one" if names.most == 1 else "words"
    kinds = get_args(info.annotation) or (info.annotation,)
    return "number" if getattr(kinds[0], "__origin__", kinds[0]) in (int, float) else "word"


FLAGS: tuple[CommandFlag, ...] = tuple(_list_flags(RunSpec))


def parse_number(text: str) -> int | float | str:
    """The number that is written there; what is none stays text and is refused with its field."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


def parse_int_flag(flag: str, text: str, low: int, high: int = 1_000_000) -> int:
    """The number that a flag which is no setting was given; a ConfigError where it is none, or not in low .. high."""
    number = parse_number(text)
    if not isinstance(number, int) or not low <= number <= high:
        raise ConfigError(f"{flag}: expected an integer in {low} .. {high}, got {format_value(number)}")
    return number


_READ = {
    "word": str,
    "number": parse_number,
    "words": list,
    "one": lambda text: [text],
    "on": lambda text: True,
    "off": lambda text: False,
}


def flag_settings(args: argparse.Namespace) -> Settings:
    """The settings that the given flags make; a flag that was not given sets nothing."""
    layers = [parse_assignment(text) for text in args.set]
    values = vars(args)
    for flag in FLAGS:
        if values.get(flag.path) is not None:
            layers.append(nest_setting(flag.path, _READ[flag.kind](values[flag.path])))
    return reduce(merge_settings, layers, {})


def nest_setting(key: str, value: Any) -> Settings:
    """`ppo.clip`, 0.1 -> {"ppo": {"clip": 0.1}}."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def _policy_settings(args: argparse.Namespace) -> Settings:
    if args.who == "ppo":
        if args.policy is not None:
            raise ConfigError(f"--policy is {args.policy!r}; it goes with `morphogen train heuristic`")
        return {"policy_name": "ppo"} if args.named else {}
    name = args.policy or "heuristic"
    check_flag("--policy", name, OneOf(BASELINES, SCHEDULE_FILE))
    return {"policy_name": name}


def read_config(path: Path) -> tuple[Settings, list[str]]:
    """The settings of a config file; a file that cannot be read is a ConfigError."""
    try:
        return parse_settings(read_bytes(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"--config is {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config is {path}, which is not UTF-8 text") from None
    except ConfigError as error:
        raise ConfigError(f"--config is {path}: {error}") from None


def spec_from_args(
    args: argparse.Namespace, *, defaults: Settings | None = None, overrides: Settings | None = None
) -> RunSpec:
    """The spec that the command line asks for: defaults < preset < file < `beneath` < flags < `above`."""
    flags = reduce(merge_settings, [flag_settings(args), _policy_settings(args), overrides or {}])
    settings, found = read_config(args.config) if args.config else ({}, [])
    bare = args.config is None and "preset" not in flags and "task" not in flags
    base: Settings = {"preset": DEFAULT_PRESET} if bare else {}
    return build_spec(merge_layers([base, settings, defaults or {}, flags]), found)


def resumed_spec(args: argparse.Namespace, previous: RunSpec) -> RunSpec:
    """The spec of a run that goes on: as it was made, with what the command line changes."""
    flags = flag_settings(args)
    if args.extend_rounds is not None:
        if "rounds" in flags:
            raise ConfigError("both --rounds and --extend-rounds are given; want one of them")
        flags["rounds"] = previous.rounds + parse_int_flag("--extend-rounds", args.extend_rounds, 1)
    return build_spec(merge_settings(to_settings(previous), flags))
