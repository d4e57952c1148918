"""Search for the thresholds of the heuristic on training instances."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from morphogen.config import files
from morphogen.config.fields import to_settings
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.spec import RunSpec, build_limits
from morphogen.env.episodes import Array
from morphogen.evaluation.arms import PlayContext
from morphogen.extras.search.instance_sets import InstanceSet, play_values, training_instances
from morphogen.extras.search.successive_halving import halve_candidates
from morphogen.policy.heuristic import build_heuristic
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
PARENTS = 3  # candidates whose neighbours join the second trial


def search_thresholds(
    context: PlayContext, *, instances: int, worlds: int
) -> tuple[dict[str, Any], bytes]:
    """Search the thresholds of the largest mean value; return the report and the file."""
    spec = context.setup.spec

    def play(candidates: Sequence[HeuristicSpec], count: int) -> list[float]:
        chosen = training_instances(spec, count)
        return [
            float(score_thresholds(context, candidate, chosen, worlds=range(worlds)).mean())
            for candidate in candidates
        ]

    means, tried = halve_candidates(
        draw_thresholds(spec),
        play,
        partial(near_thresholds, spec=spec),
        group=lambda candidate: candidate.blueprints,
        parents=(PARENTS, 0),
        instances=instances,
        report=context.report,
    )
    best = max(means, key=means.__getitem__)
    numbers = {
        "best": to_settings(best),
        "value": means[best],
        "value of the own thresholds": means[spec.heuristic],
        "sets of thresholds": tried,
    }
    return numbers, files.json_bytes({"heuristic": to_settings(best)})


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
    return np.stack([play_values(context, instances, world, policy=policy) for world in worlds])


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


def near_thresholds(candidates: Sequence[HeuristicSpec], spec: RunSpec) -> list[HeuristicSpec]:
    """Candidates with one other threshold, a step of the grid away, or blueprint, or slot."""
    near: list[HeuristicSpec] = []
    for thresholds, (name, axis) in product(candidates, _full_grid(spec).items()):
        now = getattr(thresholds, name)
        place = axis.index(now) if now in axis else 0
        steps = axis if name in ("blueprints", "slots") else axis[max(0, place - 1) : place + 2]
        near += [replace(thresholds, **{name: value}) for value in steps if value != now]
    return near


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
