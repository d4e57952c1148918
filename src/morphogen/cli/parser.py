"""The command line: commands, their flags and help texts."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from morphogen.cli.options import BENCH_ROUNDS, FLAGS, CommandFlag
from morphogen.config.fields import GROUPS, raise_all
from morphogen.config.spec import (
    BASELINES,
    ORACLE,
    POLICIES,
    RIVALS,
    SCHEDULE_FILE,
    SPLITS,
    STATIC,
    STATIC_COST,
    may_change_on_resume,
)
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

_WHO = f"""policies of heuristic:
{chr(10).join(f"  {name:<14}{POLICIES[name]}" for name in BASELINES)}
  {SCHEDULE_FILE + "FILE":<14}a JSON file that declares which action is taken in which epoch"""
_ARMS = (
    f"arms: {', '.join(name for name in POLICIES if name != 'ppo')}, {SCHEDULE_FILE}FILE, trained:PATH for the policy "
    f"of another run or policy file, {STATIC} for the networks that were grown, trained from scratch for the same "
    f"minibatches, {STATIC_COST} for as many parameter-epochs, {ORACLE}FILE for the best schedule of a portfolio for "
    "each instance"
)
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

_BENCH_EPILOG = f"""Settings are those of `morphogen train`; {BENCH_ROUNDS} rounds unless --rounds or --set says
otherwise.

examples:
  morphogen bench --envs 8                                        the default run, with 8 hosts
  morphogen bench --grid envs=1,8,64 engine.compile=off,default   six measurements
  morphogen bench --task digits_impaired --rounds 6 --json x.json five rounds after the warm-up, kept in a file

{_WHO}"""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **knobs: Any) -> None:
        super().__init__(**knobs, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Wrong usage is a ConfigError like any other."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def build_parser(version: str) -> argparse.ArgumentParser:
    """The command line of `morphogen`."""
    top = _Parser(
        prog="morphogen",
        description="Train a controller that grows neural networks: it germinates, blends, keeps or prunes seeds.",
    )
    top.add_argument("--version", action="version", version=f"morphogen {version}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_bench(commands)
    _add_tune(commands)
    _add_resume(commands)
    _add_watch(commands)
    commands.add_parser(
        "rewards",
        help="list the reward rules and compare what they pay",
        description="List the reward rules, those of installed packages included, and print what each of them pays "
        "scripted policies on synthetic learning curves.",
    )
    _add_reading(commands)
    _add_judging(commands)
    return top


def _add_reading(commands: argparse._SubParsersAction) -> None:
    """Commands that only read what runs wrote."""
    report = commands.add_parser(
        "report",
        help="draw runs: one HTML page with every picture, and their numbers as CSV",
        description="Write a page with learning curves, lives of the seeds, actions, rewards, sizes and health of a "
        "run, or of several side by side; every picture as PNG and its numbers as CSV beside it. Works on a run that "
        "is not over. Needs the extra morphogen[report].",
    )
    report.add_argument("runs", metavar="RUN_DIR", nargs="+", type=Path, help="run directories")
    report.add_argument("--out", metavar="DIR", type=Path, help="where it goes (default: report/ in the first of them)")
    inspect = commands.add_parser(
        "inspect",
        help="print what a run directory or a checkpoint holds",
        description="Print what a run is, how far it came, and its tables: rounds, blueprints, actions, anomalies; or "
        "where a checkpoint stands and which files it consists of.",
    )
    inspect.add_argument("path", metavar="PATH", type=Path, help="run directory, or a checkpoint in one")


def _add_judging(commands: argparse._SubParsersAction) -> None:
    """Commands that play held-out instances."""
    evaluate = commands.add_parser(
        "evaluate",
        help="play a trained policy against others on the same held-out instances",
        description="Play held-out instances with the policy of a run and with others, each of them the same worlds: "
        "network value with 95 % intervals, sizes and costs, paired differences. Prints a table and writes "
        "evaluation.json in the run directory, of which `morphogen report` draws two pictures.",
        epilog=_ARMS,
    )
    evaluate.add_argument("run", metavar="RUN", type=Path, help="a run directory with a policy.safetensors")
    evaluate.add_argument("--episodes", metavar="N", default="256", help="held-out episodes of every arm (default 256)")
    evaluate.add_argument(
        "--arms", metavar="A,B", default=",".join(RIVALS), help="arms to compare (default %(default)s)"
    )
    evaluate.add_argument("--greedy", action="store_true", help="the policy of the run takes its likeliest action")
    evaluate.add_argument(
        "--split", choices=SPLITS, default=SPLITS[0], help="data split for the accuracy (default %(default)s)"
    )
    evaluate.add_argument("--seed", metavar="N", help="of the held-out instances (default: that of the run)")
    evaluate.add_argument("--json", metavar="FILE", type=Path, help="write the numbers to a new file too")
    compare = commands.add_parser(
        "compare",
        help="compare runs, presets or reward rules on the same seeds and instances",
        description="Compare the first side with each of the others: on pairs of training seeds, and on the same "
        "held-out instances. Presets and rules are trained first, a run per seed below --out; runs that are there "
        "already are used, or gone on with. A verdict is given only where the interval of the difference leaves out 0.",
    )
    compare.add_argument("sides", metavar="SIDE", nargs="+", help="run directory, folder of them, preset or rule:NAME")
    compare.add_argument("--seeds", metavar="1,2,3", help="training seeds of presets and rules (default 0)")
    compare.add_argument("--rounds", metavar="N", help="rounds of every run (default: as configured)")
    compare.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any field, for all sides")
    compare.add_argument("--out", metavar="DIR", type=Path, help="where presets and rules are trained: DIR/SIDE/SEED")
    compare.add_argument("--episodes", metavar="N", default="256", help="held-out episodes of every run (default 256)")
    compare.add_argument("--json", metavar="FILE", type=Path, help="write the numbers to a new file")
    compare.add_argument("--quiet", action="store_true", help="no progress, only the table")


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy, or run a baseline on the same path",
        description="Train a policy with PPO (`train` or `train ppo`), or run a baseline (`train heuristic`).",
        usage="morphogen train [ppo|heuristic] [flags]",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_output(_add_settings(train))


def _add_tune(commands: argparse._SubParsersAction) -> None:
    tune = commands.add_parser(
        "tune",
        help="search the best fixed schedule, a baseline for what a policy learns",
        description="Play many declared schedules on training instances, more often where they do well, and write the "
        "best one: `morphogen train heuristic --policy schedule:FILE` takes it. Beside it goes a portfolio of a few "
        "that cover the instances between them. Settings are those of `morphogen train`; held-out instances are never "
        "played.",
    )
    tune.set_defaults(who="ppo", policy=None)
    rest = _add_fields(tune)
    rest.add_argument("--out", metavar="FILE", type=Path, required=True, help="where the schedule goes, a new file")
    rest.add_argument("--on", metavar="N", default="48", help="training instances of the last trial (default 48)")
    rest.add_argument("--worlds", metavar="N", default="2", help="worlds that each of them is played in (default 2)")


def _add_resume(commands: argparse._SubParsersAction) -> None:
    resume = commands.add_parser(
        "resume",
        help="go on with a run that was stopped or killed, or for more rounds",
        description="Go on with a run from its newest checkpoint that is whole. It ends as if nothing had happened: "
        "hosts, policy, metrics and events are the same to the bit, on the same machine with the same number of "
        "threads and the same versions. Settings that cannot change on the way are refused.",
    )
    resume.add_argument("run", metavar="RUN_DIR", type=Path, help="its run directory")
    more = "run N additional rounds (--rounds sets the total)"
    resume.add_argument("--extend-rounds", metavar="N", help=more)
    older = "go on from this older one, in a new run directory (--out)"
    resume.add_argument("--checkpoint", metavar="NAME", help=older)
    _add_flags(resume, [flag for flag in FLAGS if may_change_on_resume(flag.path)])
    rest = resume.add_argument_group("settings and output")
    rest.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any field; the value is JSON")
    rest.add_argument("--out", metavar="DIR", type=Path, help="with --checkpoint: run directory, new or empty")
    rest.add_argument("--quiet", action="store_true", help="no progress, only the closing table")


def _add_bench(commands: argparse._SubParsersAction) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast a configuration runs, and where its time goes",
        description="Run a few rounds of a configuration, given as for `train`, and print the rate, where the time "
        "goes, the time of compiling and the peak of memory. The first round is a warm-up and is reported "
        "separately. No run directory is written.",
        usage="morphogen bench [ppo|heuristic] [flags]",
        epilog=_BENCH_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    )
    watch.add_argument("run", metavar="RUN", type=Path, help="its run directory")
    watch.add_argument("--once", action="store_true", help="print how it stands now, and end")


def _add_settings(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Everything that makes a config; the group of what else there is."""
    command.add_argument("who", choices=("ppo", "heuristic"), metavar="ppo|heuristic", help="default: ppo")
    command.add_argument("--policy", metavar="NAME", help="with heuristic: another baseline or a schedule, see below")
    return _add_fields(command)


