"""Minibatches of digits out of the resident data set, shifted or as they are: `python -m bench.bench_data`."""

import functools

from bench.scenes import scheduler
from bench.timing import Bench, Measure, over, run
from morphogen.run.data.feed import Feed
from morphogen.state.env import EnvState
from morphogen.vocab.spec import DataSpec


def gather(feed: Feed, state: EnvState) -> None:
    """All minibatches of an epoch."""
    draws = feed.epoch(state)
    for minibatch in range(feed.spec.minibatches):
        feed.batch(draws, minibatch)


def measures(bench: Bench, envs: int = 32, minibatches: int = 36) -> list[Measure]:
    """Samples per second."""
    forms, samples = {}, 0
    for name, augment in (("shifted", True), ("plain", False)):
        data = DataSpec(augment=augment, minibatches=minibatches)
        own = scheduler(envs, bench.device, data=data)
        feed, state = own.world.feed, own.world.reset(0)
        samples = envs * feed.spec.minibatches * feed.spec.batch
        forms[name] = functools.partial(gather, feed, state)
        bench.saw(f"data_{name}", feed.batch(feed.epoch(state), 0).images)
    seconds = bench.interleaved(forms)
    return [over(f"data_{name}", [samples / t for t in found], "samples/s") for name, found in seconds.items()]


if __name__ == "__main__":
    run(__doc__, measures)
