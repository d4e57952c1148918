"""Minibatches of digits, shifted or as they are, out of the resident data set and streamed to the
device.

`python -m bench.speed.data`.  All minibatches of an epoch, and nothing else: what streaming costs a
run that trains meanwhile is less, as far as the machine has a core left for the thread that reads
ahead.
"""

import functools
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import torch
from torch import Tensor

from bench.harness.bench_scenes import EPOCH_MINIBATCHES, build_scheduler
from bench.harness.timing import Bench, Measure, median_measure, run_bench
from morphogen.config.groups import DataSpec
from morphogen.data.feed import Feed
from morphogen.state.env import EnvState

FORMS = {  # placement, augmentation
    "shifted": ("resident", True),
    "plain": ("resident", False),
    "shifted_streamed": ("streamed", True),
    "plain_streamed": ("streamed", False),
}


def gather_epoch(feed: Feed, state: EnvState, epochs: Iterator[int]) -> Tensor:
    """All minibatches of the next epoch; the images of the last one."""
    clock = state.clock.replace(epoch=torch.full_like(state.clock.epoch, next(epochs)))
    draws = feed.epoch(state.replace(clock=clock))
    for minibatch in torch.arange(feed.spec.minibatches, device=state.device).split(1):
        feed.fetch()
        images = feed.batch(draws, minibatch).inputs
    return images


def measures(bench: Bench, envs: int = 32, minibatches: int = EPOCH_MINIBATCHES) -> list[Measure]:
    """Samples per second."""
    forms, samples = {}, 0
    with ExitStack() as worlds:
        for name, (placement, augment) in FORMS.items():
            data = DataSpec(placement=placement, augment=augment, minibatches=minibatches)
            own = build_scheduler(envs, bench.device, data=data, episode_length=bench.runs + 2)
            world = worlds.enter_context(own.env)
            forms[name] = functools.partial(gather_epoch, world.feed, world.reset(0)[0], count())
            samples = envs * minibatches * world.feed.spec.batch
            bench.record_checksum(f"data_{name}", forms[name]())
        seconds = bench.time_interleaved(forms)
    return [
        median_measure(f"data_{name}", [samples / t for t in found], "samples/s")
        for name, found in seconds.items()
    ]


if __name__ == "__main__":
    run_bench(__doc__, measures)
