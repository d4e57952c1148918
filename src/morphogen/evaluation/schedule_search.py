"""Fixed schedules worth trying, and what each is worth: many of them side by side in one world."""

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from morphogen.config.action_schedule import Schedule, ScheduleStep, seed_timeline
from morphogen.config.spec import RunSpec, build_limits
from morphogen.data.instances import HELD_OUT_EPISODE
from morphogen.device.transfers import Transfers
from morphogen.engine.action_control import build_per_env_control
from morphogen.engine.episodes import Array, run_episodes
from morphogen.engine.epoch import VectorEnv
from morphogen.engine.setup import Setup
from morphogen.state import rng
from morphogen.vocab.action import PLACEHOLDER, Head, Op, Style, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.purpose import Purpose

START_COUNT = 5  # epochs of germination that the whole family tries
NEVER_GROW_LABEL = "never grow"


class GrowthStep(NamedTuple):
    """A seed that is germinated in an epoch and then moved on and kept as soon as that is legal."""

    epoch: int
    slot: str
    blueprint: Blueprint
    tempo: Tempo = Tempo.FAST
    style: Style = Style.SIGMOID_ADD

    @property
    def label(self) -> str:
        """In words: `norm in r0c0 from epoch 2, FAST, SIGMOID_ADD`."""
        return f"{self.blueprint.label} in {self.slot} from epoch {self.epoch}, {self.tempo.name}, {self.style.name}"


Candidate = tuple[GrowthStep, ...]  # what a schedule grows, in order; () = nothing


def build_schedule(candidate: Candidate, spec: RunSpec) -> Schedule:
    """The schedule that grows a line in a run of a resolved spec.  Epochs without a germination move seeds on."""
    due = {growth.epoch: growth for growth in candidate}
    steps = []
    for epoch in range(min(due, default=0), spec.episode_length if candidate else 0):
        begun = [growth for growth in candidate if growth.epoch < epoch]
        steps.append(
            ScheduleStep(
                epoch, _germination_action(due[epoch], spec) if epoch in due else _advancing_action(begun, epoch, spec)
            )
        )
    return Schedule("; ".join(growth.label for growth in candidate) or NEVER_GROW_LABEL, tuple(steps), "wait")


def _germination_action(step: GrowthStep, spec: RunSpec) -> tuple[int, ...]:
    heads = {
        Head.OP: Op.GERMINATE,
        Head.SLOT: spec.slots.index(step.slot),
        Head.BLUEPRINT: step.blueprint,
        Head.STYLE: step.style,
        Head.TEMPO: step.tempo,
    }
    return _action_row(heads)


def _advancing_action(started: Sequence[GrowthStep], epoch: int, spec: RunSpec) -> tuple[int, ...]:
    """Every seed in turn is moved on, where that is not done for it, and kept; the newest one without delay."""
    moves = [(op, growth) for growth in reversed(started) for op in _requested_ops(growth, epoch, spec)]
    op, growth = moves[(epoch - started[-1].epoch - seed_timeline(spec, started[-1].tempo).fossilizing) % len(moves)]
    return _action_row({Head.OP: op, Head.SLOT: spec.slots.index(growth.slot)})


def _action_row(heads: dict[Head, int]) -> tuple[int, ...]:
    return tuple(int(heads.get(head, PLACEHOLDER[head])) for head in Head)


def _requested_ops(step: GrowthStep, epoch: int, spec: RunSpec) -> tuple[Op, ...]:
    """The ops that a seed is asked for in turns from now on."""
    due = epoch - step.epoch >= seed_timeline(spec, step.tempo).fossilizing
    return tuple(reversed(_advancing_ops(spec))) if due else _advancing_ops(spec)[:1]


def _advancing_ops(spec: RunSpec) -> tuple[Op, ...]:
    """The ops that lead from a germinated seed to a kept one."""
    automatic = {gate.name for gate in AUTO_GATES} <= set(spec.lifecycle.auto_forward)
    return (Op.FOSSILIZE,) if automatic else (Op.ADVANCE, Op.FOSSILIZE)


def is_feasible(candidate: Candidate, spec: RunSpec) -> bool:
    """Return whether a run allows a candidate: its ops, its number of seeds, each early enough to be kept.

    Of several seeds that are moved by hand, one may take the turns that another needs.
    """
    ops = {Op.GERMINATE, *_advancing_ops(spec)} if candidate else set()
    if any(op.name in spec.disabled_ops for op in ops) or 0 < spec.max_seeds < len(candidate):
        return False
    if len({growth.slot for growth in candidate}) < len(candidate):
        return False
    epochs = [growth.epoch for growth in candidate]
    apart = all(later - earlier >= _min_separation(spec) for earlier, later in pairwise(epochs))
    return apart and all(
        0 <= g.epoch < spec.episode_length - seed_timeline(spec, g.tempo).fossilizing for g in candidate
    )


