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

STARTS = 5  # epochs of germination that the whole family tries
NEVER = "never grow"


class Growth(NamedTuple):
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


Line = tuple[Growth, ...]  # what a schedule grows, in order; () = nothing


def schedule(line: Line, spec: RunSpec) -> Schedule:
    """The schedule that grows a line in a run of a resolved spec.  Epochs without a germination move seeds on."""
    due = {growth.epoch: growth for growth in line}
    steps = []
    for epoch in range(min(due, default=0), spec.episode_length if line else 0):
        begun = [growth for growth in line if growth.epoch < epoch]
        steps.append(ScheduleStep(epoch, _germinate(due[epoch], spec) if epoch in due else _move(begun, epoch, spec)))
    return Schedule("; ".join(growth.label for growth in line) or NEVER, tuple(steps), "wait")


def _germinate(growth: Growth, spec: RunSpec) -> tuple[int, ...]:
    heads = {
        Head.OP: Op.GERMINATE,
        Head.SLOT: spec.slots.index(growth.slot),
        Head.BLUEPRINT: growth.blueprint,
        Head.STYLE: growth.style,
        Head.TEMPO: growth.tempo,
    }
    return _action(heads)


def _move(begun: Sequence[Growth], epoch: int, spec: RunSpec) -> tuple[int, ...]:
    """Every seed in turn is moved on, where that is not done for it, and kept; the newest one without delay."""
    moves = [(op, growth) for growth in reversed(begun) for op in _asked(growth, epoch, spec)]
    op, growth = moves[(epoch - begun[-1].epoch - seed_timeline(spec, begun[-1].tempo).fossilizing) % len(moves)]
    return _action({Head.OP: op, Head.SLOT: spec.slots.index(growth.slot)})


def _action(heads: dict[Head, int]) -> tuple[int, ...]:
    return tuple(int(heads.get(head, PLACEHOLDER[head])) for head in Head)


def _asked(growth: Growth, epoch: int, spec: RunSpec) -> tuple[Op, ...]:
    """The ops that a seed is asked for in turns from now on."""
    due = epoch - growth.epoch >= seed_timeline(spec, growth.tempo).fossilizing
    return tuple(reversed(_moves(spec))) if due else _moves(spec)[:1]


def _moves(spec: RunSpec) -> tuple[Op, ...]:
    """The ops that lead from a germinated seed to a kept one."""
    automatic = {gate.name for gate in AUTO_GATES} <= set(spec.lifecycle.auto_forward)
    return (Op.FOSSILIZE,) if automatic else (Op.ADVANCE, Op.FOSSILIZE)


def possible(line: Line, spec: RunSpec) -> bool:
    """Whether a run allows all of a line: its ops, so many seeds, one after the other, each in time to be kept.

    Of several seeds that are moved by hand, one may take the turns that another needs.
    """
    ops = {Op.GERMINATE, *_moves(spec)} if line else set()
    if any(op.name in spec.disabled_ops for op in ops) or 0 < spec.max_seeds < len(line):
        return False
    if len({growth.slot for growth in line}) < len(line):
        return False
    epochs = [growth.epoch for growth in line]
    apart = all(later - earlier >= _apart(spec) for earlier, later in pairwise(epochs))
    return apart and all(0 <= g.epoch < spec.episode_length - seed_timeline(spec, g.tempo).fossilizing for g in line)


def family(spec: RunSpec) -> list[Line]:
    """Nothing, and every blueprint in every slot from a few epochs on, for a resolved spec."""
    last = spec.episode_length - seed_timeline(spec, Tempo.FAST).fossilizing - 1
    starts = sorted({round(i * last / (STARTS - 1)) for i in range(STARTS)}) if last >= 0 else []
    blueprints = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    lines: list[Line] = [(Growth(*choice),) for choice in product(starts, spec.slots, blueprints)]
    return [(), *(line for line in lines if possible(line, spec))]


def around(lines: Sequence[Line], spec: RunSpec) -> list[Line]:
    """Lines near the given ones: a little earlier or later, blended in otherwise, two of them together."""
    near = [(*line[:i], other, *line[i + 1 :]) for line in lines for i in range(len(line)) for other in _like(line[i])]
    pairs = [_after(one, other, spec) for one in lines for other in lines if len(one) == len(other) == 1]
    found = dict.fromkeys(line for line in (*near, *pairs) if possible(line, spec))
    return [line for line in found if line not in lines]


def _like(growth: Growth) -> list[Growth]:
    when = [growth._replace(epoch=growth.epoch + by) for by in (-1, 1)]
    tempo = [growth._replace(tempo=tempo) for tempo in Tempo if tempo is not growth.tempo]
    return [*when, *tempo, *(growth._replace(style=style) for style in Style if style is not growth.style)]


def _apart(spec: RunSpec) -> int:
    """Epochs from a germination to the first one in which the seed is past its training: another may follow."""
    return seed_timeline(spec, Tempo.FAST).blending + 1


def _after(one: Line, other: Line, spec: RunSpec) -> Line:
    """The seed of the other as soon as that of the one has left training, or when it would come anyway."""
    return (one[0], other[0]._replace(epoch=max(other[0].epoch, one[0].epoch + _apart(spec))))


class Ground(NamedTuple):
    """Instances on which schedules are tried: those of an episode for some envs."""

    purpose: Purpose
    episode: int
    tasks: Tensor  # int64 [n, 3], keys of the envs, on the host


def training_ground(spec: RunSpec, count: int) -> Ground:
    """Instances of the training split: those of the first round whose prices are no longer held down."""
    return Ground(Purpose.INSTANCE, spec.ppo.price_warmup_rounds, rng.env_keys(spec.seed, 0, count))


def held_out_grounds(spec: RunSpec, episodes: int) -> list[Ground]:
    """The held-out instances of an evaluation, as many at once as it plays."""
    key = rng.env_keys(spec.seed, 0, min(spec.envs, episodes))
    starts = range(0, episodes, len(key))
    return [
        Ground(Purpose.INSTANCE_HELD_OUT, HELD_OUT_EPISODE + i, key[: episodes - first])
        for i, first in enumerate(starts)
    ]


def score(
    setup: Setup,
    fences: Transfers,
    schedules: Sequence[Schedule],
    ground: Ground,
    *,
    worlds: Sequence[int],
    rows: int,
) -> Array:
    """Network value of every schedule on every instance, in siblings of its world: float [K, len(worlds), n].

    Number 0 is the very world that a run or an evaluation plays in.  At most `rows` envs run side by side.
    """
    count = len(ground.tasks)
    place = torch.arange(len(schedules) * count)
    found = []
    for number in worlds:
        parts = [_values(setup, fences, schedules, ground, at=at, sibling=number) for at in place.split(rows)]
        found.append(np.concatenate(parts).reshape(len(schedules), count))
    return np.stack(found, axis=1)


def _values(
    setup: Setup, fences: Transfers, schedules: Sequence[Schedule], ground: Ground, *, at: Tensor, sibling: int
) -> Array:
    """Of these places in the table of schedules x instances, flattened: float [len(at)]."""
    count = len(ground.tasks)
    tasks = ground.tasks[at % count]
    world = VectorEnv(
        setup,
        fences,
        instances=ground.purpose,
        envs=rng.sibling_keys(tasks, sibling),
        tasks=tasks,
        control=build_per_env_control(schedules, (at // count).tolist(), setup.spec, setup.device),
    )
    with closing(world), torch.no_grad():
        return run_episodes(world, world.reset(ground.episode)).network_value[-1]
