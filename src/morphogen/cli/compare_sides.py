"""Sides of a comparison: run directories, presets and reward rules, as configurations and paths, checked first."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from morphogen.cli import options
from morphogen.config.config_files import build_spec, dump_config, merge_layers, parse_assignment
from morphogen.config.fields import Settings, merge_settings, raise_all
from morphogen.config.preset import DEFAULT_PRESET, PRESETS
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.storage import run_directory
from morphogen.vocab.reward import RULES
from morphogen.vocab.text import format_value

RULE_PREFIX, COMPARISON_FILE = "rule:", "comparison.json"
SHARED_FIELDS = ("task", "instances", "instance")  # or network values are of different things


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """Runs that stand for one thing, one per training seed."""

    name: str
    runs: tuple[Path, ...]
    specs: tuple[RunSpec, ...]  # resolved
    needs_training: bool  # they are made, or gone on with, where they lack


def read_sides(args: Namespace) -> tuple[ComparisonSide, ...]:
    """The sides of a command line; a ConfigError for whatever cannot be compared."""
    names = args.sides
    raise_all(
        [
            f"compare has {format_value(name)} twice; want it once"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
    )
    if len(names) < 2:
        raise ConfigError(f"compare has {len(names)} side; want two or more")
    training = [name for name in names if _side_settings(name) is not None]
    flags = {"--seeds": args.seeds, "--rounds": args.rounds, "--set": args.set, "--out": args.out}
    if training and args.out is None:
        raise ConfigError(f"--out is missing; {', '.join(training)} has to be trained: want a directory for its runs")
    raise_all(
        [f"{flag} goes with presets and rules; all sides are runs" for flag in flags if flags[flag] and not training]
    )
    found = tuple(_side_to_train(name, args) if name in training else _existing_side(name) for name in names)
    raise_all(list(_find_mismatches(found)))
    return found


def _side_settings(name: str) -> Settings | None:
    """Settings of a preset or a rule; None for a path."""
    if name.startswith(RULE_PREFIX):
        rule = name.removeprefix(RULE_PREFIX)
        if rule not in RULES:
            raise ConfigError(f"{format_value(name)} names no reward rule; want one of {', '.join(RULES)}")
        return {"reward": {"rule": rule}}
    return {"preset": name} if name in PRESETS else None


def _side_to_train(name: str, args: Namespace) -> ComparisonSide:
    above: list[Settings] = [parse_assignment(text) for text in args.set]
    if args.rounds is not None:
        above.append({"rounds": options.parse_int_flag("--rounds", args.rounds, 1)})
    beneath: Settings = {"preset": DEFAULT_PRESET, "final_episodes": 0}
    own = reduce(merge_settings, [*above, _side_settings(name) or {}], beneath)
    seeds = _parse_seeds(args.seeds)
    specs = [resolve(build_spec(merge_layers([merge_settings(own, {"seed": seed})]))) for seed in seeds]
    runs = [args.out / name.replace(":", "-") / str(seed) for seed in seeds]
    for run, spec in zip(runs, specs, strict=True):
        _check_run_matches(run, spec)
    return ComparisonSide(name, tuple(runs), tuple(specs), needs_training=True)


def _parse_seeds(text: str | None) -> list[int]:
    found = [options.parse_int_flag("--seeds", word, 0, options.MAX_SEED) for word in (text or "0").split(",")]
    if len(set(found)) < len(found):
        raise ConfigError(f"--seeds is {format_value(text)}; want each of them once")
    return found


def _check_run_matches(run: Path, spec: RunSpec) -> None:
    """A place where this run can be made, or is already."""
    if not (run / run_directory.CONFIG).exists():
        run_directory.check_new_directory(run)
    elif dump_config(resolve(run_directory.open_directory(run)[1])) != dump_config(spec):
        raise ConfigError(f"{run} holds a run of another configuration; want another --out")


def _existing_side(name: str) -> ComparisonSide:
    """A run directory, or a folder of them; in the order of their seeds."""
    place = Path(name)
    runs = [place] if _holds_run(place) else [one for one in _list_directory(place) if _holds_run(one)]
    if not runs:
        known = ", ".join(PRESETS)
        raise ConfigError(
            f"side {format_value(name)} is no run directory, folder of them, preset ({known}) or {RULE_PREFIX}NAME"
        )
    found = sorted(
        ((resolve(run_directory.open_directory(run)[1]), run) for run in runs), key=lambda one: (one[0].seed, one[1])
    )
    return ComparisonSide(name, tuple(run for _, run in found), tuple(spec for spec, _ in found), needs_training=False)


def _holds_run(path: Path) -> bool:
    try:
        return (path / run_directory.CONFIG).is_file()
    except (OSError, ValueError):  # no name of a file
        return False


def _list_directory(path: Path) -> Sequence[Path]:
    try:
        return sorted(path.iterdir())
    except (OSError, ValueError):
        return ()


def _find_mismatches(sides: Sequence[ComparisonSide]) -> Iterable[str]:
    """Why sides cannot be compared with the first."""
    first = sides[0]
    for side in sides[1:]:
        if len(side.runs) != len(first.runs):
            yield f"{side.name} has {len(side.runs)} runs and {first.name} {len(first.runs)}; want as many, in pairs"
        others = [name for name in SHARED_FIELDS if getattr(side.specs[0], name) != getattr(first.specs[0], name)]
        yield from (
            f"{side.name} has another {name} than {first.name}; want the same, or nothing can be compared"
            for name in others
        )
