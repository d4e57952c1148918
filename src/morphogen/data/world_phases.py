"""Phases of the world of an env: when they begin, and what each shows.  Functions of key, episode and epoch alone."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.phase_spec import PhaseSpec
from morphogen.state import rng
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.purpose import Purpose

VIEW, CLASSES, FIRST_CLASS = 0, 1, 4  # lanes of the stream of a phase


class WorldPhase(NamedTuple):
    """Phase of each env at an epoch."""

    number: Tensor  # int64 [E], from 0
    view: Tensor  # int64 [E], a `View`
    words: Tensor  # int64 [E, 1 + C], random words of the number of classes and of each class


def phase_number(key: Tensor, episode: Tensor, epoch: Tensor, *, spec: PhaseSpec, horizon: int) -> Tensor:
    """Number the phase at an epoch, from 0.

    Shapes: key int64 [E, 3]; episode, epoch int64 [E], epoch <= horizon -> int64 [E].
    Promise: phases last `spec.least` epochs, and from then on each ends with probability `spec.hazard` per epoch; the
    number depends on the row of the key, the episode and the epoch alone.
    """
    stream = rng.stream(key, Purpose.PHASE_LENGTH, round=episode)
    words = rng.random_bits(stream, -(-horizon // spec.least))  # a word per phase that fits
    longer = tuple(round(2**32 * (1 - spec.hazard) ** epochs) for epochs in range(1, horizon + 1))
    extra = words.unsqueeze(-1) < constant_table(longer, torch.int64, key.device)  # lasts one epoch more, then another
    ends = (spec.least + extra.sum(-1)).cumsum(-1)
    return (ends <= epoch.unsqueeze(-1)).sum(-1)


def draw_phase(
    key: Tensor, episode: Tensor, epoch: Tensor, *, spec: PhaseSpec, horizon: int, classes: int
) -> WorldPhase:
    """Draw the phase of each env at an epoch.

    Shapes: key int64 [E, 3]; episode, epoch int64 [E] -> WorldPhase [E].  classes: C, all classes of the host.
    """
    number = phase_number(key, episode, epoch, spec=spec, horizon=horizon)
    words = rng.random_bits(rng.stream(key, Purpose.PHASE, round=episode, epoch=number), FIRST_CLASS + classes)
    codes = tuple(map(int, spec.views.choices))
    view = constant_table(codes, torch.int64, key.device)[rng.bounded_ints(words[:, VIEW], len(codes))]
    drawn = torch.cat((words[:, CLASSES : CLASSES + 1], words[:, FIRST_CLASS:]), dim=-1)
    return WorldPhase(number, view, drawn)