def _add_fields(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Flags and files that make a config, whoever plays."""
    _add_flags(command, FLAGS)
    rest = command.add_argument_group("settings and output")
    rest.add_argument("--config", metavar="FILE", type=Path, help="JSON file with settings, as config.json of a run")
    rest.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any field; the value is JSON")
    return rest


def _add_flags(command: argparse.ArgumentParser, flags: Sequence[CommandFlag]) -> None:
    """Flags in their groups."""
    groups = {name: command.add_argument_group(name) for name in GROUPS if name in {flag.group for flag in flags}}
    for flag in flags:
        more: dict[str, Any] = {"nargs": "+"} if flag.kind == "words" else {}
        bare = flag.kind in ("on", "off")
        more = {"action": "store_const", "const": flag.kind} if bare else {"metavar": flag.value, **more}
        groups[flag.group].add_argument(flag.name, dest=flag.path, help=flag.text, default=None, **more)


def _add_output(rest: argparse._ArgumentGroup) -> None:
    rest.add_argument("--out", metavar="DIR", type=Path, help="run directory, new or empty (default: one in runs/)")
    rest.add_argument("--quiet", action="store_true", help="no progress, only the closing table")
    rest.add_argument("--dry-run", action="store_true", help="check everything, print sizes, write nothing")
    rest.add_argument("--print-config", action="store_true", help="print the complete config as JSON and exit")


def _bare(word: str) -> bool:
    """`--flag=--`, of which argparse makes a flag without a value."""
    return word.startswith("-") and word.endswith("=--")


def parse_args(argv: Sequence[str], version: str) -> argparse.Namespace:
    """The parsed command line; `named` says whether ppo or heuristic was written out."""
    words = list(argv)
    places = [(i, word) for i, word in enumerate(words, 1) if not word.isprintable() or _bare(word)]
    raise_all(
        [f"argument {i} is {format_value(word)}; want printable text, and another value than --" for i, word in places]
    )
    named = len(words) > 1 and not words[1].startswith("-")
    if words[:1] in (["train"], ["bench"]) and not named:
        words.insert(1, "ppo")
    found = build_parser(version).parse_args(words)
    found.named = named
    return found
