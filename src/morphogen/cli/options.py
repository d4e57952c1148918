"""The flags of the command line: one table from flag to config field, and the settings that given ones make."""

import argparse
import re
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from morphogen.config.config_files import (
    Settings,
    build_spec,
    merge_layers,
    merge_settings,
    parse_assignment,
    parse_settings,
    to_settings,
)
from morphogen.config.fields import Choice, Int, raise_all
from morphogen.config.preset import DEFAULT_PRESET, PRESETS
from morphogen.config.spec import BASELINES, SCHEDULE_FILE, RunSpec
from morphogen.config.task import TASKS
from morphogen.config.telemetry_spec import LEVELS, LOGGERS
from morphogen.errors import ConfigError
from morphogen.storage.safe_read import read_bytes
from morphogen.vocab.reward import RULES

_WHOLE = re.compile("[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class CommandFlag:
    """A flag, the config field it sets, and what it says about itself."""

    name: str
    path: str
    kind: str  # word, number, words, one (a list of one), on and off (no value: true, false)
    value: str  # name of the value in the help
    group: str
    text: str


MAX_SEED, MAX_EPISODES = 2**63 - 1, 10_000  # the last seed; most held-out episodes of an arm
BENCH_ROUNDS = 3  # that a benchmark runs, the warm-up included
_TASK, _SIZE, _LEARN, _WHERE = "what is grown", "how much", "what is learned", "where it runs"
_TOLD = "what is written about it"
GROUPS = (_TASK, _SIZE, _LEARN, _WHERE, _TOLD)
_PAID = (
    f"what the policy is paid for: {', '.join(RULES)}, or a rule that `morphogen rewards` lists besides "
    "(default value with the preset digits, else delta)"
)
_PLACED = "training data on the device (resident) or read ahead from the host (streamed); default auto: by its size"
FLAGS: tuple[CommandFlag, ...] = (
    CommandFlag(
        "--preset", "preset", "word", "NAME", _TASK, "start from a named set of settings: " + ", ".join(PRESETS)
    ),
    CommandFlag("--task", "task", "word", "NAME", _TASK, "data and host network (default digits): " + ", ".join(TASKS)),
    CommandFlag("--slots", "slots", "words", "ID", _TASK, "places in the host where seeds may grow, e.g. r0c0 r1c0"),
    CommandFlag(
        "--max-seeds", "max_seeds", "number", "N", _TASK, "most seeds in one host at a time; 0 = no limit (default)"
    ),
    CommandFlag(
        "--instances", "instances", "word", "MODE", _TASK, "task = hosts and data vary (default), single = all alike"
    ),
    CommandFlag(
        "--data-dir", "data.dir", "word", "DIR", _TASK, "where CIFAR lies (default $MORPHOGEN_DATA, else ./data)"
    ),
    CommandFlag("--no-augment", "data.augment", "off", "", _TASK, "train on the images as they are"),
    CommandFlag(
        "--rounds", "rounds", "number", "N", _SIZE, "rounds; each plays one episode per env, then updates the policy"
    ),
    CommandFlag("--envs", "envs", "number", "N", _SIZE, "host networks trained side by side"),
    CommandFlag(
        "--episode-length", "episode_length", "number", "N", _SIZE, "epochs in the life of a host, one action each"
    ),
    CommandFlag("--minibatches", "data.minibatches", "number", "N", _SIZE, "optimiser steps of a host per epoch"),
    CommandFlag("--batch", "data.batch", "number", "N", _SIZE, "samples per optimiser step of a host"),
    CommandFlag(
        "--final-episodes", "final_episodes", "number", "N", _SIZE, "held-out episodes played at the end; 0 = none"
    ),
    CommandFlag("--seed", "seed", "number", "N", _SIZE, "fixes every random number of the run (default 0)"),
    CommandFlag("--reward", "reward.rule", "word", "RULE", _LEARN, _PAID),
    CommandFlag("--ppo-epochs", "ppo.epochs", "number", "N", _LEARN, "passes over a round in the update of the policy"),
    CommandFlag("--lr", "ppo.lr", "number", "X", _LEARN, "learning rate of the policy"),
    CommandFlag(
        "--entropy-anneal-rounds",
        "ppo.entropy_anneal_rounds",
        "number",
        "N",
        _LEARN,
        "rounds until exploration is least",
    ),
    CommandFlag(
        "--value-warmup-rounds",
        "ppo.value_warmup_rounds",
        "number",
        "N",
        _LEARN,
        "rounds until the critic counts in full",
    ),
    CommandFlag(
        "--device", "engine.devices", "one", "D", _WHERE, "auto (default: a GPU if there is one), cpu, cuda, cuda:N"
    ),
    CommandFlag(
        "--compile", "engine.compile", "word", "MODE", _WHERE, "off (default), default, reduce-overhead, max-autotune"
    ),
    CommandFlag("--placement", "data.placement", "word", "P", _WHERE, _PLACED),
    CommandFlag("--threads", "engine.threads", "number", "N", _WHERE, "CPU threads (default: one per core)"),
    CommandFlag(
        "--no-phase-profile", "engine.phase_profile", "off", "", _WHERE, "keep no time of the phases of a round"
    ),
    CommandFlag("--telemetry-level", "telemetry.level", "word", "L", _TOLD, f"{', '.join(LEVELS)} (default normal)"),
    CommandFlag(
        "--telemetry-dir", "telemetry.dir", "word", "DIR", _TOLD, "where the event file goes (default: with the run)"
    ),
    CommandFlag(
        "--lifecycle-only", "telemetry.lifecycle_only", "on", "", _TOLD, "only events about lives of seeds and hosts"
    ),
    CommandFlag("--logger", "telemetry.loggers", "words", "NAME", _TOLD, f"also write scalars to {', '.join(LOGGERS)}"),
    CommandFlag(
        "--checkpoint-every", "checkpoint.every_rounds", "number", "N", _TOLD, "save it every N rounds (default 10)"
    ),
    CommandFlag(
        "--keep", "checkpoint.keep", "number", "N", _TOLD, "checkpoints that stay, besides the best one (default 3)"
    ),
    CommandFlag("--wandb-project", "telemetry.wandb.project", "word", "NAME", _TOLD, "project (default morphogen)"),
    CommandFlag("--wandb-entity", "telemetry.wandb.entity", "word", "NAME", _TOLD, "team or user"),
    CommandFlag("--wandb-group", "telemetry.wandb.group", "word", "NAME", _TOLD, "group of runs"),
    CommandFlag(
        "--wandb-name", "telemetry.wandb.name", "word", "NAME", _TOLD, "name (default: that of the run directory)"
    ),
    CommandFlag("--wandb-tags", "telemetry.wandb.tags", "words", "TAG", _TOLD, "tags"),
    CommandFlag("--wandb-mode", "telemetry.wandb.mode", "word", "MODE", _TOLD, "online (default), offline, disabled"),
)


def parse_number(text: str) -> int | float | str:
    """The number that is written there; what is none stays text and is refused with its field."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


def parse_int_flag(flag: str, text: str, low: int, high: int = 1_000_000) -> int:
    """The number that a flag which is no setting was given; a ConfigError where it is none, or not in low .. high."""
    found = parse_number(text)
    raise_all(Int(low=low, high=high).faults(flag, found))
    assert isinstance(found, int)  # or it was refused
    return found


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
    raise_all(Choice(names=BASELINES, prefix=SCHEDULE_FILE).faults("--policy", name))
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
        wrong = Int(low=1).faults("--extend-rounds", parse_number(args.extend_rounds))
        raise_all(wrong)
        flags["rounds"] = previous.rounds + int(args.extend_rounds)
    return build_spec(merge_settings(to_settings(previous), flags))
