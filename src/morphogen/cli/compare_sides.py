"""What is compared: run directories, presets and reward rules, as configurations and places; checked first of all."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from morphogen.cli import options
from morphogen.config.config_files import (
    Settings,
    build_spec,
    dump_config,
    merge_layers,
    merge_settings,
    parse_assignment,
)
from morphogen.config.fields import raise_all
from morphogen.config.preset import DEFAULT_PRESET, PRESETS
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError
from morphogen.storage import run_directory
from morphogen.vocab.reward import RULES
from morphogen.vocab.text import format_value

RULE, FILE = "rule:", "comparison.json"
SAME = ("task", "instances", "instance")  # or network values are of different things


@dataclass(frozen=True, slots=True)
class Side:
    """Runs that stand for one thing, one per training seed."""

    name: str
    runs: tuple[Path, ...]
    specs: tuple[RunSpec, ...]  # resolved
    trains: bool  # they are made, or gone on with, where they lack


def sides(given: Namespace) -> tuple[Side, ...]:
    """The sides of a command line; a ConfigError for whatever cannot be compared."""
    names = given.sides
    raise_all(
        [
            f"compare has {format_value(name)} twice; want it once"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
    )
    if len(names) < 2:
        raise ConfigError(f"compare has {len(names)} side; want two or more")
    training = [name for name in names if _settings(name) is not None]
    flags = {"--seeds": given.seeds, "--rounds": given.rounds, "--set": given.set, "--out": given.out}
    if training and given.out is None:
        raise ConfigError(f"--out is missing; {', '.join(training)} has to be trained: want a directory for its runs")
    raise_all(
        [f"{flag} goes with presets and rules; all sides are runs" for flag in flags if flags[flag] and not training]
    )
    found = tuple(_trained(name, given) if name in training else _there(name) for name in names)
    raise_all(list(_misfits(found)))
    return found


def _settings(name: str) -> Settings | None:
    """What a preset or a rule sets; None for what is a place."""
    if name.startswith(RULE):
        rule = name.removeprefix(RULE)
        if rule not in RULES:
            raise ConfigError(f"{format_value(name)} names no reward rule; want one of {', '.join(RULES)}")
        return {"reward": {"rule": rule}}
    return {"preset": name} if name in PRESETS else None


def _trained(name: str, given: Namespace) -> Side:
    above: list[Settings] = [parse_assignment(text) for text in given.set]
    if given.rounds is not None:
        above.append({"rounds": options.whole_number("--rounds", given.rounds, 1)})
    beneath: Settings = {"preset": DEFAULT_PRESET, "final_episodes": 0}
    own = reduce(merge_settings, [*above, _settings(name) or {}], beneath)
    seeds = _seeds(given.seeds)
    specs = [resolve(build_spec(merge_layers([merge_settings(own, {"seed": seed})]))) for seed in seeds]
    runs = [given.out / name.replace(":", "-") / str(seed) for seed in seeds]
    for run, spec in zip(runs, specs, strict=True):
        _fits(run, spec)
    return Side(name, tuple(runs), tuple(specs), trains=True)


def _seeds(text: str | None) -> list[int]:
    found = [options.whole_number("--seeds", word, 0, options.SEEDS) for word in (text or "0").split(",")]
    if len(set(found)) < len(found):
        raise ConfigError(f"--seeds is {format_value(text)}; want each of them once")
    return found


def _fits(run: Path, spec: RunSpec) -> None:
    """A place where this run can be made, or is already."""
    if not (run / run_directory.CONFIG).exists():
        run_directory.check_new_directory(run)
    elif dump_config(resolve(run_directory.open_directory(run)[1])) != dump_config(spec):
        raise ConfigError(f"{run} holds a run of another configuration; want another --out")


def _there(name: str) -> Side:
    """A run directory, or a folder of them; in the order of their seeds."""
    place = Path(name)
    runs = [place] if _holds_run(place) else [one for one in _children(place) if _holds_run(one)]
    if not runs:
        known = ", ".join(PRESETS)
        raise ConfigError(
            f"side {format_value(name)} is no run directory, folder of them, preset ({known}) or {RULE}NAME"
        )
    found = sorted(
        ((resolve(run_directory.open_directory(run)[1]), run) for run in runs), key=lambda one: (one[0].seed, one[1])
    )
    return Side(name, tuple(run for _, run in found), tuple(spec for spec, _ in found), trains=False)


def _holds_run(place: Path) -> bool:
    try:
        return (place / run_directory.CONFIG).is_file()
    except (OSError, ValueError):  # no name of a file
        return False


def _children(place: Path) -> Sequence[Path]:
    try:
        return sorted(place.iterdir())
    except (OSError, ValueError):
        return ()


def _misfits(found: Sequence[Side]) -> Iterable[str]:
    """Why sides cannot be compared with the first."""
    first = found[0]
    for side in found[1:]:
        if len(side.runs) != len(first.runs):
            yield f"{side.name} has {len(side.runs)} runs and {first.name} {len(first.runs)}; want as many, in pairs"
        others = [name for name in SAME if getattr(side.specs[0], name) != getattr(first.specs[0], name)]
        yield from (
            f"{side.name} has another {name} than {first.name}; want the same, or nothing can be compared"
            for name in others
        )
