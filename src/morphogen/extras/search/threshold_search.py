"""Search the thresholds of the heuristic on training instances: successive halving over a grid."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from morphogen.config import files
from morphogen.config.fields import to_settings
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.spec import RunSpec, build_limits
from morphogen.device.transfers import Transfers
from morphogen.env.episodes import Array
from morphogen.env.setup import build_setup
from morphogen.evaluation.arms import PlayContext, Report
from morphogen.extras.search.instance_sets import (
    InstanceSet,
    play_values,
    training_instances,
)
from morphogen.extras.search.search_result import SearchResult
from morphogen.policy.heuristic import build_heuristic
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

GRID: dict[str, tuple[Any, ...]] = {  # thresholds, in addition to the order of blueprints and slots
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
# candidates that stay for the next trial; what is near the best of them joins
SURVIVOR_COUNTS = (12, 6)
PARENTS = 3


def search_thresholds(
    spec: RunSpec, *, instances: int, worlds: int, report: Report, exchange: Exchange = ALONE
) -> SearchResult:
    """Search the thresholds of the largest mean value on training instances of a resolved spec."""
    setup = build_setup(spec, exchange)
    context = PlayContext(setup, Transfers(setup.device, time.perf_counter))
    candidates = draw_thresholds(spec)
    means: dict[HeuristicSpec, float] = {}
    tried = set(candidates)
    for divisor, survivors in zip(TRIAL_DIVISORS, (*SURVIVOR_COUNTS, 1), strict=True):
        count = math.ceil(instances / divisor)
        chosen = training_instances(spec, count)
        means = {
            candidate: float(
                score_thresholds(context, candidate, chosen, worlds=range(worlds)).mean()
            )
            for candidate in candidates
        }
        ranked = sorted(candidates, key=lambda candidate: -means[candidate])
        report(
            f"{len(candidates)} rules on {count} instances: best mean value {means[ranked[0]]:.4f}"
        )
        parents = ranked[:PARENTS] if divisor == TRIAL_DIVISORS[0] else []
        near = [other for parent in parents for other in near_thresholds(parent, spec)]
        candidates = list(dict.fromkeys([*ranked[:survivors], *near]))
        tried |= set(candidates)
    best = candidates[0]
    numbers: dict[str, object] = {
        "best": to_settings(best),
        "value": means[best],
        "instances": instances,
        "worlds": worlds,
        "sets of thresholds": len(tried),
    }
    return SearchResult(best, numbers, (files.json_bytes({"heuristic": to_settings(best)}),), {})


def score_thresholds(
    context: PlayContext,
    thresholds: HeuristicSpec,
    instances: InstanceSet,
    *,
    worlds: Sequence[int],
) -> Array:
    """Value of the rules on instances, in siblings of their worlds: float [len(worlds), n]."""
    setup = context.setup
    policy = build_heuristic(replace(setup.spec, heuristic=thresholds), setup.limits)
    values = play_values(context, instances, worlds=worlds, policy=policy)
    return np.reshape(values, (len(worlds), len(instances.tasks)))


def draw_thresholds(spec: RunSpec) -> list[HeuristicSpec]:
    """Draw candidates from the grid, the same for every search with a seed; own ones first."""
    grid = _full_grid(spec)
    stream = rng.stream(rng.env_keys(spec.seed, 0, DRAWN), Purpose.BASELINE)
    words = rng.random_bits(stream, len(grid))
    columns = [
        [axis[i] for i in rng.bounded_ints(words[:, k], len(axis)).tolist()]
        for k, axis in enumerate(grid.values())
    ]
    drawn = [
        HeuristicSpec(**dict(zip(grid, row, strict=True))) for row in zip(*columns, strict=True)
    ]
    return list(dict.fromkeys([spec.heuristic, *drawn]))


def near_thresholds(thresholds: HeuristicSpec, spec: RunSpec) -> list[HeuristicSpec]:
    """Candidates with one other threshold, a step of the grid away, or blueprint, or slot."""
    found: list[HeuristicSpec] = []
    for name, axis in _full_grid(spec).items():
        now = getattr(thresholds, name)
        place = axis.index(now) if now in axis else 0
        steps = axis if name in ("blueprints", "slots") else axis[max(0, place - 1) : place + 2]
        found += [replace(thresholds, **{name: value}) for value in steps if value != now]
    return found


def _full_grid(spec: RunSpec) -> dict[str, tuple[Any, ...]]:
    """The grid, with all blueprints and slots and each alone; `min_loss` if the run has one."""
    limits = build_limits(spec)
    alone = tuple((limits.kinds[code],) for code in limits.allowed_blueprints)
    levels = {} if spec.heuristic.min_loss is None else {"min_loss": LEVELS}
    return {
        "blueprints": ((), *alone),
        "slots": ((), *((slot,) for slot in spec.slots)),
        **GRID,
        **levels,
    }
