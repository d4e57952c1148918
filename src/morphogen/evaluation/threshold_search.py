"""Search for the thresholds of the heuristic on training instances: successive halving over a grid."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from morphogen.config.fields import to_settings
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.spec import RunSpec, build_limits
from morphogen.device.transfers import Transfers
from morphogen.engine.environment import open_environment
from morphogen.engine.episodes import Array, fetch_all_traces, run_episodes
from morphogen.engine.setup import Setup, build_setup
from morphogen.evaluation.schedule_search import InstanceSet, training_instances
from morphogen.learn.exchange import ALONE, Exchange
from morphogen.learn.heuristic import build_heuristic
from morphogen.state import rng
from morphogen.storage import files
from morphogen.telemetry.round_summary import running_value
from morphogen.vocab.purpose import Purpose

GRID: dict[str, tuple[Any, ...]] = {  # thresholds, beside the order of blueprints and of slots
    "max_cost": (0.05, 0.1, 0.2, 0.3, 0.5),
    "max_seeds": (0, 1),
    "first_epoch": (0, 2, 5),
    "min_plateau": (0, 1, 2, 4, 8),
    "min_fall": (None, 5.0, 15.0),
    "min_worth": (-100.0, -2.0, 0.0, 2.0, 5.0),
    "patience": (1, 2, 4, 8),
}
LEVELS = (None, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5)  # of `min_loss`
DRAWN = 64  # candidates of the first trial
TRIAL_DIVISORS = (6, 2, 1)  # a trial plays one in so many of the instances
SURVIVOR_COUNTS = (12, 6)  # candidates that stay for the next trial; what is near the best of them joins
PARENTS = 3


class ThresholdResult(NamedTuple):
    """Best thresholds of a search."""

    best: HeuristicSpec
    mean: float  # value over all instances and worlds
    candidates: int  # that were tried
    episodes: int  # that were played
    instances: int
    worlds: int


def search_thresholds(
    spec: RunSpec, *, instances: int, worlds: int, report: Callable[[str], None], exchange: Exchange = ALONE
) -> ThresholdResult:
    """Search the thresholds with the largest mean value on training instances of a resolved spec."""
    setup = build_setup(spec, exchange)
    transfers = Transfers(setup.device, time.perf_counter)
    lines: list[HeuristicSpec] = draw_thresholds(spec)
    tried, episodes = dict[HeuristicSpec, float](), 0
    seen = set(lines)
    for share, keep in zip(TRIAL_DIVISORS, (*SURVIVOR_COUNTS, 1), strict=True):
        count = math.ceil(instances / share)
        ground = training_instances(spec, count)
        more: Any = {"worlds": range(worlds)}
        tried = {line: float(score_thresholds(setup, transfers, line, ground, **more).mean()) for line in lines}
        episodes += len(lines) * count * worlds
        ranked = sorted(lines, key=lambda line: -tried[line])
        report(f"{len(lines)} rules on {count} instances: best mean value {tried[ranked[0]]:.4f}")
        parents = ranked[:PARENTS] if share == TRIAL_DIVISORS[0] else []
        lines = _unique([*ranked[:keep], *(other for line in parents for other in near_thresholds(line, spec))])
        seen |= set(lines)
    return ThresholdResult(lines[0], tried[lines[0]], len(seen), episodes, instances, worlds)


def score_thresholds(
    setup: Setup, transfers: Transfers, thresholds: HeuristicSpec, instances: InstanceSet, *, worlds: Sequence[int]
) -> Array:
    """Value of the rules on instances, in siblings of their worlds: float [len(worlds), n]."""
    policy = build_heuristic(replace(setup.spec, heuristic=thresholds), setup.limits)
    count, siblings = len(instances.tasks), list(worlds)
    own = setup.exchange.places(count * len(siblings))
    tasks = instances.tasks.repeat(len(siblings), 1)
    keys = torch.cat([rng.sibling_keys(instances.tasks, sibling) for sibling in siblings])
    where: Any = {"envs": keys[own], "tasks": tasks[own], "split": instances.split, "control": None}
    with open_environment(setup, **where, transfers=transfers) as env, torch.no_grad():
        played = [run_episodes(env, *env.reset(instances.episode), policy, policy.init(env.keys[0]))]
    traces = fetch_all_traces(setup.exchange, transfers, played, [len(tasks)])
    return np.reshape(running_value(traces.network_value, setup.task.objective)[-1], (len(siblings), count))


def draw_thresholds(spec: RunSpec) -> list[HeuristicSpec]:
    """Draw candidates from the grid, those of the run first; the same for every search with the seed."""
    grid = _full_grid(spec)
    stream = rng.stream(rng.env_keys(spec.seed, 0, DRAWN), Purpose.BASELINE)
    words = rng.random_bits(stream, len(grid))
    drawn = [rng.bounded_ints(words[:, i], len(axis)).tolist() for i, axis in enumerate(grid.values())]
    columns = {name: [axis[i] for i in places] for (name, axis), places in zip(grid.items(), drawn, strict=True)}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return _unique([spec.heuristic, *(HeuristicSpec(**row) for row in rows)])


def _unique(lines: Sequence[HeuristicSpec]) -> list[HeuristicSpec]:
    """Return every candidate once, in order."""
    return list(dict.fromkeys(lines))


def near_thresholds(line: HeuristicSpec, spec: RunSpec) -> list[HeuristicSpec]:
    """Candidates that differ from one in a single threshold, by a step of the grid, or in blueprint or slot."""
    found = []
    for name, axis in _full_grid(spec).items():
        now = getattr(line, name)
        place = axis.index(now) if now in axis else 0
        steps = axis if name in ("blueprints", "slots") else axis[max(0, place - 1) : place + 2]
        found += [replace(line, **{name: value}) for value in steps if value != now]
    return found


def _full_grid(spec: RunSpec) -> dict[str, tuple[Any, ...]]:
    """The grid, with every blueprint and every slot alone, and all of them; with `min_loss` if the run has one."""
    limits = build_limits(spec)
    alone = tuple((limits.kinds[code],) for code in limits.allowed_blueprints)
    levels = {} if spec.heuristic.min_loss is None else {"min_loss": LEVELS}
    return {"blueprints": ((), *alone), "slots": ((), *((slot,) for slot in spec.slots)), **GRID, **levels}


def write_thresholds(result: ThresholdResult, path: Path) -> None:
    """Write the thresholds as settings, as `reactive:FILE` and `--config` take them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, files.json_bytes({"heuristic": to_settings(result.best)}))


def summary_numbers(result: ThresholdResult) -> dict[str, object]:
    """Result of a search in numbers, by the words of `summary_lines`."""
    return {
        "best": to_settings(result.best),
        "value": result.mean,
        "instances": result.instances,
        "worlds": result.worlds,
        "episodes": result.episodes,
        "sets of thresholds": result.candidates,
    }


def summary_lines(result: ThresholdResult, spec: RunSpec) -> list[str]:
    """Result of a search in words."""
    named = ", ".join(f"{name} {value}" for name, value in to_settings(result.best).items())
    return [
        f"the best of {result.candidates} sets of thresholds: {named}",
        f"value {result.mean:.4f}: mean over {result.instances} training instances, {result.worlds} worlds each; "
        f"{result.episodes:,} episodes played (a run plays {spec.rounds * spec.envs:,})",
    ]
