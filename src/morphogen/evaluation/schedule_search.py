"""Candidates for fixed schedules, and their values: many schedules side by side in one world."""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from morphogen.config.action_schedule import Schedule, ScheduleStep, seed_timeline
from morphogen.config.spec import RunSpec, build_limits
from morphogen.config.task import TASKS
from morphogen.data.instances import HELD_OUT_INSTANCES, TRAINING_INSTANCES, InstanceSplit
from morphogen.device.transfers import Transfers
from morphogen.engine.action_control import ActionControl, build_per_env_control
from morphogen.engine.environment import Environment, open_environment
from morphogen.engine.episodes import Array, fetch_all_traces, run_episodes
from morphogen.engine.setup import Setup
from morphogen.state import rng
from morphogen.telemetry.round_summary import running_value
from morphogen.vocab.action import PLACEHOLDER, AlphaSpeed, AlphaTarget, Head, Op, Style, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.objective import ANYTIME

START_COUNT = 5  # epochs of germination among the initial candidates
RESTING_EPOCHS = 3  # from a pruning to the next germination in its env, besides the embargo
PRUNING_COUNT = 4  # epochs of removal among the neighbours of a seed that stays
NEVER_GROW_LABEL = "never grow"


class GrowthStep(NamedTuple):
    """Seed that is germinated in an epoch, then advanced, and fossilized as soon as that is legal, or pruned."""

    epoch: int
    slot: str
    blueprint: Blueprint
    tempo: Tempo = Tempo.FAST
    style: Style = Style.SIGMOID_ADD
    pruning: int | None = None  # epoch in which the seed is pruned; None = it is fossilized
    target: AlphaTarget = AlphaTarget.FULL  # alpha that a seed which is pruned later has once it was blended

    @property
    def label(self) -> str:
        """Label such as `norm in r0c0 from epoch 2 to 9, FAST, SIGMOID_ADD`."""
        epochs = f"from epoch {self.epoch}" + ("" if self.pruning is None else f" to {self.pruning}")
        manner = [self.tempo.name, self.style.name] + [self.target.name] * (self.target is not AlphaTarget.FULL)
        return f"{self.blueprint.label} in {self.slot} {epochs}, {', '.join(manner)}"

    def lives_at(self, epoch: int) -> bool:
        """Return whether the seed was germinated before an epoch and is not pruned before its end."""
        return self.epoch < epoch and (self.pruning is None or epoch < self.pruning)


Candidate = tuple[GrowthStep, ...]  # seeds of a schedule, in order; () = nothing grows


def build_schedule(candidate: Candidate, spec: RunSpec) -> Schedule:
    """Schedule of a candidate in a run of a resolved spec.  Epochs without a germination advance seeds."""
    due = {growth.epoch: growth for growth in candidate}
    ended = {growth.pruning: growth.slot for growth in candidate if growth.pruning is not None}
    lowered = {g.epoch + _min_life(g, spec): g for g in candidate if g.target is not AlphaTarget.FULL}
    steps = []
    for epoch in range(min(due, default=0), spec.episode_length if candidate else 0):
        if epoch in due:
            step = due[epoch]
            heads = {
                Head.OP: Op.GERMINATE,
                Head.SLOT: spec.slots.index(step.slot),
                Head.BLUEPRINT: step.blueprint,
                Head.STYLE: step.style,
                Head.TEMPO: step.tempo,
            }
        elif epoch in ended:
            heads = {Head.OP: Op.PRUNE, Head.SLOT: spec.slots.index(ended[epoch])}
        elif epoch in lowered:
            heads = _lowering_heads(lowered[epoch], spec)
        else:
            heads = _advancing_heads([growth for growth in candidate if growth.lives_at(epoch)], epoch, spec)
        steps.append(ScheduleStep(epoch, tuple(int(heads.get(head, PLACEHOLDER[head])) for head in Head)))
    return Schedule("; ".join(growth.label for growth in candidate) or NEVER_GROW_LABEL, tuple(steps), "wait")


def _lowering_heads(growth: GrowthStep, spec: RunSpec) -> dict[Head, int]:
    return {
        Head.OP: Op.SET_ALPHA_TARGET,
        Head.SLOT: spec.slots.index(growth.slot),
        Head.STYLE: growth.style,
        Head.ALPHA_TARGET: growth.target,
        Head.ALPHA_SPEED: AlphaSpeed.INSTANT,
    }


def _advancing_heads(started: Sequence[GrowthStep], epoch: int, spec: RunSpec) -> dict[Head, int]:
    """Advance and fossilize all live seeds in turns, the newest seed without delay; WAIT without one to move."""
    moves = []
    for growth in reversed(started):
        ops = [op for op in _advancing_ops(spec) if growth.pruning is None or op is not Op.FOSSILIZE]
        due = epoch - growth.epoch >= seed_timeline(spec, growth.tempo).fossilizing
        moves += [(op, growth) for op in (reversed(ops) if due else ops[:1])]
    if not moves:
        return {}
    op, growth = moves[(epoch - started[-1].epoch - seed_timeline(spec, started[-1].tempo).fossilizing) % len(moves)]
    return {Head.OP: op, Head.SLOT: spec.slots.index(growth.slot)}


