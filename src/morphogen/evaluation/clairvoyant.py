"""Clairvoyant: for each instance the best schedule laid along its phases, which no policy is shown.

Found in sibling worlds, which share the phases, and judged in another: the value is not that of a lucky draw.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
import torch

from morphogen.config.action_schedule import Schedule
from morphogen.config.spec import RunSpec, build_limits
from morphogen.data.world_phases import phase_number
from morphogen.device.collectives import Collectives
from morphogen.device.transfers import Transfers
from morphogen.engine.episodes import Array
from morphogen.engine.setup import Setup
from morphogen.evaluation.rank_parts import ONE_PROCESS
from morphogen.evaluation.schedule_search import (
    RESTING_EPOCHS,
    Candidate,
    GrowthStep,
    InstanceSet,
    build_schedule,
    is_feasible,
    neighbours,
    score_lines,
)
from morphogen.vocab.blueprint import Blueprint

SEARCH_WORLDS = (1, 2)  # siblings in which schedules are compared; the pick is judged in world 0
MAX_PHASES = 5  # phases in which growing is decided one by one; the later ones follow the last of them
SURVIVORS = 3  # schedules of an instance whose neighbours are tried
Plan = tuple[Blueprint | None, ...]  # the seed that lives in each phase; None = none
Report = Callable[[str], None]  # receives lines of progress


class ClairvoyantSearch(NamedTuple):
    """Schedules found for instances, and their values in the worlds of the search."""

    picks: tuple[Candidate, ...]  # per instance
    values: Array  # float [n], means over the worlds of the search
    tried: int  # schedules played, over all instances


def no_report(line: str) -> None:
    """Receive a line of progress and drop it."""


def phase_starts(spec: RunSpec, instances: InstanceSet) -> list[tuple[int, ...]]:
    """Return the first epochs of the phases of each instance, ascending from 0."""
    count, horizon = len(instances.tasks), spec.episode_length
    episode = torch.full((count * horizon,), instances.episode + instances.split.first_episode)
    epoch = torch.arange(horizon).repeat(count)
    key = instances.tasks.repeat_interleave(horizon, 0)
    number = phase_number(key, episode, epoch, spec=spec.phase, horizon=horizon).view(count, horizon)
    return [tuple(np.unique(row, return_index=True)[1].tolist()) for row in number.numpy()]


def lay_plan(plan: Plan, starts: Sequence[int], slot: str, spec: RunSpec) -> Candidate:
    """Build the candidate of a plan: a seed is germinated when its phases begin, and pruned when they are over.

    A seed that lives in several phases in a row stays; after a pruning the next seed waits until its env is ready.
    """
    ready, growths = 0, list[GrowthStep]()
    ends = (*starts[1:], None)
    runs = [[*group] for _, group in groupby(zip(plan, starts, ends, strict=True), key=lambda row: row[0])]
    for run in runs:
        kind, begin, end = run[0][0], run[0][1], run[-1][2]
        if kind is None:
            continue
        growths.append(GrowthStep(max(begin, ready), slot, kind, pruning=end))
        ready = 0 if end is None else end + spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    return tuple(growths)


def search_along_phases(
    setup: Setup,
    transfers: Transfers,
    instances: InstanceSet,
    *,
    rows: int,
    report: Report = no_report,
    collectives: Collectives = ONE_PROCESS,
) -> ClairvoyantSearch:
    """Search the best schedule of each instance along its phases, in sibling worlds, in three trials.

    First one seed of each blueprint that stays; then the best blueprint in every subset of the phases; then what is
    near the best of these: another blueprint in one phase, a germination or a pruning a little earlier or later.
    """
    spec = setup.spec
    kinds, starts = [Blueprint(code) for code in build_limits(spec).allowed_blueprints], phase_starts(spec, instances)
    slot, count = spec.slots[0], len(starts)
    known: list[dict[Candidate, float]] = [{} for _ in starts]  # means over the worlds, per instance

    def play(wanted: Sequence[Iterable[Candidate]], title: str) -> None:
        lines = [(i, line) for i in range(count) for line in dict.fromkeys(wanted[i]) if line not in known[i]]
        lines = [(i, line) for i, line in lines if is_feasible(line, spec)]
        if not lines:
            return
        built: dict[Candidate, Schedule] = {line: build_schedule(line, spec) for _, line in lines}
        report(f"{title}: {len(lines):,} schedules of {count} instances in {len(SEARCH_WORLDS)} worlds")
        places = torch.tensor([i for i, _ in lines], dtype=torch.int64)
        more: Any = {"worlds": SEARCH_WORLDS, "rows": rows, "collectives": collectives}
        values = score_lines(setup, transfers, [built[line] for _, line in lines], instances.choose(places), **more)
        for (i, line), value in zip(lines, values.mean(axis=0).tolist(), strict=True):
            known[i][line] = value

    def best(i: int, size: int) -> list[Candidate]:
        return sorted(known[i], key=lambda line: -known[i][line])[:size]

    everywhere = [[(), *(lay_plan((kind,) * len(one), one, slot, spec) for kind in kinds)] for one in starts]
    play(everywhere, "one seed that stays")
    leaders = [next((line for line in best(i, len(known[i])) if line), None) for i in range(count)]
    plans = [
        [] if line is None else _subset_plans(line[0].blueprint, len(one))
        for line, one in zip(leaders, starts, strict=True)
    ]
    play(
        [[lay_plan(plan, one, slot, spec) for plan in own] for own, one in zip(plans, starts, strict=True)],
        "seeds in some phases",
    )
    play([_near(best(i, SURVIVORS), kinds, spec) for i in range(count)], "what is near the best")
    picks = tuple(best(i, 1)[0] for i in range(count))
    values = np.array([known[i][line] for i, line in enumerate(picks)])
    return ClairvoyantSearch(picks, values, sum(map(len, known)))


def _subset_plans(kind: Blueprint, phases: int) -> list[Plan]:
    """A seed of one kind in every subset of the phases; those beyond MAX_PHASES are as the last one that counts."""
    free = min(phases, MAX_PHASES)
    return [(*plan, *plan[-1:] * (phases - free)) for plan in product((None, kind), repeat=free)]


def _near(lines: Sequence[Candidate], kinds: Sequence[Blueprint], spec: RunSpec) -> list[Candidate]:
    """Candidates near the given ones; also one of their seeds with another blueprint."""
    swapped = [
        (*line[:i], growth._replace(blueprint=kind), *line[i + 1 :])
        for line in lines
        for i, growth in enumerate(line)
        for kind in kinds
        if kind is not growth.blueprint
    ]
    return [*neighbours(lines, spec), *swapped]
