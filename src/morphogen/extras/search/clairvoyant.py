"""Clairvoyant: for each instance the best schedule laid along its regimes, which no policy is
shown.

Found in sibling worlds, which share the regimes, and judged in another, to avoid selection bias.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from statistics import fmean

import numpy as np
import torch

from morphogen.config.spec import RunSpec, build_limits
from morphogen.data.instance_process import find_process
from morphogen.env.episodes import EpisodeTraces
from morphogen.evaluation.arms import PlayContext
from morphogen.evaluation.play import ArmResult
from morphogen.extras.schedules.action_schedule import Schedule
from morphogen.extras.search.candidates import (
    RESTING_EPOCHS,
    Candidate,
    GrowthStep,
    build_schedule,
    change,
    is_feasible,
    neighbours,
    replace_seeds,
)
from morphogen.extras.search.instance_sets import (
    InstanceSet,
    held_out_instance_sets,
    play_schedules,
    score_pairs,
    traces_arm,
)
from morphogen.vocab.blueprint import Blueprint

SEARCH_WORLD = (1,)  # sibling in which all schedules are compared; they are judged in world 0
FINAL_WORLDS = (2, 3)  # siblings in which the best ones are compared
FINALISTS = 8  # schedules of an instance that play the final worlds
# regimes in which growing is decided one by one; the later ones follow the last of them
MAX_REGIMES = 5
SURVIVORS = 3  # schedules of an instance whose neighbours are tried
Plan = tuple[Blueprint | None, ...]  # the seed that lives in each regime; None = none


def regime_starts(spec: RunSpec, instances: InstanceSet) -> list[tuple[int, ...]]:
    """Return the first epochs of the regimes of each instance, ascending from 0."""
    count = len(instances.tasks)
    horizon = spec.episode_length
    episode = torch.full(
        (count * horizon,), instances.episode + instances.split.first_episode, device="cpu"
    )
    epoch = torch.arange(horizon, device="cpu").repeat(count)
    key = instances.tasks.repeat_interleave(horizon, 0)
    number = find_process(spec).regime(key, episode, epoch).number.view(count, horizon)
    return [tuple(np.unique(row, return_index=True)[1].tolist()) for row in number.numpy()]


def lay_plan(plan: Plan, starts: Sequence[int], slot: str, spec: RunSpec) -> Candidate:
    """Build the candidate of a plan: a seed lives from the start of its regimes to their end.

    A seed stays in consecutive regimes.  After a pruning the next seed waits until its env is
    ready.
    """
    ready = 0
    growths: list[GrowthStep] = []
    ends = (*starts[1:], None)
    for kind, group in groupby(zip(plan, starts, ends, strict=True), key=lambda row: row[0]):
        regimes = list(group)
        if kind is None:
            continue
        begin = regimes[0][1]
        end = regimes[-1][2]
        growths.append(GrowthStep(max(begin, ready), slot, kind, pruning=end))
        ready = 0 if end is None else end + spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    return tuple(growths)


@dataclass(frozen=True)
class _Trials:
    """Candidates that have been played on instances, with their values."""

    context: PlayContext
    instances: InstanceSet
    known: list[dict[Candidate, dict[int, float]]]  # per instance: values by world

    def play(
        self, wanted: Sequence[Iterable[Candidate]], worlds: Sequence[int], title: str
    ) -> None:
        """Play the feasible candidates of every instance that these worlds have not seen."""
        spec = self.context.setup.spec
        pairs = [
            (i, candidate)
            for i, own in enumerate(wanted)
            for candidate in dict.fromkeys(own)
            if worlds[0] not in self.known[i].get(candidate, {}) and is_feasible(candidate, spec)
        ]
        if not pairs:
            return
        places = torch.tensor([i for i, _ in pairs], dtype=torch.int64, device="cpu")
        self.context.report(f"{title}: {len(pairs):,} schedules of {len(wanted)} instances")
        schedules = [build_schedule(candidate, spec) for _, candidate in pairs]
        chosen = self.instances.choose(places)
        values = score_pairs(self.context, schedules, chosen, worlds=worlds)
        for (i, candidate), found in zip(pairs, values.T.tolist(), strict=True):
            self.known[i].setdefault(candidate, {}).update(zip(worlds, found, strict=True))

    def best(self, size: int) -> list[list[Candidate]]:
        """Return the candidates of the highest means, per instance."""
        return [
            sorted(own, key=lambda candidate: -fmean(own[candidate].values()))[:size]
            for own in self.known
        ]


def search_along_regimes(
    context: PlayContext, instances: InstanceSet
) -> list[tuple[Candidate, float]]:
    """Search the best schedule of each instance along its regimes, in sibling worlds.

    First one seed of each blueprint stays in each slot; then the best of these lives in every
    subset of the regimes; then neighbours of the best follow: another blueprint or slot, a
    germination or a pruning a little earlier or later.  All play one world.  The best of them, and
    the empty candidate, play others, and the mean over all worlds decides.

    Returns: the candidate of each instance, and its mean value.
    """
    spec = context.setup.spec
    kinds = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    starts = regime_starts(spec, instances)
    trials = _Trials(context, instances, known=[{} for _ in starts])
    first = [(), *((GrowthStep(0, slot, kind),) for kind, slot in product(kinds, spec.slots))]
    trials.play([first] * len(starts), SEARCH_WORLD, "one seed that stays")
    ranked = trials.best(len(first))
    laid = [_lay_best_seed(own, begins, spec) for own, begins in zip(ranked, starts, strict=True)]
    trials.play(laid, SEARCH_WORLD, "seeds in some regimes")
    near = [_near(own, kinds, spec) for own in trials.best(SURVIVORS)]
    trials.play(near, SEARCH_WORLD, "what is near the best")
    finalists = [list(dict.fromkeys(((), *own))) for own in trials.best(FINALISTS)]
    trials.play(finalists, FINAL_WORLDS, "the best")
    picks: list[tuple[Candidate, float]] = []
    for own, seen in zip(finalists, trials.known, strict=True):
        means = {candidate: fmean(seen[candidate].values()) for candidate in own}
        picks.append(max(means.items(), key=lambda item: item[1]))
    return picks


def _lay_best_seed(
    ranked: Sequence[Candidate], starts: Sequence[int], spec: RunSpec
) -> list[Candidate]:
    """Lay the seed of the best candidate that has one in every subset of the first MAX_REGIMES
    regimes; later ones are as the last of them.
    """
    best = next((candidate[0] for candidate in ranked if candidate), None)
    if best is None:
        return []
    free = min(len(starts), MAX_REGIMES)
    plans = product((None, best.blueprint), repeat=free)
    return [
        lay_plan((*plan, *plan[-1:] * (len(starts) - free)), starts, best.slot, spec)
        for plan in plans
    ]


def _near(
    candidates: Sequence[Candidate], kinds: Sequence[Blueprint], spec: RunSpec
) -> list[Candidate]:
    """Neighbours; also one seed with another blueprint, and one or all seeds in another slot."""

    def variants(growth: GrowthStep) -> list[GrowthStep]:
        return change(growth, "blueprint", kinds) + change(growth, "slot", spec.slots)

    swapped = [other for candidate in candidates for other in replace_seeds(candidate, variants)]
    moved = [
        tuple(growth._replace(slot=slot) for growth in candidate)
        for candidate in candidates
        for slot in spec.slots
    ]
    return [*neighbours(candidates, spec), *swapped, *moved]


def play_clairvoyant(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> EpisodeTraces:
    """Play the best schedule along the regimes of each instance."""
    spec = context.setup.spec
    schedules: list[Schedule] = []
    for instances in held_out_instance_sets(spec, episodes):
        found = search_along_regimes(context, instances)
        schedules += [build_schedule(candidate, spec) for candidate, _ in found]
    return play_schedules(context, schedules)


play_clairvoyant_arm = traces_arm("clairvoyant", play_clairvoyant)