def _advancing_ops(spec: RunSpec) -> tuple[Op, ...]:
    """Ops from a germinated seed to a fossilized seed."""
    automatic = {gate.name for gate in AUTO_GATES} <= set(spec.lifecycle.auto_forward)
    return (Op.FOSSILIZE,) if automatic else (Op.ADVANCE, Op.FOSSILIZE)


def is_feasible(candidate: Candidate, spec: RunSpec) -> bool:
    """Return whether a run allows a candidate: its ops, its number of seeds, each in time to be fossilized or pruned.

    Seeds that are advanced by actions may take turns from each other.
    """
    ops = {Op.GERMINATE, *_advancing_ops(spec)} if candidate else set()
    prunings = [growth.pruning for growth in candidate if growth.pruning is not None]
    if prunings:
        ops.add(Op.PRUNE)
    if any(growth.target is not AlphaTarget.FULL for growth in candidate):
        ops.add(Op.SET_ALPHA_TARGET)
    if any(op.name in spec.disabled_ops for op in ops) or not _has_room(candidate, spec):
        return False
    epochs = [growth.epoch for growth in candidate]
    apart = all(later - earlier >= _min_separation(spec) for earlier, later in pairwise(epochs))
    rest = spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    cooled = all(epoch < end or epoch >= end + rest for epoch in epochs for end in prunings)
    alone = len(set(prunings)) == len(prunings)
    return apart and cooled and alone and all(g.epoch >= 0 and _ends_in_time(g, spec) for g in candidate)


def _has_room(candidate: Candidate, spec: RunSpec) -> bool:
    """Return whether every seed finds a free slot, in a host with fewer seeds than are allowed."""
    for i, growth in enumerate(candidate):
        alive = [other for other in candidate[:i] if other.pruning is None or other.pruning >= growth.epoch]
        if 0 < spec.max_seeds <= len(alive) or growth.slot in {other.slot for other in alive}:
            return False
    return True


def _ends_in_time(growth: GrowthStep, spec: RunSpec) -> bool:
    """Return whether a seed can be fossilized before the end, or pruned when it is due."""
    lowered = growth.target is not AlphaTarget.FULL
    if growth.pruning is None:
        return not lowered and growth.epoch < spec.episode_length - seed_timeline(spec, growth.tempo).fossilizing
    return growth.epoch + _min_life(growth, spec) + lowered <= growth.pruning < spec.episode_length


def _min_life(growth: GrowthStep, spec: RunSpec) -> int:
    """Epochs from a germination to the first one in which the seed is blended and may be pruned."""
    return max(spec.lifecycle.min_prune_age, seed_timeline(spec, growth.tempo).holding + 1)


def initial_candidates(spec: RunSpec, *, static: bool = False) -> list[Candidate]:
    """The empty candidate, and every blueprint in every slot from a few epochs on, for a resolved spec.

    static: from the first epoch on only.
    """
    last = spec.episode_length - seed_timeline(spec, Tempo.FAST).fossilizing - 1
    starts = sorted({round(i * last / (START_COUNT - 1)) for i in range(START_COUNT)}) if last >= 0 else []
    starts = starts[:1] if static else starts
    blueprints = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    lines: list[Candidate] = [(GrowthStep(*choice),) for choice in product(starts, spec.slots, blueprints)]
    return [(), *(line for line in lines if is_feasible(line, spec))]


def neighbours(candidates: Sequence[Candidate], spec: RunSpec, *, static: bool = False) -> list[Candidate]:
    """Candidates near the given ones: a step earlier or later, another tempo or style, or joined by a single seed.

    For the anytime objective, also a seed that is pruned, or pruned at another time.  static: all seeds are germinated
    as early as they can be, and stay.
    """
    near = [
        (*line[:i], other, *line[i + 1 :])
        for line in candidates
        for i in range(len(line))
        for other in (
            *_manner_variants(line[i]),
            *(() if static else (*_time_variants(line[i]), *_pruning_variants(line[i], spec))),
        )
    ]
    single = [line[0] for line in candidates if len(line) == 1]
    # The next seed follows once the last one has left training.
    pairs = [
        (*line, seed._replace(epoch=max(seed.epoch, line[-1].epoch + _min_separation(spec))))
        for line in candidates
        for seed in single
        if line
    ]
    feasible = dict.fromkeys(line for line in (*near, *pairs) if is_feasible(line, spec))
    return [line for line in feasible if line not in candidates]


def _time_variants(step: GrowthStep) -> list[GrowthStep]:
    return [step._replace(epoch=step.epoch + by) for by in (-1, 1)]


