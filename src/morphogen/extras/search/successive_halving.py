"""Search for the best fixed schedule on training instances, and for a portfolio of schedules."""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from morphogen.config import files
from morphogen.config.files import error_line, parse_json, read_bytes
from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.env.episodes import Array
from morphogen.env.setup import build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import PlayContext, Report
from morphogen.extras.schedules.action_schedule import Schedule, dump_schedule, parse_schedule
from morphogen.extras.search.candidates import (
    Candidate,
    build_schedule,
    describe_candidate,
    initial_candidates,
    neighbours,
)
from morphogen.extras.search.instance_sets import score_schedules, training_instances
from morphogen.extras.search.search_result import SearchResult
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.vocab.text import format_value

# candidates, instances n -> network value [K, W, n]
PlayCandidates = Callable[[Sequence[Candidate], int], Array]
PORTFOLIO_VERSION = 1
PORTFOLIO_SIZE = 6  # schedules of a portfolio
TRIAL_DIVISORS = (12, 3, 1)  # a trial plays one in so many of the instances
SURVIVOR_COUNTS = (24, 16)  # candidates that stay for the next trial
NEIGHBOUR_PARENTS = 6  # candidates whose neighbours join the second trial
ENVS_FACTOR = 4  # times the envs of a run that are played side by side


def _dump(candidate: Candidate, spec: RunSpec) -> bytes:
    return dump_schedule(build_schedule(candidate, spec), spec).encode()


def search_schedules(
    spec: RunSpec,
    *,
    instances: int,
    worlds: int,
    report: Report,
    static: bool = False,
    exchange: Exchange = ALONE,
) -> SearchResult:
    """Search in worlds of a resolved spec; raise ConfigError where no seed can be kept in it.

    static: only seeds that are germinated as early as they can be, and stay.
    """
    if initial_candidates(spec) == [()]:
        raise ConfigError(
            f"no seed can be germinated and fossilized in {spec.episode_length} epochs: raise "
            "episode_length, lower lifecycle.min_training_epochs, or disable fewer ops"
        )
    setup = build_setup(spec, exchange)
    context = PlayContext(setup, Transfers(setup.device, time.perf_counter))

    def play(candidates: Sequence[Candidate], count: int) -> Array:
        return score_schedules(
            context,
            [build_schedule(candidate, spec) for candidate in candidates],
            training_instances(spec, count),
            worlds=range(worlds),
            rows=ENVS_FACTOR * spec.envs,
        )

    return halve_candidates(spec, play, instances=instances, report=report, static=static)


def halve_candidates(
    spec: RunSpec, play: PlayCandidates, *, instances: int, report: Report, static: bool = False
) -> SearchResult:
    """Play all candidates on a few instances, then the better ones and their neighbours on more.

    A candidate stays for its mean, as the best on some instances, or as the best of its blueprints.
    So seeds that pay on few instances are not lost if the first trials lack these instances.
    """
    candidates = initial_candidates(spec, static=static)
    tried = set(candidates)
    for divisor, count in zip(TRIAL_DIVISORS, SURVIVOR_COUNTS, strict=False):
        values = _run_trial(play, candidates, math.ceil(instances / divisor), report)
        kept = dict.fromkeys(
            [*_select_promising(values, count), *_best_per_blueprints(candidates, values)]
        )
        candidates = [candidates[i] for i in kept]
        if static or divisor == TRIAL_DIVISORS[0]:  # static nets grow by a seed in every trial
            candidates += neighbours(candidates[:NEIGHBOUR_PARENTS], spec, static=static)
        candidates = list(dict.fromkeys(candidates))
        tried |= set(candidates)
    candidates = list(dict.fromkeys([*candidates, ()]))
    values = _run_trial(play, candidates, instances, report)
    means = values.mean(axis=(1, 2))
    chosen, portfolio_values = choose_portfolio(values, PORTFOLIO_SIZE)
    best = candidates[means.argmax()]
    size = {"instances": instances, "worlds": values.shape[1]}
    numbers: dict[str, object] = {
        "best": describe_candidate(best),
        "value": float(means.max()),
        "value without growing": float(means[candidates.index(())]),
        "value of the portfolio": portfolio_values[-1],
        **size,
        "schedules": len(tried),
    }
    rows: list[dict[str, object]] = [
        {
            "schedule": describe_candidate(candidates[i]),
            "mean value": float(means[i]),
            "best so far": value,
        }
        for i, value in zip(chosen, portfolio_values, strict=True)
    ]
    contents = {
        "version": PORTFOLIO_VERSION,
        "task": spec.task,
        "seed": spec.seed,
        **size,
        "schedules": [json.loads(_dump(candidates[i], spec)) for i in chosen],
    }
    return SearchResult(
        best,
        numbers,
        (_dump(best, spec), files.json_bytes(contents)),
        {"the portfolio, on the training instances it was chosen on": rows},
    )


