"""Search for the best fixed schedule on training instances, and for a portfolio of schedules."""

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
from morphogen.evaluation.schedule_search import (
    Candidate,
    build_schedule,
    initial_candidates,
    neighbours,
    score_schedules,
    training_instances,
)
from morphogen.learn.exchange import ALONE, Exchange
from morphogen.storage import files
from morphogen.storage.files import error_line, parse_json, read_bytes
from morphogen.vocab.text import format_value

PlayCandidates = Callable[[Sequence[Candidate], int], Array]  # lines, instances n -> network value [K, W, n]
PORTFOLIO_VERSION = 1
PORTFOLIO_SIZE = 6  # schedules of a portfolio
TRIAL_DIVISORS = (12, 3, 1)  # a trial plays one in so many of the instances
SURVIVOR_COUNTS = (24, 16)  # candidates that stay for the next trial
NEIGHBOUR_PARENTS = 6  # candidates whose neighbours join the second trial
ENVS_FACTOR = 4  # times the envs of a run that are played side by side


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search, and its instances."""

    best: Candidate
    portfolio: tuple[Candidate, ...]  # in the order in which they were chosen
    means: tuple[float, ...]  # mean network value of each of them alone
    portfolio_values: tuple[float, ...]  # and of the best of those up to it, picked in one world and judged in another
    best_mean: float
    idle_mean: float  # of growing nothing
    instances: int
    worlds: int
    candidate_count: int  # that were tried


def search_schedules(
    spec: RunSpec,
    *,
    instances: int,
    worlds: int,
    report: Callable[[str], None],
    static: bool = False,
    exchange: Exchange = ALONE,
) -> SearchResult:
    """The search in worlds of a resolved spec; a ConfigError where no seed can be kept in it.

    static: only seeds that are germinated as early as they can be, and stay.
    """
    if initial_candidates(spec) == [()]:
        raise ConfigError(
            f"no seed can be germinated and fossilized in {spec.episode_length} epochs: raise episode_length, lower "
            "lifecycle.min_training_epochs, or disable fewer ops"
        )
    setup = build_setup(spec, exchange)
    transfers = Transfers(setup.device, time.perf_counter)

    def play(lines: Sequence[Candidate], count: int) -> Array:
        schedules = [build_schedule(line, spec) for line in lines]
        ground = training_instances(spec, count)
        search: Any = {"worlds": range(worlds), "rows": ENVS_FACTOR * spec.envs}
        return score_schedules(setup, transfers, schedules, ground, **search)

    return halve_candidates(spec, play, instances=instances, report=report, static=static)


def halve_candidates(
    spec: RunSpec, play: PlayCandidates, *, instances: int, report: Callable[[str], None], static: bool = False
) -> SearchResult:
    """Successive halving: all lines on a few instances, then the better ones and what is near them on more.

    A candidate stays for its mean, as the best on some instances, or as the best of its blueprints, so that seeds
    that pay on few instances are not lost if the first trials lack these instances.
    """
    lines = initial_candidates(spec, static=static)
    tried = set(lines)
    for share, count in zip(TRIAL_DIVISORS, SURVIVOR_COUNTS, strict=False):
        values = _run_trial(play, lines, math.ceil(instances / share), report)
        kept = dict.fromkeys([*_select_promising(values, count), *_best_per_blueprints(lines, values)])
        lines = [lines[i] for i in kept]
        grown = static or share == TRIAL_DIVISORS[0]  # static nets grow by a seed in every trial
        near = neighbours(lines[:NEIGHBOUR_PARENTS], spec, static=static) if grown else []
        lines = list(dict.fromkeys([*lines, *near]))
        tried |= set(lines)
    lines = list(dict.fromkeys([*lines, ()]))
    values = _run_trial(play, lines, instances, report)
    means = values.mean(axis=(1, 2))
    chosen, covers = choose_portfolio(values, PORTFOLIO_SIZE)
    return SearchResult(
        best=lines[means.argmax()],
        portfolio=tuple(lines[i] for i in chosen),
        means=tuple(float(means[i]) for i in chosen),
        portfolio_values=covers,
        best_mean=float(means.max()),
        idle_mean=float(means[lines.index(())]),
        instances=instances,
        worlds=values.shape[1],
        candidate_count=len(tried),
    )


def _run_trial(
    play: PlayCandidates, candidates: Sequence[Candidate], count: int, report: Callable[[str], None]
) -> Array:
    values = play(candidates, count)
    best = values.mean(axis=(1, 2)).max()
    report(f"{len(candidates)} schedules on {count} instances: best mean value {best:.4f}")
    return values


def _select_promising(values: Array, count: int) -> list[int]:
    """The best lines first: half of the places go to the best mean, the others to a cover.  values [K, W, n]."""
    ranked = np.argsort(-values.mean(axis=(1, 2)), kind="stable").tolist()
    both = [*ranked[: count // 2], *choose_portfolio(values, count // 2)[0], *ranked[count // 2 :]]
    return list(dict.fromkeys(both))[:count]


def _best_per_blueprints(candidates: Sequence[Candidate], values: Array) -> list[int]:
    """The line with the best mean among those that grow the same blueprints.  values [K, W, n]."""
    best: dict[tuple[int, ...], int] = {}
    for i in np.argsort(-values.mean(axis=(1, 2)), kind="stable").tolist():
        best.setdefault(tuple(int(growth.blueprint) for growth in candidates[i]), i)
    return list(best.values())


def choose_portfolio(values: Array, size: int) -> tuple[list[int], tuple[float, ...]]:
    """Lines that are good between them, chosen one by one, and the worth of those up to each.  values [K, W, n].

    Per instance the line is picked in all worlds but one and judged in that one, so that luck is not taken for worth.
    """
    chosen: list[int] = []
    covers: list[float] = []
    while len(chosen) < min(size, len(values)):
        worth = {k: cross_world_value(values[[*chosen, k]]) for k in range(len(values)) if k not in chosen}
        best = max(worth, key=worth.__getitem__)
        if covers and worth[best] <= covers[-1]:
            break
        chosen.append(best)
        covers.append(worth[best])
    return chosen, tuple(covers)


def cross_world_value(values: Array) -> float:
    """Mean worth of the pick of each instance, in the world that had no part in the pick.  values [P, W, n], W > 1."""
    elsewhere = values.sum(axis=1, keepdims=True) - values
    return float(np.take_along_axis(values, elsewhere.argmax(axis=0)[None], axis=0).mean())


def write_schedules(result: SearchResult, spec: RunSpec, best: Path, portfolio: Path) -> None:
    """The two files: the schedule as `--policy schedule:FILE` takes it, and the portfolio."""
    schedules = [json.loads(dump_schedule(build_schedule(line, spec), spec)) for line in result.portfolio]
    contents = {
        "version": PORTFOLIO_VERSION,
        "task": spec.task,
        "seed": spec.seed,
        "instances": result.instances,
        "worlds": result.worlds,
        "schedules_tried": result.candidate_count,
        "best_mean": result.best_mean,
        "idle_mean": result.idle_mean,
        "means": result.means,
        "covers": result.portfolio_values,
        "schedules": schedules,
    }
    schedule = dump_schedule(build_schedule(result.best, spec), spec).encode()
    for path, text in ((best, schedule), (portfolio, files.json_bytes(contents))):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, text)


def read_portfolio(path: Path, spec: RunSpec) -> tuple[Schedule, ...]:
    """Read the schedules of a portfolio file for a resolved spec; raise ConfigError for an invalid file."""
    try:
        contents = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {error_line(error)}") from None
    rows = contents.get("schedules")
    if not isinstance(rows, list) or contents.get("version") != PORTFOLIO_VERSION:
        expected = f"a portfolio of version {PORTFOLIO_VERSION} written by `morphogen tune`"
        raise ConfigError(f"{path}: expected {expected}, got {format_value(contents)}")
    schedules = []
    for i, row in enumerate(rows):
        try:
            schedules.append(parse_schedule(json.dumps(row), spec))
        except ConfigError as error:
            lines = str(error).splitlines()
            raise ConfigError("\n".join(f"{path}, schedules[{i}]: {line}" for line in lines)) from None
    return tuple(schedules)


def portfolio_table(result: SearchResult) -> list[dict[str, object]]:
    """A row per schedule of the portfolio."""
    rows = zip(result.portfolio, result.means, result.portfolio_values, strict=True)
    return [
        {"schedule": _candidate_label(line), "mean value": mean, "best so far": cover} for line, mean, cover in rows
    ]


def _candidate_label(candidate: Candidate) -> str:
    return "; ".join(growth.label for growth in candidate) or "nothing"


def summary_numbers(result: SearchResult) -> dict[str, object]:
    """Result of a search in numbers, by the words of `summary_lines`."""
    return {
        "best": _candidate_label(result.best),
        "value": result.best_mean,
        "value without growing": result.idle_mean,
        "value of the portfolio": result.portfolio_values[-1],
        "instances": result.instances,
        "worlds": result.worlds,
        "schedules": result.candidate_count,
    }


def summary_lines(result: SearchResult) -> list[str]:
    """Result of a search in words."""
    return [
        f"the best of {result.candidate_count} schedules grows {_candidate_label(result.best)}",
        f"value {result.best_mean:.4f}, and {result.idle_mean:.4f} without growing: "
        f"mean over {result.instances} training instances, {result.worlds} worlds each",
        f"the best of the portfolio for each instance: {result.portfolio_values[-1]:.4f}, "
        "judged where it was not picked",
    ]
