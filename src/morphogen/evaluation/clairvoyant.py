"""Clairvoyant: for each instance the best schedule laid along its phases, which no policy is shown.

Found in sibling worlds, which share the phases, and judged in another: the value is not that of a lucky draw.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from morphogen.config.spec import RunSpec, build_limits
from morphogen.data.world_phases import phase_number
from morphogen.device.transfers import Transfers
from morphogen.engine.episodes import Array
from morphogen.engine.setup import Setup
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

SEARCH_WORLD, FINAL_WORLDS = 1, (2, 3)  # siblings in which all are compared, and the best; judged in world 0
FINALISTS = 8  # schedules of an instance that play the final worlds
MAX_PHASES = 5  # phases in which growing is decided one by one; the later ones follow the last of them
SURVIVORS = 3  # schedules of an instance whose neighbours are tried
Plan = tuple[Blueprint | None, ...]  # the seed that lives in each phase; None = none
Report = Callable[[str], None]  # receives lines of progress


class ClairvoyantSearch(NamedTuple):
    """Schedules found for instances, and their values in all worlds of the search."""

    picks: tuple[Candidate, ...]  # per instance
    values: Array  # float [n], means over these worlds
    tried: int  # schedules played, over all instances


def no_report(line: str) -> None:
    """Receive a line of progress and drop it."""


def phase_starts(spec: RunSpec, instances: InstanceSet) -> list[tuple[int, ...]]:
    """Return the first epochs of the phases of each instance, ascending from 0."""
    count, horizon = len(instances.tasks), spec.episode_length
    episode = torch.full((count * horizon,), instances.episode + instances.split.first_episode, device="cpu")
    epoch = torch.arange(horizon, device="cpu").repeat(count)
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


@dataclass(frozen=True)
class _Trials:
    """Schedules that have been played on instances, with their values."""

    setup: Setup
    transfers: Transfers
    instances: InstanceSet
    report: Report
    known: list[dict[Candidate, list[float]]]  # per instance: values in the worlds in which a schedule was played
    more: dict[str, Any]  # further arguments of `score_lines`

    def compare(self, wanted: Sequence[Iterable[Candidate]], title: str) -> None:
        """Play those that are legal and new in the world of the search."""
        spec = self.setup.spec
        new = [
            [line for line in dict.fromkeys(own) if line not in seen and is_feasible(line, spec)]
            for own, seen in zip(wanted, self.known, strict=True)
        ]
        self.play(new, (SEARCH_WORLD,), title)

    def play(self, wanted: Sequence[Sequence[Candidate]], worlds: Sequence[int], title: str) -> None:
        """Play some schedules of every instance in worlds in which they have not been played."""
        lines = [(i, line) for i, own in enumerate(wanted) for line in own]
        if not lines:
            return
        built = {line: build_schedule(line, self.setup.spec) for _, line in lines}
        count = f"{len(lines):,} schedules of {len(wanted)} instances in {len(worlds)} worlds"
        self.report(f"{title}: {count if len(worlds) > 1 else count[:-1]}")
        chosen = self.instances.choose(torch.tensor([i for i, _ in lines], dtype=torch.int64, device="cpu"))
        schedules = [built[line] for _, line in lines]
        values = score_lines(self.setup, self.transfers, schedules, chosen, worlds=worlds, **self.more)
        for (i, line), found in zip(lines, values.T.tolist(), strict=True):
            self.known[i].setdefault(line, []).extend(found)

    def best(self, size: int) -> list[list[Candidate]]:
        """Return the schedules of the highest means, per instance."""
        return [sorted(own, key=lambda line: -fmean(own[line]))[:size] for own in self.known]


def search_along_phases(
    setup: Setup, transfers: Transfers, instances: InstanceSet, *, rows: int, report: Report = no_report
) -> ClairvoyantSearch:
    """Search the best schedule of each instance along its phases, in sibling worlds.

    First one seed of each blueprint that stays in each slot; then the best of these in every subset of the phases;
    then what is near the best: another blueprint or slot, a germination or a pruning a little earlier or later.  All
    play one world; the best of them, and growing nothing, play others, and the mean over all worlds decides.
    """
    spec = setup.spec
    kinds, starts = [Blueprint(code) for code in build_limits(spec).allowed_blueprints], phase_starts(spec, instances)
    known = [dict[Candidate, list[float]]() for _ in starts]
    more = {"rows": rows}
    trials = _Trials(setup, transfers, instances, report=report, known=known, more=more)
    alone = [(GrowthStep(0, slot, kind),) for kind, slot in product(kinds, spec.slots)]
    trials.compare([[(), *alone]] * len(starts), "one seed that stays")
    leaders = [next((line[0] for line in own if line), None) for own in trials.best(len(alone) + 1)]
    laid = [
        [lay_plan(plan, one, seed.slot, spec) for plan in _subset_plans(seed.blueprint, len(one))] if seed else []
        for seed, one in zip(leaders, starts, strict=True)
    ]
    trials.compare(laid, "seeds in some phases")
    trials.compare([_near(own, kinds, spec) for own in trials.best(SURVIVORS)], "what is near the best")
    finalists = [list(dict.fromkeys(((), *own))) for own in trials.best(FINALISTS)]
    trials.play(finalists, FINAL_WORLDS, "the best")
    means = [{line: fmean(seen[line]) for line in own} for own, seen in zip(finalists, known, strict=True)]
    picks = tuple(max(own, key=own.__getitem__) for own in means)
    values = np.array([own[line] for own, line in zip(means, picks, strict=True)])
    return ClairvoyantSearch(picks, values, sum(map(len, known)))


def _subset_plans(kind: Blueprint, phases: int) -> list[Plan]:
    """A seed of one kind in every subset of the phases; those beyond MAX_PHASES are as the last one that counts."""
    free = min(phases, MAX_PHASES)
    return [(*plan, *plan[-1:] * (phases - free)) for plan in product((None, kind), repeat=free)]


def _near(lines: Sequence[Candidate], kinds: Sequence[Blueprint], spec: RunSpec) -> list[Candidate]:
    """Candidates near the given ones; also one of their seeds with another blueprint, one or all in another slot."""
    swapped = [
        (*line[:i], other, *line[i + 1 :])
        for line in lines
        for i, growth in enumerate(line)
        for other in (
            *(growth._replace(blueprint=kind) for kind in kinds if kind is not growth.blueprint),
            *(growth._replace(slot=slot) for slot in spec.slots if slot != growth.slot),
        )
    ]
    moved = [tuple(growth._replace(slot=slot) for growth in line) for line in lines for slot in spec.slots]
    return [*neighbours(lines, spec), *swapped, *moved]
