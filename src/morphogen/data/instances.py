"""Instances: task parameters of each env, drawn from its key at reset.

The choice of samples is integer arithmetic: shares are multiples of 2**-20, which float32
represents exactly, so that all devices agree.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.instance_spec import WIDTH_STEP
from morphogen.config.spec import RunSpec, find_host, instance_ranges
from morphogen.data.instance_process import find_process
from morphogen.data.splits import sorting_permutation
from morphogen.hosts.answers import CLASS_LABELS, Criterion
from morphogen.state import rng
from morphogen.state.env import Instance
from morphogen.state.tree_ops import choose, constant_table, divide_ints
from morphogen.vocab.purpose import Purpose

HELD_OUT_EPISODE = 10**6  # first episode number that no training round has (`rounds` <= 10**6)
SHARE_UNIT = 2**20  # a share of 1
SHARE_LEVELS = 64  # log-spaced data shares
UNUSED_KEY = 2**32  # sorts after every random word
CHUNK = 2**22  # (env, sample) pairs sorted at once
# lanes of the instance stream
WIDTH = 0
DATA_SHARE = 1
LABEL_NOISE = 2
CLASSES = 3
PRICE = 4
REACH = 5
FIRST_CLASS = 8


class InstanceSplit(NamedTuple):
    """A stream of instances."""

    purpose: Purpose
    first_episode: int  # number of its first episode
    label: str


TRAINING_INSTANCES = InstanceSplit(Purpose.INSTANCE, 0, "training instances")
HELD_OUT_INSTANCES = InstanceSplit(
    Purpose.INSTANCE_HELD_OUT, HELD_OUT_EPISODE, "held-out instances"
)
TEST_INSTANCES = InstanceSplit(Purpose.INSTANCE_TEST, 2 * HELD_OUT_EPISODE, "test instances")


def draw_instances(
    key: Tensor,
    episode: Tensor,
    epoch: Tensor,
    *,
    spec: RunSpec,
    labels: Tensor,
    purpose: Purpose,
    criterion: Criterion = CLASS_LABELS,
) -> Instance:
    """Draw the instances of `episode` from the ranges of a resolved spec, as they are at `epoch`.

    Shapes: key int64 [E, 3]; episode, epoch int64 [E]; labels int64 [N], of the training split, or
    the targets of a criterion without labels [N, ...] -> Instance [E].
    Promise: a row depends on its own key, episode and epoch only; one range changes no other
    parameter's draw.
    """
    ranges = instance_ranges(spec)
    total = find_host(spec).classes
    words = rng.random_bits(rng.stream(key, purpose, round=episode), FIRST_CLASS + total)
    process = find_process(spec)
    regime = process.regime(key, episode, epoch)
    classes = regime.classes
    order = regime.order
    if classes is None or order is None:
        classes = _uniform_int(words[:, CLASSES], ranges.classes)
        order = words[:, FIRST_CLASS:]
    used = sorting_permutation(order) < classes.unsqueeze(-1)
    class_of = choose(used, used.cumsum(-1) - 1, -1)  # classes in use, numbered in ascending order
    share = _data_share(words[:, DATA_SHARE], ranges.data_share)
    if not criterion.labelled:
        labels = torch.zeros(len(labels), dtype=torch.int64, device=key.device)
    fewest = min(low for low, _ in process.class_ranges(ranges.classes))
    everything = ranges.data_share == (1.0, 1.0) and fewest == total
    usable, samples = _usable_samples(
        key, episode, class_of, share, labels=labels, minimum=spec.data.batch, all_usable=everything
    )
    # of the price range in use (log scale)
    price_share = torch.ones_like(episode, dtype=torch.float64)
    if purpose is Purpose.INSTANCE and spec.ppo.price_warmup_rounds:
        price_share = ((episode + 1).double() / spec.ppo.price_warmup_rounds).clamp(max=1.0)
    noise = (round(ranges.label_noise[0] * SHARE_UNIT), round(ranges.label_noise[1] * SHARE_UNIT))
    return Instance(
        width=_width(words[:, WIDTH], ranges.width),
        data_share=divide_ints(share, SHARE_UNIT),
        label_noise=divide_ints(_uniform_int(words[:, LABEL_NOISE], noise), SHARE_UNIT),
        classes=classes,
        reach=_uniform_int(words[:, REACH], ranges.reach),
        param_price=_price(words[:, PRICE], ranges.param_price, price_share),
        samples=samples,
        baseline_loss=constant_table(criterion.guessing(total), torch.float32, key.device)[classes],
        class_of=class_of,
        usable=usable,
        regime=regime.number,
        view_code=regime.view,
        batch_size=[key.shape[0]],
        device=key.device,
    )


def _uniform_int(words: Tensor, ends: tuple[int, int]) -> Tensor:
    """Map words to uniform int64 in low .. high, both included."""
    return ends[0] + rng.bounded_ints(words, ends[1] - ends[0] + 1)


def _data_share(words: Tensor, ends: tuple[float, float]) -> Tensor:
    """Map words log-uniformly to the levels of a range: int64, in units of 1 / SHARE_UNIT."""
    low, high = ends
    levels = tuple(
        round(SHARE_UNIT * low * (high / low) ** (i / (SHARE_LEVELS - 1)))
        for i in range(SHARE_LEVELS)
    )
    return constant_table(levels, torch.int64, words.device)[rng.bounded_ints(words, SHARE_LEVELS)]


def _width(words: Tensor, ends: tuple[float, float]) -> Tensor:
    low, high = ends
    steps = round((high - low) / WIDTH_STEP)
    choices = tuple(low + i * WIDTH_STEP for i in range(steps + 1))
    return constant_table(choices, torch.float32, words.device)[
        rng.bounded_ints(words, len(choices))
    ]


def _price(words: Tensor, ends: tuple[float, float], share: Tensor) -> Tensor:
    """Map words log-uniformly to float32 in the lower `share` of a range; an empty range gives its
    value.
    """
    low, high = ends
    ratio = math.log(high / low) if high > low else 0.0
    return (low * torch.exp(rng.unit_floats(words).double() * ratio * share)).to(torch.float32)


def _usable_samples(
    key: Tensor,
    episode: Tensor,
    class_of: Tensor,
    share: Tensor,
    *,
    labels: Tensor,
    minimum: int,
    all_usable: bool,
) -> tuple[Tensor, Tensor]:
    """Return (table int32 [E, N], usable training samples first; count int64 [E]); [E, 0] if all
    are usable.
    """
    envs = key.shape[0]
    count = labels.shape[0]
    if all_usable:
        return torch.empty(envs, 0, dtype=torch.int32, device=key.device), torch.full_like(
            share, count
        )
    chunks = (rows.split(max(1, CHUNK // count)) for rows in (key, episode, class_of))
    parts = [_order_samples(*part, labels=labels) for part in zip(*chunks, strict=True)]
    tables, counts = zip(*parts, strict=True)
    available = torch.cat(counts)
    limit = torch.clamp((available * share) >> 20, min=minimum)
    return torch.cat(tables), torch.minimum(limit, available)


def _order_samples(
    key: Tensor, episode: Tensor, class_of: Tensor, *, labels: Tensor
) -> tuple[Tensor, Tensor]:
    words = rng.random_bits(rng.stream(key, Purpose.SUBSET, round=episode), labels.shape[0])
    usable = class_of[:, labels] >= 0
    return sorting_permutation(choose(usable, words, UNUSED_KEY)).to(torch.int32), usable.sum(-1)