def _manner_variants(step: GrowthStep) -> list[GrowthStep]:
    tempo = [step._replace(tempo=tempo) for tempo in Tempo if tempo is not step.tempo]
    return [*tempo, *(step._replace(style=style) for style in Style if style is not step.style)]


def _pruning_variants(step: GrowthStep, spec: RunSpec) -> list[GrowthStep]:
    """The step with a seed that is pruned, at a few times or a little earlier, later or fainter, where that can pay."""
    if TASKS[spec.task].objective != ANYTIME:
        return []
    if step.pruning is not None:
        fainter = [step._replace(target=target) for target in AlphaTarget if target is not step.target]
        later = [step._replace(pruning=step.pruning + by) for by in (-2, -1, 1, 2)]
        return [*later, step._replace(pruning=None), *fainter]
    first = step.epoch + _min_life(step, spec)
    times = {first + i * (spec.episode_length - first) // PRUNING_COUNT for i in range(PRUNING_COUNT)}
    return [step._replace(pruning=epoch) for epoch in sorted(times)]


def _min_separation(spec: RunSpec) -> int:
    """Epochs from a germination to the first epoch after the seed's training."""
    return seed_timeline(spec, Tempo.FAST).blending + 1


class InstanceSet(NamedTuple):
    """Instances for schedules: those of an episode for some envs."""

    split: InstanceSplit
    episode: int  # of the split
    tasks: Tensor  # int64 [n, 3], keys of the envs, on the host

    def choose(self, places: Tensor) -> "InstanceSet":
        """Return the instances at these places, int64 [n]."""
        return self._replace(tasks=self.tasks[places])

    def open(self, setup: Setup, transfers: Transfers, control: ActionControl | None) -> Environment:
        """Return the environment of these instances."""
        return open_environment(setup, envs=self.tasks, split=self.split, control=control, transfers=transfers)


def training_instances(spec: RunSpec, count: int) -> InstanceSet:
    """Training instances of the first round after the price warm-up."""
    return InstanceSet(TRAINING_INSTANCES, spec.ppo.price_warmup_rounds, rng.env_keys(spec.seed, 0, count))


def held_out_instance_sets(spec: RunSpec, episodes: int) -> list[InstanceSet]:
    """Held-out instances of an evaluation, in the groups in which they are played."""
    key = rng.env_keys(spec.seed, 0, min(spec.envs, episodes))
    starts = range(0, episodes, len(key))
    return [InstanceSet(HELD_OUT_INSTANCES, i, key[: episodes - first]) for i, first in enumerate(starts)]


def score_schedules(
    setup: Setup,
    transfers: Transfers,
    schedules: Sequence[Schedule],
    instances: InstanceSet,
    *,
    worlds: Sequence[int],
    rows: int,
) -> Array:
    """Network value of every schedule on every instance, in siblings of its world: float [K, len(worlds), n].

    World 0 is the world of a run or an evaluation.  At most `rows` envs run side by side, over all processes.
    """
    count = len(instances.tasks)
    pairs = torch.arange(len(schedules) * count, device="cpu")  # places in schedules x instances, flattened
    lines = [schedules[i] for i in (pairs // count).tolist()]
    more: Any = {"worlds": worlds, "rows": rows}
    values = score_lines(setup, transfers, lines, instances.choose(pairs % count), **more)
    return np.moveaxis(values.reshape(len(worlds), len(schedules), count), 0, 1)


def score_lines(
    setup: Setup,
    transfers: Transfers,
    lines: Sequence[Schedule],
    instances: InstanceSet,
    *,
    worlds: Sequence[int],
    rows: int,
) -> Array:
    """Network value of a schedule on an instance, for pairs of them, in siblings of its world: float [len(worlds), n].

    lines: the schedule of each of the `instances`, which may contain an instance several times.  Those that begin alike
    run side by side, because seeds of one blueprint in one slot cost less together.
    """
    actions = [[(step.action, step.epoch) for step in line.steps] for line in lines]
    order = sorted(range(len(lines)), key=actions.__getitem__)
    values = np.empty((len(worlds), len(lines)))
    for row, sibling in zip(values, worlds, strict=True):
        parts = []
        for group in torch.tensor(order, dtype=torch.int64, device="cpu").split(rows):
            places = group[setup.exchange.places(len(group))]
            tasks, own = instances.tasks[places], [lines[i] for i in places.tolist()]
            number = {line: i for i, line in enumerate(dict.fromkeys(own))}
            env = open_environment(
                setup,
                envs=rng.sibling_keys(tasks, sibling),
                tasks=tasks,
                split=instances.split,
                control=build_per_env_control([*number], [number[x] for x in own], setup.spec, setup.device),
                transfers=transfers,
            )
            with env, torch.no_grad():
                played = [run_episodes(env, *env.reset(instances.episode))]
            traces = fetch_all_traces(setup.exchange, transfers, played, [len(group)])
            parts.append(running_value(traces.network_value, setup.task.objective)[-1])
        row[order] = np.concatenate(parts)
    return values