def _run_trial(
    play: PlayCandidates, candidates: Sequence[Candidate], count: int, report: Report
) -> Array:
    values = play(candidates, count)
    best = values.mean(axis=(1, 2)).max()
    report(f"{len(candidates)} schedules on {count} instances: best mean value {best:.4f}")
    return values


def _rank(values: Array) -> list[int]:
    """Places of the candidates by their mean, the best first.  values [K, W, n]."""
    return np.argsort(-values.mean(axis=(1, 2)), kind="stable").tolist()


def _select_promising(values: Array, count: int) -> list[int]:
    """Places of the best candidates, half by mean, half by portfolio.  values [K, W, n]."""
    half = count // 2
    ranked = _rank(values)
    chosen, _ = choose_portfolio(values, half)
    return list(dict.fromkeys([*ranked[:half], *chosen, *ranked[half:]]))[:count]


def _best_per_blueprints(candidates: Sequence[Candidate], values: Array) -> list[int]:
    """Places of the best means among candidates of the same blueprints.  values [K, W, n]."""
    best: dict[tuple[int, ...], int] = {}
    for i in _rank(values):
        best.setdefault(tuple(int(growth.blueprint) for growth in candidates[i]), i)
    return list(best.values())


def choose_portfolio(values: Array, size: int) -> tuple[list[int], tuple[float, ...]]:
    """Choose a portfolio greedily; also return its value after each addition.  values [K, W, n].

    The candidate of an instance is picked in all worlds but one and judged in that one, to avoid
    selection bias.
    """
    chosen: list[int] = []
    portfolio_values: list[float] = []
    while len(chosen) < min(size, len(values)):
        value = {
            k: cross_world_value(values[[*chosen, k]])
            for k in range(len(values))
            if k not in chosen
        }
        best = max(value, key=value.__getitem__)
        if portfolio_values and value[best] <= portfolio_values[-1]:
            break
        chosen.append(best)
        portfolio_values.append(value[best])
    return chosen, tuple(portfolio_values)


def cross_world_value(values: Array) -> float:
    """Mean value of the picks in worlds that had no part in the pick.  values [P, W, n], W > 1."""
    other_worlds = values.sum(axis=1, keepdims=True) - values
    return float(np.take_along_axis(values, other_worlds.argmax(axis=0)[None], axis=0).mean())


def read_portfolio(path: Path, spec: RunSpec) -> tuple[Schedule, ...]:
    """Read the schedules of a portfolio file for a resolved spec.  Raises: ConfigError."""
    try:
        contents = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {error_line(error)}") from None
    rows = contents.get("schedules")
    if not isinstance(rows, list) or contents.get("version") != PORTFOLIO_VERSION:
        expected = f"a portfolio of version {PORTFOLIO_VERSION} written by `morphogen tune`"
        raise ConfigError(f"{path}: expected {expected}, got {format_value(contents)}")
    schedules: list[Schedule] = []
    for i, row in enumerate(rows):
        try:
            schedules.append(parse_schedule(json.dumps(row), spec))
        except ConfigError as error:
            lines = str(error).splitlines()
            raise ConfigError(
                "\n".join(f"{path}, schedules[{i}]: {line}" for line in lines)
            ) from None
        if any(step.env is not None for step in schedules[i].steps):
            wanted = "expected steps for every env, got a step that names an env"
            raise ConfigError(f"{path}, schedules[{i}]: {wanted}")
    return tuple(schedules)
