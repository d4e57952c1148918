"""The tuner: which fixed schedule is best on training instances, and which few are best between them."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morphogen.config.action_schedule import Schedule, dump_schedule, parse_schedule
from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.engine.episodes import Array
from morphogen.engine.setup import build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.schedule_search import Line, around, family, schedule, score, training_ground
from morphogen.storage import atomic_write
from morphogen.storage.safe_read import error_line, parse_json, read_bytes
from morphogen.vocab.text import format_value

Play = Callable[[Sequence[Line], int], Array]  # lines, instances n -> network value [K, W, n]
VERSION = 1
SIZE = 6  # schedules of a portfolio
TRIALS = (12, 3, 1)  # a trial plays one in so many of the instances
KEPT = (24, 16)  # lines that go on to the next trial
BEST = 6  # lines whose neighbours join the second trial
ROWS = 4  # times the envs of a run that are played side by side


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search found, and on what."""

    best: Line
    portfolio: tuple[Line, ...]  # in the order in which they were chosen
    means: tuple[float, ...]  # mean network value of each of them alone
    covers: tuple[float, ...]  # and of the best of those up to it, picked in one world and judged in another
    best_mean: float
    idle_mean: float  # of growing nothing
    instances: int
    worlds: int
    lines: int  # that were tried


def searched(spec: RunSpec, *, instances: int, worlds: int, say: Callable[[str], None]) -> Tuned:
    """The search in worlds of a resolved spec; a ConfigError where no seed can be kept in it."""
    if family(spec) == [()]:
        raise ConfigError(
            f"no seed can be germinated and kept in {spec.episode_length} epochs; want more of them "
            "(episode_length), a shorter training (lifecycle.min_training_epochs), or fewer disabled_ops"
        )
    setup = build_setup(spec)
    fences = Transfers(setup.device, time.perf_counter)

    def play(lines: Sequence[Line], count: int) -> Array:
        schedules = [schedule(line, spec) for line in lines]
        ground = training_ground(spec, count)
        return score(setup, fences, schedules, ground, worlds=range(worlds), rows=ROWS * spec.envs)

    return tune(spec, play, instances=instances, say=say)


def tune(spec: RunSpec, play: Play, *, instances: int, say: Callable[[str], None]) -> Tuned:
    """Successive halving: all lines on a few instances, then the better ones and what is near them on more.

    A line goes on for its mean, because it is the best one on some instances, or as the best one of its kind: what is
    dear and worth it for few instances is not lost where these are not among the first ones.
    """
    lines = family(spec)
    tried = set(lines)
    for share, kept in zip(TRIALS, KEPT, strict=False):
        values = _trial(play, lines, math.ceil(instances / share), say)
        lines = [lines[i] for i in dict.fromkeys([*_promising(values, kept), *_of_each_kind(lines, values)])]
        near = around(lines[:BEST], spec) if share == TRIALS[0] else []
        lines = list(dict.fromkeys([*lines, *near]))
        tried |= set(lines)
    lines = [*lines, *([] if () in lines else [()])]
    values = _trial(play, lines, instances, say)
    means = values.mean(axis=(1, 2))
    chosen, covers = cover(values, SIZE)
    return Tuned(
        best=lines[means.argmax()],
        portfolio=tuple(lines[i] for i in chosen),
        means=tuple(float(means[i]) for i in chosen),
        covers=covers,
        best_mean=float(means.max()),
        idle_mean=float(means[lines.index(())]),
        instances=instances,
        worlds=values.shape[1],
        lines=len(tried),
    )


def _trial(play: Play, lines: Sequence[Line], count: int, say: Callable[[str], None]) -> Array:
    values = play(lines, count)
    say(f"{len(lines)} schedules on {count} instances: best mean network value {values.mean(axis=(1, 2)).max():.4f}")
    return values


