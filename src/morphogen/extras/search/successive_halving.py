"""Successive halving, and the search for the best fixed schedule on training instances."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from morphogen.env.episodes import Array
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import PlayContext, Report
from morphogen.extras.schedules.action_schedule import dump_schedule
from morphogen.extras.search.candidates import (
    Candidate,
    build_schedule,
    describe_candidate,
    initial_candidates,
    neighbours,
)
from morphogen.extras.search.instance_sets import score_schedules, training_instances

C = TypeVar("C", bound=Hashable)
FIRST_DIVISOR = 12  # the first trial plays one in so many of the instances
NEXT_TRIALS = ((3, 24), (1, 16))  # divisors, and candidates that stay for their mean
NEIGHBOUR_PARENTS = 6  # candidates whose neighbours join a trial


def halve_candidates(
    candidates: Sequence[C],
    play: Callable[[Sequence[C], int], Iterable[float]],
    near: Callable[[Sequence[C]], Iterable[C]],
    *,
    group: Callable[[C], object],
    parents: tuple[int, int],
    instances: int,
    report: Report,
) -> tuple[dict[C, float], int]:
    """Play all candidates on a few instances, then the better ones and their neighbours on more.

    A candidate stays for its mean, or as the best of its group, so that seeds that pay on few
    instances are not lost if the first trials lack these instances.  The first one always stays.

    Args:
        candidates: of the first trial.
        play: returns the mean values of candidates on a number of instances.
        near: returns the neighbours of candidates.
        group: of a candidate.
        parents: number of candidates whose neighbours join each further trial.
        instances: of the last trial.
        report: receives a line after each trial.

    Returns: mean values of the candidates of the last trial, and the number of tried candidates.
    """
    first = candidates[0]
    tried = set(candidates)
    means = _run_trial(candidates, play, math.ceil(instances / FIRST_DIVISOR), report)
    for (divisor, count), size in zip(NEXT_TRIALS, parents, strict=True):
        ranked = sorted(means, key=means.__getitem__, reverse=True)
        best = {group(candidate): candidate for candidate in reversed(ranked)}
        kept = dict.fromkeys([*ranked[:count], *best.values(), first, *near(ranked[:size])])
        tried.update(kept)
        means = _run_trial([*kept], play, math.ceil(instances / divisor), report)
    return means, len(tried)


def _run_trial(
    candidates: Sequence[C],
    play: Callable[[Sequence[C], int], Iterable[float]],
    count: int,
    report: Report,
) -> dict[C, float]:
    means = dict(zip(candidates, play(candidates, count), strict=True))
    best = max(means.values())
    report(f"{len(candidates)} candidates on {count} instances: best mean value {best:.4f}")
    return means


def search_schedules(
    context: PlayContext, *, instances: int, worlds: int, static: bool = False
) -> tuple[dict[str, Any], bytes]:
    """Search the schedule of the largest mean value; return the report and the file.

    Raises: ConfigError where no seed can be kept.
    static: only seeds that are germinated as early as they can be, and stay.
    """
    spec = context.setup.spec
    if initial_candidates(spec) == [()]:
        raise ConfigError(
            f"no seed can be germinated and fossilized in {spec.episode_length} epochs: raise "
            "episode_length, lower lifecycle.min_training_epochs, or disable fewer ops"
        )

    by_world: dict[Candidate, Array] = {}  # [W] of the last trial of each candidate

    def play(candidates: Sequence[Candidate], count: int) -> list[float]:
        schedules = [build_schedule(candidate, spec) for candidate in candidates]
        values = score_schedules(
            context, schedules, training_instances(spec, count), worlds=range(worlds)
        ).mean(axis=2)
        by_world.update(zip(candidates, values, strict=True))
        return values.mean(axis=1).tolist()

    means, tried = halve_candidates(
        initial_candidates(spec, static=static),
        play,
        partial(neighbours, spec=spec, static=static),
        group=lambda candidate: tuple(growth.blueprint for growth in candidate),
        # static networks grow by a seed in every trial
        parents=(NEIGHBOUR_PARENTS, NEIGHBOUR_PARENTS if static else 0),
        instances=instances,
        report=context.report,
    )
    best = max(means, key=means.__getitem__)
    numbers = {
        "best": describe_candidate(best),
        "value": means[best],
        "value in other worlds": cross_world_value(np.stack([by_world[each] for each in means])),
        "value without growing": means[()],
        "schedules": tried,
    }
    return numbers, dump_schedule(build_schedule(best, spec), spec).encode()


def cross_world_value(values: Array) -> float:
    """Mean value of the best candidate in a world that had no part in its choice.

    Unlike the largest mean, it takes no luck for value.  values float [K, W], W > 1.
    """
    other_worlds = values.sum(axis=1, keepdims=True) - values
    return float(np.take_along_axis(values, other_worlds.argmax(axis=0)[None], axis=0).mean())
