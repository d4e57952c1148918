"""The flags of the command line: one table from flag to config field, and the parser made from it."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

from morphogen.errors import ConfigError
from morphogen.vocab.codec import Settings, build, layered, merge, parse_assignment, parse_settings
from morphogen.vocab.fields import Choice, refuse
from morphogen.vocab.preset import DEFAULT_PRESET, PRESETS
from morphogen.vocab.reward import RULES
from morphogen.vocab.spec import POLICIES, SCHEDULE_FILE, RunSpec
from morphogen.vocab.task import TASKS
from morphogen.vocab.telemetry import LEVELS, LOGGERS

_WHOLE = re.compile("[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Flag:
    """A flag, the config field it sets, and what it says about itself."""

    name: str
    path: str
    kind: str  # word, number, words, one (a list of one), on and off (no value: true, false)
    value: str  # name of the value in the help
    group: str
    text: str


ROUNDS = 3  # that a benchmark runs, the warm-up included
_TASK, _SIZE, _LEARN, _WHERE = "what is grown", "how much", "what is learned", "where it runs"
_TOLD = "what is written about it"
_BASELINES = tuple(name for name in POLICIES if name != "ppo")
_PAID = (
    f"what the policy is paid for: {', '.join(RULES)}, or a rule that `morphogen rewards` lists besides (default delta)"
)
_PLACED = "training data on the device (resident) or read ahead from the host (streamed); default auto: by its size"
FLAGS: tuple[Flag, ...] = (
    Flag("--preset", "preset", "word", "NAME", _TASK, "start from a named set of settings: " + ", ".join(PRESETS)),
    Flag("--task", "task", "word", "NAME", _TASK, "data and host network (default digits): " + ", ".join(TASKS)),
    Flag("--slots", "slots", "words", "ID", _TASK, "places in the host where seeds may grow, e.g. r0c0 r1c0"),
    Flag("--max-seeds", "max_seeds", "number", "N", _TASK, "most seeds in one host at a time; 0 = no limit (default)"),
    Flag("--instances", "instances", "word", "MODE", _TASK, "task = hosts and data vary (default), single = all alike"),
    Flag("--data-dir", "data.dir", "word", "DIR", _TASK, "where CIFAR lies (default $MORPHOGEN_DATA, else ./data)"),
    Flag("--no-augment", "data.augment", "off", "", _TASK, "train on the images as they are"),
    Flag("--rounds", "rounds", "number", "N", _SIZE, "rounds; each plays one episode per env, then updates the policy"),
    Flag("--envs", "envs", "number", "N", _SIZE, "host networks trained side by side"),
    Flag("--episode-length", "episode_length", "number", "N", _SIZE, "epochs in the life of a host, one action each"),
    Flag("--minibatches", "data.minibatches", "number", "N", _SIZE, "optimiser steps of a host per epoch"),
    Flag("--batch", "data.batch", "number", "N", _SIZE, "samples per optimiser step of a host"),
    Flag("--final-episodes", "final_episodes", "number", "N", _SIZE, "held-out episodes played at the end; 0 = none"),
    Flag("--seed", "seed", "number", "N", _SIZE, "fixes every random number of the run (default 0)"),
    Flag("--reward", "reward.rule", "word", "RULE", _LEARN, _PAID),
    Flag("--ppo-epochs", "ppo.epochs", "number", "N", _LEARN, "passes over a round in the update of the policy"),
    Flag("--lr", "ppo.lr", "number", "X", _LEARN, "learning rate of the policy"),
    Flag(
        "--entropy-anneal-rounds",
        "ppo.entropy_anneal_rounds",
        "number",
        "N",
        _LEARN,
        "rounds until exploration is least",
    ),
    Flag(
        "--value-warmup-rounds",
        "ppo.value_warmup_rounds",
        "number",
        "N",
        _LEARN,
        "rounds until the critic counts in full",
    ),
    Flag("--device", "engine.devices", "one", "D", _WHERE, "auto (default: a GPU if there is one), cpu, cuda, cuda:N"),
    Flag(
        "--compile", "engine.compile", "word", "MODE", _WHERE, "off (default), default, reduce-overhead, max-autotune"
    ),
    Flag("--placement", "data.placement", "word", "P", _WHERE, _PLACED),
    Flag("--threads", "engine.threads", "number", "N", _WHERE, "CPU threads (default: one per core)"),
    Flag("--no-phase-profile", "engine.phase_profile", "off", "", _WHERE, "keep no time of the phases of a round"),
    Flag("--telemetry-level", "telemetry.level", "word", "L", _TOLD, f"{', '.join(LEVELS)} (default normal)"),
    Flag("--telemetry-dir", "telemetry.dir", "word", "DIR", _TOLD, "where the event file goes (default: with the run)"),
    Flag("--lifecycle-only", "telemetry.lifecycle_only", "on", "", _TOLD, "only events about lives of seeds and hosts"),
    Flag("--logger", "telemetry.loggers", "words", "NAME", _TOLD, f"also write scalars to {', '.join(LOGGERS)}"),
    Flag("--wandb-project", "telemetry.wandb.project", "word", "NAME", _TOLD, "project (default morphogen)"),
    Flag("--wandb-entity", "telemetry.wandb.entity", "word", "NAME", _TOLD, "team or user"),
    Flag("--wandb-group", "telemetry.wandb.group", "word", "NAME", _TOLD, "group of runs"),
    Flag("--wandb-name", "telemetry.wandb.name", "word", "NAME", _TOLD, "name (default: that of the run directory)"),
    Flag("--wandb-tags", "telemetry.wandb.tags", "words", "TAG", _TOLD, "tags"),
    Flag("--wandb-mode", "telemetry.wandb.mode", "word", "MODE", _TOLD, "online (default), offline, disabled"),
)
_WHO = f"""policies of heuristic:
{chr(10).join(f"  {name:<14}{POLICIES[name]}" for name in _BASELINES)}
  {SCHEDULE_FILE + "FILE":<14}a JSON file that declares which action is taken in which epoch"""
_EPILOG = f"""A preset is a named set of settings, a config file is JSON with the fields that --print-config shows.
Settings count in this order, the last one wins: defaults, preset, config file, --set and flags.

