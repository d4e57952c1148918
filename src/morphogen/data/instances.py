"""Instances: the parameters of each env's task, drawn from its key at reset.

Everything that decides which samples an env sees is integer arithmetic: shares are multiples of 2**-20, which float32
holds exactly, so that every device agrees.
"""

import math

import torch
from torch import Tensor

from morphogen.config.instance_spec import WIDTH_STEP, InstanceSpec
from morphogen.config.spec import RunSpec, instance_ranges
from morphogen.config.task import TaskSpec
from morphogen.data.splits import sorting_permutation
from morphogen.state import rng
from morphogen.state.env import Instance
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.purpose import Purpose

HELD_OUT_EPISODE = 10**6  # first episode number that no training round has (`rounds` <= 10**6)
SHARE_UNIT = 2**20  # a share of 1
SHARE_LEVELS = 64  # log-spaced data shares
UNUSED_KEY = 2**32  # sorts after every random word
CHUNK = 2**22  # (env, sample) pairs sorted at once
WIDTH, DATA_SHARE, LABEL_NOISE, CLASSES, PRICE, REACH, FIRST_CLASS = 0, 1, 2, 3, 4, 5, 8  # lanes of the instance stream


def draw_instances(
    key: Tensor, episode: Tensor, *, task: TaskSpec, spec: RunSpec, labels: Tensor, purpose: Purpose
) -> Instance:
    """The instances of `episode`, out of the ranges of a resolved spec.

    Shapes: key int64 [E, 3]; episode int64 [E]; labels int64 [N], of the training split -> Instance [E].
    Promise: a row depends on its own key and episode only; one range changes no other parameter's draw.
    """
    ranges, total = instance_ranges(spec), task.host.classes
    words = rng.random_bits(rng.stream(key, purpose, round=episode), FIRST_CLASS + total)
    classes = _uniform_int(words[:, CLASSES], ranges.classes)
    class_of = _class_of(words[:, FIRST_CLASS:], classes)
    share = _data_share(words[:, DATA_SHARE], ranges.data_share)
    usable, samples = _usable_samples(
        key, episode, class_of, share, labels=labels, minimum=spec.data.batch, ranges=ranges
    )
    return Instance(
        width=_width(words[:, WIDTH], ranges.width),
        data_share=share / SHARE_UNIT,
        label_noise=_uniform_int(words[:, LABEL_NOISE], tuple(round(end * SHARE_UNIT) for end in ranges.label_noise))
        / SHARE_UNIT,
        classes=classes,
        reach=_uniform_int(words[:, REACH], ranges.reach),
        param_price=_price(
            words[:, PRICE], ranges.param_price, _price_share(episode, spec.ppo.price_warmup_rounds, purpose)
        ),
        samples=samples,
        baseline_loss=constant_table(tuple(math.log(max(n, 1)) for n in range(total + 1)), torch.float32, key.device)[
            classes
        ],
        class_of=class_of,
        usable=usable,
        batch_size=[key.shape[0]],
        device=key.device,
    )


def _uniform_int(words: Tensor, ends: tuple[int, int]) -> Tensor:
    """Uniform int64 in low .. high, both included."""
    return ends[0] + rng.bounded_ints(words, ends[1] - ends[0] + 1)


def _data_share(words: Tensor, ends: tuple[float, float]) -> Tensor:
    """Log-uniform over the levels of a range: int64, in units of 1 / WHOLE."""
    low, high = ends
    levels = tuple(round(SHARE_UNIT * low * (high / low) ** (i / (SHARE_LEVELS - 1))) for i in range(SHARE_LEVELS))
    return constant_table(levels, torch.int64, words.device)[rng.bounded_ints(words, SHARE_LEVELS)]


def _width(words: Tensor, ends: tuple[float, float]) -> Tensor:
    low, high = ends
    steps = round((high - low) / WIDTH_STEP)
    choices = tuple(low + i * WIDTH_STEP for i in range(steps + 1))
    return constant_table(choices, torch.float32, words.device)[rng.bounded_ints(words, len(choices))]


def _price(words: Tensor, ends: tuple[float, float], share: Tensor) -> Tensor:
    """Log-uniform float32 over a share of the range from its low end; a range without extent is its value."""
    low, high = ends
    ratio = math.log(high / low) if high > low else 0.0
    return (low * torch.exp(rng.unit_floats(words).double() * ratio * share)).to(torch.float32)


def _price_share(episode: Tensor, rounds: int, purpose: Purpose) -> Tensor:
    """Share of the range of prices (on its log scale) that is in use: while training warms up, more every round."""
    if purpose is not Purpose.INSTANCE or not rounds:
        return torch.ones_like(episode, dtype=torch.float64)
    return ((episode + 1).double() / rounds).clamp(max=1.0)


def _class_of(words: Tensor, classes: Tensor) -> Tensor:
    """Which classes are in use: a fair choice of `classes` out of C, relabelled in ascending order.  int64 [E, C]."""
    used = sorting_permutation(words) < classes.unsqueeze(-1)
    return torch.where(used, used.cumsum(-1) - 1, -1)


def _usable_samples(
    key: Tensor,
    episode: Tensor,
    class_of: Tensor,
    share: Tensor,
    *,
    labels: Tensor,
    minimum: int,
    ranges: InstanceSpec,
) -> tuple[Tensor, Tensor]:
    """(table int32 [E, N] of usable training samples first, how many int64 [E]); no table where nothing restricts."""
    envs, count = key.shape[0], labels.shape[0]
    if ranges.data_share == (1.0, 1.0) and ranges.classes == (class_of.shape[1],) * 2:
        return torch.empty(envs, 0, dtype=torch.int32, device=key.device), torch.full_like(share, count)
    parts = zip(*(rows.split(max(1, CHUNK // count)) for rows in (key, episode, class_of)), strict=True)
    tables, found = zip(*(_order_samples(*part, labels) for part in parts), strict=True)
    available = torch.cat(found)
    wanted = torch.clamp((available * share) >> 20, min=minimum)
    return torch.cat(tables), torch.minimum(wanted, available)


def _order_samples(key: Tensor, episode: Tensor, class_of: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    words = rng.random_bits(rng.stream(key, Purpose.SUBSET, round=episode), labels.shape[0])
    known = class_of[:, labels] >= 0
    return sorting_permutation(torch.where(known, words, UNUSED_KEY)).to(torch.int32), known.sum(-1)