def _promising(values: Array, count: int) -> list[int]:
    """The best lines first: half of the places go to the best mean, the others to a cover.  values [K, W, n]."""
    ranked = np.argsort(-values.mean(axis=(1, 2)), kind="stable").tolist()
    both = [*ranked[: count // 2], *cover(values, count // 2)[0], *ranked[count // 2 :]]
    return list(dict.fromkeys(both))[:count]


def _of_each_kind(lines: Sequence[Line], values: Array) -> list[int]:
    """The line with the best mean among those that grow the same blueprints.  values [K, W, n]."""
    best: dict[tuple[int, ...], int] = {}
    for i in np.argsort(-values.mean(axis=(1, 2)), kind="stable").tolist():
        best.setdefault(tuple(int(growth.blueprint) for growth in lines[i]), i)
    return list(best.values())


def cover(values: Array, size: int) -> tuple[list[int], tuple[float, ...]]:
    """Lines that are good between them, chosen one by one, and the worth of those up to each.  values [K, W, n].

    Per instance the line is picked in all worlds but one and judged in that one, so that luck is not taken for worth.
    """
    chosen: list[int] = []
    covers: list[float] = []
    while len(chosen) < min(size, len(values)):
        worth = {k: judged(values[[*chosen, k]]) for k in range(len(values)) if k not in chosen}
        best = max(worth, key=worth.__getitem__)
        if covers and worth[best] <= covers[-1]:
            break
        chosen.append(best)
        covers.append(worth[best])
    return chosen, tuple(covers)


def judged(values: Array) -> float:
    """Mean worth of the pick of each instance, in the world that had no part in the pick.  values [P, W, n], W > 1."""
    elsewhere = values.sum(axis=1, keepdims=True) - values
    return float(np.take_along_axis(values, elsewhere.argmax(axis=0)[None], axis=0).mean())


def write(found: Tuned, spec: RunSpec, best: Path, portfolio: Path) -> None:
    """The two files: the schedule as `--policy schedule:FILE` takes it, and the portfolio."""
    schedules = [json.loads(dump_schedule(schedule(line, spec), spec)) for line in found.portfolio]
    told = {
        "version": VERSION,
        "task": spec.task,
        "seed": spec.seed,
        "instances": found.instances,
        "worlds": found.worlds,
        "schedules_tried": found.lines,
        "best_mean": found.best_mean,
        "idle_mean": found.idle_mean,
        "means": found.means,
        "covers": found.covers,
        "schedules": schedules,
    }
    for path, text in (
        (best, dump_schedule(schedule(found.best, spec), spec).encode()),
        (portfolio, atomic_write.json_bytes(told)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write.write_atomic(path, text)


def read_portfolio(path: Path, spec: RunSpec) -> tuple[Schedule, ...]:
    """The schedules of a portfolio file, for a resolved spec; a ConfigError tells what is wrong with it."""
    try:
        told = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {error_line(error)}") from None
    rows = told.get("schedules")
    if not isinstance(rows, list) or told.get("version") != VERSION:
        raise ConfigError(
            f"{path} is {format_value(told)}; want a portfolio of version {VERSION} that `morphogen tune` wrote"
        )
    return tuple(_parsed(row, i, path, spec) for i, row in enumerate(rows))


def _parsed(row: Any, place: int, path: Path, spec: RunSpec) -> Schedule:
    try:
        return parse_schedule(json.dumps(row), spec)
    except ConfigError as error:
        lines = str(error).splitlines()
        raise ConfigError("\n".join(f"{path}, schedules[{place}]: {line}" for line in lines)) from None


def table(found: Tuned) -> list[dict[str, object]]:
    """A row per schedule of the portfolio."""
    rows = zip(found.portfolio, found.means, found.covers, strict=True)
    return [
        {
            "schedule": "; ".join(growth.label for growth in line) or "nothing",
            "network value": mean,
            "best so far": cover,
        }
        for line, mean, cover in rows
    ]


def summary(found: Tuned) -> list[str]:
    """What was found, in words."""
    name = "; ".join(growth.label for growth in found.best) or "nothing"
    return [
        f"the best of {found.lines} schedules grows {name}",
        f"network value {found.best_mean:.4f}, and {found.idle_mean:.4f} without growing: mean over {found.instances} "
        f"training instances, {found.worlds} worlds each",
        f"the best of the portfolio for each instance: {found.covers[-1]:.4f}, judged where it was not picked",
    ]