def initial_candidates(spec: RunSpec) -> list[Candidate]:
    """Nothing, and every blueprint in every slot from a few epochs on, for a resolved spec."""
    last = spec.episode_length - seed_timeline(spec, Tempo.FAST).fossilizing - 1
    starts = sorted({round(i * last / (START_COUNT - 1)) for i in range(START_COUNT)}) if last >= 0 else []
    blueprints = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    lines: list[Candidate] = [(GrowthStep(*choice),) for choice in product(starts, spec.slots, blueprints)]
    return [(), *(line for line in lines if is_feasible(line, spec))]


def neighbours(candidates: Sequence[Candidate], spec: RunSpec) -> list[Candidate]:
    """Lines near the given ones: a little earlier or later, blended in otherwise, two of them together."""
    near = [
        (*line[:i], other, *line[i + 1 :])
        for line in candidates
        for i in range(len(line))
        for other in _step_variants(line[i])
    ]
    pairs = [
        _join_candidates(one, other, spec) for one in candidates for other in candidates if len(one) == len(other) == 1
    ]
    found = dict.fromkeys(line for line in (*near, *pairs) if is_feasible(line, spec))
    return [line for line in found if line not in candidates]


def _step_variants(step: GrowthStep) -> list[GrowthStep]:
    when = [step._replace(epoch=step.epoch + by) for by in (-1, 1)]
    tempo = [step._replace(tempo=tempo) for tempo in Tempo if tempo is not step.tempo]
    return [*when, *tempo, *(step._replace(style=style) for style in Style if style is not step.style)]


def _min_separation(spec: RunSpec) -> int:
    """Epochs from a germination to the first one in which the seed is past its training: another may follow."""
    return seed_timeline(spec, Tempo.FAST).blending + 1


def _join_candidates(first: Candidate, second: Candidate, spec: RunSpec) -> Candidate:
    """The seed of the other as soon as that of the one has left training, or when it would come anyway."""
    return (first[0], second[0]._replace(epoch=max(second[0].epoch, first[0].epoch + _min_separation(spec))))


class InstanceSet(NamedTuple):
    """Instances on which schedules are tried: those of an episode for some envs."""

    purpose: Purpose
    episode: int
    tasks: Tensor  # int64 [n, 3], keys of the envs, on the host


def training_instances(spec: RunSpec, count: int) -> InstanceSet:
    """Instances of the training split: those of the first round whose prices are no longer held down."""
    return InstanceSet(Purpose.INSTANCE, spec.ppo.price_warmup_rounds, rng.env_keys(spec.seed, 0, count))


def held_out_instance_sets(spec: RunSpec, episodes: int) -> list[InstanceSet]:
    """The held-out instances of an evaluation, as many at once as it plays."""
    key = rng.env_keys(spec.seed, 0, min(spec.envs, episodes))
    starts = range(0, episodes, len(key))
    return [
        InstanceSet(Purpose.INSTANCE_HELD_OUT, HELD_OUT_EPISODE + i, key[: episodes - first])
        for i, first in enumerate(starts)
    ]


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

    Number 0 is the very world that a run or an evaluation plays in.  At most `rows` envs run side by side.
    """
    count = len(instances.tasks)
    place = torch.arange(len(schedules) * count)
    found = []
    for number in worlds:
        parts = [
            _play_pairs(setup, transfers, schedules, instances, pairs=at, sibling=number) for at in place.split(rows)
        ]
        found.append(np.concatenate(parts).reshape(len(schedules), count))
    return np.stack(found, axis=1)


def _play_pairs(
    setup: Setup,
    transfers: Transfers,
    schedules: Sequence[Schedule],
    instances: InstanceSet,
    *,
    pairs: Tensor,
    sibling: int,
) -> Array:
    """Of these places in the table of schedules x instances, flattened: float [len(at)]."""
    count = len(instances.tasks)
    tasks = instances.tasks[pairs % count]
    world = VectorEnv(
        setup,
        transfers,
        instances=instances.purpose,
        envs=rng.sibling_keys(tasks, sibling),
        tasks=tasks,
        control=build_per_env_control(schedules, (pairs // count).tolist(), setup.spec, setup.device),
    )
    with closing(world), torch.no_grad():
        return run_episodes(world, world.reset(instances.episode)).network_value[-1]