exit codes: 0 done, 1 unexpected error, 2 wrong usage or configuration, 3 data, 4 checkpoint, 5 training diverged,
6 done, but lines of the event file are missing, 130 and 143 stopped by a signal.

examples:
  morphogen train                              train a policy on digits
  morphogen train --preset smoke               the same, very short, to see that everything works
  morphogen train heuristic --policy wait      what the hosts reach if nothing is ever grown
  morphogen train --set ppo.clip=0.1 --dry-run check a setting without running it

{_WHO}"""

_BENCH_EPILOG = f"""Settings are those of `morphogen train`; {ROUNDS} rounds unless --rounds or --set says otherwise.

examples:
  morphogen bench --envs 8                                        the default run, with 8 hosts
  morphogen bench --grid envs=1,8,64 engine.compile=off,default   six measurements
  morphogen bench --task digits_impaired --rounds 6 --json x.json five rounds after the warm-up, kept in a file

{_WHO}"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Wrong usage is a ConfigError like any other."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def parser(version: str) -> argparse.ArgumentParser:
    """The command line of `morphogen`."""
    top = _Parser(
        prog="morphogen",
        description="Train a controller that grows neural networks: it germinates, blends, keeps or prunes seeds.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"morphogen {version}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_bench(commands)
    _add_watch(commands)
    commands.add_parser(
        "rewards",
        help="list the reward rules and compare what they pay",
        description="List the reward rules, those of installed packages included, and print what each of them pays "
        "scripted policies on synthetic learning curves.",
        allow_abbrev=False,
    )
    _add_reading(commands)
    return top


def _add_reading(commands: argparse._SubParsersAction) -> None:
    """Commands that only read what runs wrote."""
    report = commands.add_parser(
        "report",
        help="draw runs: one HTML page with every picture, and their numbers as CSV",
        description="Write a page with learning curves, lives of the seeds, actions, rewards, sizes and health of a "
        "run, or of several side by side; every picture as PNG and its numbers as CSV beside it. Works on a run that "
        "is not over. Needs the extra morphogen[report].",
        allow_abbrev=False,
    )
    report.add_argument("runs", metavar="RUN_DIR", nargs="+", type=Path, help="run directories")
    report.add_argument("--out", metavar="DIR", type=Path, help="where it goes (default: report/ in the first of them)")
    inspect = commands.add_parser(
        "inspect",
        help="print what a run directory or a checkpoint holds",
        description="Print what a run is, how far it came, and its tables: rounds, blueprints, actions, anomalies; or "
        "where a checkpoint stands and which files it consists of.",
        allow_abbrev=False,
    )
    inspect.add_argument("path", metavar="PATH", type=Path, help="run directory, or a checkpoint in one")


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy, or run a baseline on the same path",
        description="Train a policy with PPO (`train` or `train ppo`), or run a baseline (`train heuristic`).",
        usage="morphogen train [ppo|heuristic] [flags]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_output(_add_settings(train))


def _add_bench(commands: argparse._SubParsersAction) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast a configuration runs, and where its time goes",
        description="Run a few rounds of a configuration, given as for `train`, and print the rate, where the time "
        "goes, the time of compiling and the peak of memory. The first round warms up and is told apart. No run "
        "directory is written.",
        usage="morphogen bench [ppo|heuristic] [flags]",
        epilog=_BENCH_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    rest = _add_settings(bench)
    grid = "measure every value of a field, as in envs=1,8,64; of several, every combination"
    rest.add_argument("--grid", metavar="KEY=V1,V2", nargs="+", action="extend", default=[], help=grid)
    explain = "measure only how the convolutions can be computed, and tell which way is chosen"
    either = rest.add_mutually_exclusive_group()
    either.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to a new file")
    either.add_argument("--explain", action="store_true", help=explain)


def _add_watch(commands: argparse._SubParsersAction) -> None:
    watch = commands.add_parser(
        "watch",
        help="follow a running run in the terminal",
        description="Follow a run in the terminal: its envs with slots and alphas, curves, actions, anomalies. The run "
        "may not have begun yet; the view ends with it, or with Ctrl-C, which the run does not notice.",
        allow_abbrev=False,
    )
    watch.add_argument("run", metavar="RUN", type=Path, help="its run directory")
    watch.add_argument("--once", action="store_true", help="print how it stands now, and end")


def _add_settings(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Everything that makes a config; the group of what else there is."""
    command.add_argument("who", choices=("ppo", "heuristic"), metavar="ppo|heuristic", help="default: ppo")
    command.add_argument("--policy", metavar="NAME", help="with heuristic: another baseline or a schedule, see below")
    groups = {name: command.add_argument_group(name) for name in (_TASK, _SIZE, _LEARN, _WHERE, _TOLD)}
    for flag in FLAGS:
        more: dict[str, Any] = {"nargs": "+"} if flag.kind == "words" else {}
        bare = flag.kind in ("on", "off")
        more = {"action": "store_const", "const": flag.kind} if bare else {"metavar": flag.value, **more}
        groups[flag.group].add_argument(flag.name, dest=flag.path, help=flag.text, default=None, **more)
    rest = command.add_argument_group("settings and output")
    rest.add_argument("--config", metavar="FILE", type=Path, help="JSON file with settings, as config.json of a run")
    rest.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any field; the value is JSON")
    return rest


def _add_output(rest: argparse._ArgumentGroup) -> None:
    rest.add_argument("--out", metavar="DIR", type=Path, help="run directory, new or empty (default: one in runs/)")
    rest.add_argument("--quiet", action="store_true", help="no progress, only the closing table")
    rest.add_argument("--dry-run", action="store_true", help="check everything, print sizes, write nothing")
    rest.add_argument("--print-config", action="store_true", help="print the complete config as JSON and exit")


def parse(argv: Sequence[str], version: str) -> argparse.Namespace:
    """The parsed command line; `named` says whether ppo or heuristic was written out."""
    words = list(argv)
    named = len(words) > 1 and not words[1].startswith("-")
    if words[:1] in (["train"], ["bench"]) and not named:
        words.insert(1, "ppo")
    found = parser(version).parse_args(words)
    found.named = named
    return found


def number(text: str) -> int | float | str:
    """The number that is written there; what is none stays text and is refused with its field."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


_READ = {
    "word": str,
    "number": number,
    "words": list,
    "one": lambda text: [text],
    "on": lambda text: True,
    "off": lambda text: False,
}


def flag_settings(given: argparse.Namespace) -> Settings:
    """The settings that the given flags make; a flag that was not given sets nothing."""
    layers = [parse_assignment(text) for text in given.set]
    values = vars(given)
    for flag in FLAGS:
        if values[flag.path] is not None:
            layers.append(nested(flag.path, _READ[flag.kind](values[flag.path])))
    return reduce(merge, [*layers, _policy(given)], {})


def nested(path: str, value: Any) -> Settings:
    """`ppo.clip`, 0.1 -> {"ppo": {"clip": 0.1}}."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def _policy(given: argparse.Namespace) -> Settings:
    if given.who == "ppo":
        if given.policy is not None:
            raise ConfigError(f"--policy is {given.policy!r}; it goes with `morphogen train heuristic`")
        return {"policy_name": "ppo"} if given.named else {}
    name = given.policy or "heuristic"
    refuse(Choice(names=_BASELINES, prefix=SCHEDULE_FILE).faults("--policy", name))
    return {"policy_name": name}


def read_config(path: Path) -> tuple[Settings, list[str]]:
    """The settings of a config file; a file that cannot be read is a ConfigError."""
    try:
        return parse_settings(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config is {path}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config is {path}, which is not UTF-8 text") from None
    except ConfigError as error:
        raise ConfigError(f"--config is {path}: {error}") from None


def spec_of(given: argparse.Namespace, *, beneath: Settings | None = None, above: Settings | None = None) -> RunSpec:
    """The spec that the command line asks for: defaults < preset < file < `beneath` < flags < `above`."""
    flags = merge(flag_settings(given), above or {})
    settings, found = read_config(given.config) if given.config else ({}, [])
    bare = given.config is None and "preset" not in flags and "task" not in flags
    base: Settings = {"preset": DEFAULT_PRESET} if bare else {}
    return build(layered([base, settings, beneath or {}, flags]), found)
