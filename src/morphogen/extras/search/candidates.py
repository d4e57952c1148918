"""Candidates for fixed schedules: the seeds that they grow, and other candidates near them."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import NamedTuple

from morphogen.config.spec import RunSpec, build_limits, seed_timeline
from morphogen.config.task import TASKS
from morphogen.extras.schedules.action_schedule import Schedule, ScheduleStep
from morphogen.vocab.action import PLACEHOLDER, AlphaTarget, Head, Op, Style, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.objective import ANYTIME

START_COUNT = 5  # epochs of germination among the initial candidates
RESTING_EPOCHS = 3  # from a pruning to the next germination in its env, besides the embargo
PRUNING_COUNT = 4  # epochs of removal among the neighbours of a seed that stays


class GrowthStep(NamedTuple):
    """Seed that is germinated in an epoch, advanced, and pruned, or fossilized once legal."""

    epoch: int
    slot: str
    blueprint: Blueprint
    tempo: Tempo = Tempo.FAST
    style: Style = Style.SIGMOID_ADD
    pruning: int | None = None  # epoch in which the seed is pruned; None = it is fossilized
    # alpha that a seed which is pruned later has once it was blended
    target: AlphaTarget = AlphaTarget.FULL

    @property
    def label(self) -> str:
        """Label such as `norm in r0c0 from epoch 2 to 9, FAST, SIGMOID_ADD`."""
        end = "" if self.pruning is None else f" to {self.pruning}"
        target = "" if self.target is AlphaTarget.FULL else f", {self.target.name}"
        return (
            f"{self.blueprint.label} in {self.slot} from epoch {self.epoch}{end}, "
            f"{self.tempo.name}, {self.style.name}{target}"
        )


Candidate = tuple[GrowthStep, ...]  # seeds of a schedule, in order; () = nothing grows
Move = tuple[Op, GrowthStep]  # an op on a seed


def build_schedule(candidate: Candidate, spec: RunSpec) -> Schedule:
    """Schedule of a candidate for a resolved spec.  Epochs without a germination advance seeds."""
    planned: dict[int, Move] = {
        growth.epoch + _min_life(growth, spec): (Op.SET_ALPHA_TARGET, growth)
        for growth in candidate
        if growth.target is not AlphaTarget.FULL
    }
    planned |= {
        growth.pruning: (Op.PRUNE, growth) for growth in candidate if growth.pruning is not None
    }
    planned |= {growth.epoch: (Op.GERMINATE, growth) for growth in candidate}
    first = min((growth.epoch for growth in candidate), default=spec.episode_length)
    steps: list[ScheduleStep] = []
    for epoch in range(first, spec.episode_length):
        alive = [
            growth
            for growth in candidate
            if growth.epoch < epoch and (growth.pruning is None or epoch < growth.pruning)
        ]
        move = planned.get(epoch) or _advance(alive, epoch, spec)
        steps.append(ScheduleStep(epoch, _action(*move, spec) if move else PLACEHOLDER))
    return Schedule(describe_candidate(candidate), tuple(steps), on_illegal="wait")


def describe_candidate(candidate: Candidate) -> str:
    """Return the labels of the seeds of a candidate."""
    return "; ".join(growth.label for growth in candidate) or "never grow"


def _action(op: Op, growth: GrowthStep, spec: RunSpec) -> tuple[int, ...]:
    heads: dict[Head, int] = dict(zip(Head, PLACEHOLDER, strict=True))
    heads |= {Head.OP: op, Head.SLOT: spec.slots.index(growth.slot)}
    if op is Op.GERMINATE:
        heads |= {Head.BLUEPRINT: growth.blueprint, Head.STYLE: growth.style}
        heads[Head.TEMPO] = growth.tempo
    if op is Op.SET_ALPHA_TARGET:
        heads |= {Head.STYLE: growth.style, Head.ALPHA_TARGET: growth.target}
    return tuple(int(value) for value in heads.values())


def _advance(alive: Sequence[GrowthStep], epoch: int, spec: RunSpec) -> Move | None:
    """Advance and fossilize live seeds in turns, the newest without delay; WAIT without one."""
    moves: list[Move] = []
    for growth in reversed(alive):
        ops = [
            op for op in _advancing_ops(spec) if growth.pruning is None or op is not Op.FOSSILIZE
        ]
        due = epoch - growth.epoch >= seed_timeline(spec, growth.tempo).fossilizing
        moves += [(op, growth) for op in (reversed(ops) if due else ops[:1])]
    if not moves:
        return None
    newest = alive[-1]
    turn = epoch - newest.epoch - seed_timeline(spec, newest.tempo).fossilizing
    return moves[turn % len(moves)]


def _advancing_ops(spec: RunSpec) -> tuple[Op, ...]:
    """Ops from a germinated seed to a fossilized seed."""
    automatic = {gate.name for gate in AUTO_GATES} <= set(spec.lifecycle.auto_forward)
    return (Op.FOSSILIZE,) if automatic else (Op.ADVANCE, Op.FOSSILIZE)


def is_feasible(candidate: Candidate, spec: RunSpec) -> bool:
    """Return whether a run allows the ops of a candidate, its number of seeds, and their times.

    Seeds that are advanced by actions may take turns from each other.
    """
    ops = {Op.GERMINATE, *_advancing_ops(spec)} if candidate else set()
    prunings = [growth.pruning for growth in candidate if growth.pruning is not None]
    if prunings:
        ops.add(Op.PRUNE)
    if any(growth.target is not AlphaTarget.FULL for growth in candidate):
        ops.add(Op.SET_ALPHA_TARGET)
    if any(op.name in spec.disabled_ops for op in ops) or len(set(prunings)) < len(prunings):
        return False
    rest = spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    return all(
        _has_room(growth, candidate[:i], spec)
        and _ends_in_time(growth, spec)
        and all(growth.epoch < end or growth.epoch >= end + rest for end in prunings)
        for i, growth in enumerate(candidate)
    )


def _has_room(growth: GrowthStep, earlier: Candidate, spec: RunSpec) -> bool:
    """Return whether a seed finds a free slot, in a host with fewer seeds than are allowed, and
    earlier ones have left training.
    """
    alive = [other for other in earlier if other.pruning is None or other.pruning >= growth.epoch]
    full = 0 < spec.max_seeds <= len(alive) or growth.slot in {other.slot for other in alive}
    return not full and all(
        growth.epoch - other.epoch >= _min_separation(spec) for other in earlier
    )


def _ends_in_time(growth: GrowthStep, spec: RunSpec) -> bool:
    """Return whether a seed can be fossilized before the end, or pruned when it is due."""
    lowered = growth.target is not AlphaTarget.FULL
    if growth.pruning is None:
        due = growth.epoch + seed_timeline(spec, growth.tempo).fossilizing
        return not lowered and growth.epoch >= 0 and due < spec.episode_length
    first = growth.epoch + _min_life(growth, spec) + lowered
    return growth.epoch >= 0 and first <= growth.pruning < spec.episode_length


def _min_life(growth: GrowthStep, spec: RunSpec) -> int:
    """Epochs from a germination to the first one in which the seed is blended and may be pruned."""
    return max(spec.lifecycle.min_prune_age, seed_timeline(spec, growth.tempo).holding + 1)


def initial_candidates(spec: RunSpec, *, static: bool = False) -> list[Candidate]:
    """The empty candidate, and every blueprint in every slot from a few epochs on.

    static: from the first epoch on only.
    """
    last = spec.episode_length - seed_timeline(spec, Tempo.FAST).fossilizing - 1
    starts = sorted({round(i * last / (START_COUNT - 1)) for i in range(START_COUNT)})
    starts = starts[:1] if static else starts
    blueprints = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    candidates: list[Candidate] = [
        (GrowthStep(*choice),) for choice in product(starts, spec.slots, blueprints)
    ]
    return [(), *(candidate for candidate in candidates if is_feasible(candidate, spec))]


def neighbours(
    candidates: Sequence[Candidate], spec: RunSpec, *, static: bool = False
) -> list[Candidate]:
    """Candidates with a seed a step earlier or later, of another tempo or style, or one seed more.

    For the anytime objective, also with a seed that is pruned, or pruned at another time.
    static: all seeds are germinated as early as they can be, and stay.
    """

    def variants(growth: GrowthStep) -> list[GrowthStep]:
        near = change(growth, "tempo", Tempo) + change(growth, "style", Style)
        if static:
            return near
        near += change(growth, "epoch", (growth.epoch - 1, growth.epoch + 1))
        return near + _pruning_variants(growth, spec)

    near = [other for candidate in candidates for other in replace_seeds(candidate, variants)]
    single = [candidate[0] for candidate in candidates if len(candidate) == 1]
    # The next seed follows once the last one has left training.
    pairs = [
        (
            *candidate,
            seed._replace(epoch=max(seed.epoch, candidate[-1].epoch + _min_separation(spec))),
        )
        for candidate in candidates
        for seed in single
        if candidate
    ]
    feasible = dict.fromkeys(
        candidate for candidate in (*near, *pairs) if is_feasible(candidate, spec)
    )
    return [candidate for candidate in feasible if candidate not in candidates]


def change(growth: GrowthStep, field: str, values: Iterable[object]) -> list[GrowthStep]:
    """Return the seed with each of the values that it does not have in a field."""
    now = getattr(growth, field)
    return [growth._replace(**{field: value}) for value in values if value != now]


def replace_seeds(
    candidate: Candidate, variants: Callable[[GrowthStep], Iterable[GrowthStep]]
) -> list[Candidate]:
    """Return a candidate for each variant of each seed; the other seeds stay as they are."""
    return [
        (*candidate[:i], variant, *candidate[i + 1 :])
        for i, growth in enumerate(candidate)
        for variant in variants(growth)
    ]


def _pruning_variants(growth: GrowthStep, spec: RunSpec) -> list[GrowthStep]:
    """Return the seed pruned at a few times, or at other times or fainter, where that can pay."""
    if TASKS[spec.task].objective != ANYTIME:
        return []
    if growth.pruning is not None:
        ends = [*(growth.pruning + by for by in (-2, -1, 1, 2)), None]
        return change(growth, "pruning", ends) + change(growth, "target", AlphaTarget)
    first = growth.epoch + _min_life(growth, spec)
    times = {
        first + i * (spec.episode_length - first) // PRUNING_COUNT for i in range(PRUNING_COUNT)
    }
    return change(growth, "pruning", sorted(times))


def _min_separation(spec: RunSpec) -> int:
    """Epochs from a germination to the first epoch after the seed's training."""
    return seed_timeline(spec, Tempo.FAST).blending + 1
