"""Command `compare`: runs, presets or reward rules as sides of a comparison, checked first."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path

from morphogen.cli import arguments, process
from morphogen.config.config_files import build_spec, dump_config, merge_layers, parse_assignment
from morphogen.config.fields import Settings, merge_settings, raise_all
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET, PRESETS
from morphogen.errors import ConfigError
from morphogen.storage import run_directory
from morphogen.vocab.reward import RULES
from morphogen.vocab.text import format_value

RULE_PREFIX, COMPARISON_FILE = "rule:", "comparison.json"
SHARED_FIELDS = ("task", "instances", "instance")  # network values of other tasks cannot be compared
PARSER = {
    "help": "compare runs, presets or reward rules on the same seeds and instances",
    "description": "Compare the first side with each of the others: on pairs of training seeds, and on the same "
    "held-out instances. Presets and rules are trained first, a run per seed below --out; existing runs are used, or "
    "resumed. A verdict is given only where the interval of the difference leaves out 0.",
}


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """Runs of one side, one per training seed."""

    name: str
    runs: tuple[Path, ...]
    specs: tuple[RunSpec, ...]  # resolved
    needs_training: bool  # missing runs are trained, stopped ones resumed


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `compare`."""
    parser.add_argument("sides", metavar="SIDE", nargs="+", help="run directory, folder of them, preset or rule:NAME")
    parser.add_argument("--seeds", metavar="1,2,3", help="training seeds of presets and rules (default 0)")
    parser.add_argument("--rounds", metavar="N", help="rounds of every run (default: as configured)")
    parser.add_argument("--set", **{**arguments.SET, "help": "any field, for all sides"})
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of trained presets and rules: DIR/SIDE/SEED")
    parser.add_argument("--episodes", metavar="N", default="256", help="held-out episodes of every run (default 256)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers to a new file")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the table")


def run(args: Namespace, command: str) -> int | None:
    """Train the missing runs, play all of them, print the table and the verdicts."""
    del command
    episodes = arguments.parse_int_flag("--episodes", args.episodes, 1, arguments.MAX_EPISODES)
    sides = read_sides(args)
    if args.json is not None:
        run_directory.check_new_file("--json", args.json)
    process.prepare_compute(sides[0].specs[0].engine.threads)
    comparison, console = import_module("morphogen.cli.comparison"), import_module("morphogen.analysis.console").Console
    with console(quiet=args.quiet, out=sys.stderr) as screen, process.StopSignals() as stop:
        for side in sides:
            comparison.train_side(side, console=screen, halt=lambda: stop.exit_code is not None)
    if stop.exit_code is not None:
        return stop.exit_code
    pairs, numbers = comparison.compare(sides, episodes=episodes, report=process.print_progress)
    for path in (args.json, None if args.out is None else args.out / COMPARISON_FILE):
        process.write_json(path, numbers)
    title = f"{episodes} held-out instances for each of {len(sides[0].runs)} pairs of runs"
    process.print_tables([(title, [comparison.pair_row(pair) for pair in pairs])])
    print(*(f"{pair['first']} against {pair['second']}: {pair['verdict']}" for pair in pairs), sep="\n")
    return None


def read_sides(args: Namespace) -> tuple[ComparisonSide, ...]:
    """Return the sides of a command line.  Raises ConfigError for sides that cannot be compared."""
    names = args.sides
    arguments.check_unique("compare", names)
    if len(names) < 2:
        raise ConfigError(f"compare: expected two or more sides, got {len(names)}")
    training = [name for name in names if _side_settings(name) is not None]
    flags = {"--seeds": args.seeds, "--rounds": args.rounds, "--set": args.set, "--out": args.out}
    if training and args.out is None:
        raise ConfigError(f"--out: expected a directory to train {', '.join(training)} in, got nothing")
    raise_all(
        [
            f"{flag}: expected a preset or rule as a side, got runs only"
            for flag in flags
            if flags[flag] and not training
        ]
    )
    first, *rest = sides = [_side_to_train(name, args) if name in training else _existing_side(name) for name in names]
    faults = []
    for side in rest:
        if len(side.runs) != len(first.runs):
            faults.append(f"{side.name}: expected {len(first.runs)} runs, as {first.name} has, got {len(side.runs)}")
        faults += [
            f"{side.name}: expected the {name} of {first.name}, got another; their values cannot be compared"
            for name in SHARED_FIELDS
            if getattr(side.specs[0], name) != getattr(first.specs[0], name)
        ]
    raise_all(faults)
    return tuple(sides)


def _side_settings(name: str) -> Settings | None:
    """Return the settings of a preset or a rule; None for a path."""
    if name.startswith(RULE_PREFIX):
        rule = name.removeprefix(RULE_PREFIX)
        if rule not in RULES:
            raise ConfigError(f"side: expected {RULE_PREFIX} and one of {', '.join(RULES)}, got {format_value(name)}")
        return {"reward": {"rule": rule}}
    return {"preset": name} if name in PRESETS else None


def _side_to_train(name: str, args: Namespace) -> ComparisonSide:
    flags: list[Settings] = [parse_assignment(text) for text in args.set]
    if args.rounds is not None:
        flags.append({"rounds": arguments.parse_int_flag("--rounds", args.rounds, 1)})
    defaults: Settings = {"preset": DEFAULT_PRESET, "final_episodes": 0}
    settings = reduce(merge_settings, [*flags, _side_settings(name) or {}], defaults)
    words = (args.seeds or "0").split(",")
    seeds = [arguments.parse_int_flag("--seeds", word, 0, arguments.MAX_SEED) for word in words]
    arguments.check_unique("--seeds", [str(seed) for seed in seeds])
    specs = [resolve(build_spec(merge_layers([merge_settings(settings, {"seed": seed})]))) for seed in seeds]
    runs = [args.out / name.replace(":", "-") / str(seed) for seed in seeds]
    for path, spec in zip(runs, specs, strict=True):
        if not (path / run_directory.CONFIG).exists():
            run_directory.check_new_directory(path)
        elif dump_config(resolve(run_directory.open_directory(path)[1])) != dump_config(spec):
            raise ConfigError(f"--out: expected no run of another configuration, got {path}")
    return ComparisonSide(name, tuple(runs), tuple(specs), needs_training=True)


def _existing_side(name: str) -> ComparisonSide:
    """Return the side of a run directory, or of a folder of them, in the order of their seeds."""
    path = Path(name)
    runs = [path] if _holds_run(path) else [entry for entry in _list_directory(path) if _holds_run(entry)]
    if not runs:
        known = f"a preset ({', '.join(PRESETS)}) or {RULE_PREFIX}NAME"
        raise ConfigError(f"side: expected a run directory, a folder of them, {known}, got {format_value(name)}")
    loaded = sorted(
        ((resolve(run_directory.open_directory(path)[1]), path) for path in runs),
        key=lambda pair: (pair[0].seed, pair[1]),
    )
    specs, paths = zip(*loaded, strict=True)
    return ComparisonSide(name, paths, specs, needs_training=False)


def _holds_run(path: Path) -> bool:
    try:
        return (path / run_directory.CONFIG).is_file()
    except (OSError, ValueError):  # an invalid file name
        return False


def _list_directory(path: Path) -> Sequence[Path]:
    try:
        return sorted(path.iterdir())
    except (OSError, ValueError):
        return ()
