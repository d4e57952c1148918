"""What telemetry remembers, in and out of a checkpoint: who goes on from it tells what one would have told anyway."""

import io
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import SLOTS, live
from profiles import one_in
from runs import tiny_setup
from sinks import Keep

from morphogen.run.reporter import Reporter
from morphogen.run.telemetry.lines import line
from morphogen.run.telemetry.summary import Costs
from morphogen.vocab.observation import VECTORS
from morphogen.vocab.telemetry import LEVELS, TelemetrySpec

ENVS, EPOCHS, ROUNDS = 2, 5, 4
SETUP = cache(lambda: tiny_setup(rounds=ROUNDS, envs=ENVS, episode_length=EPOCHS, final_episodes=ENVS))
FULL = {"device": "cuda:0", "total_bytes": 100}
FULL |= dict.fromkeys(("allocated_bytes", "reserved_bytes", "peak_bytes", "retries", "ooms"), 90)


def reporter(sink, **telemetry):
    setup = SETUP()
    telemetry = {"plateau_threshold": 0.5, "improvement_threshold": 2.0, "queue": 999, **telemetry}
    return Reporter(replace(setup, spec=replace(setup.spec, telemetry=TelemetrySpec(**telemetry))), (sink,))


def metrics(dice):
    """What an update brings, now and then alarming."""
    numbers = {"kl": dice.choice([0.01, 0.01, 0.7]), "gradient_norm": dice.choice([1.0, 1.1, 9.0])}
    numbers |= {"entropy_head.op": dice.choice([0.01, 0.01, 0.5]), "observation.clip_share": 0.5}
    scale = {"normaliser.mean": np.asarray([dice.random()] * features()), "normaliser.std": np.ones(features())}
    return {name: np.float64(value) for name, value in numbers.items()} | scale


def features():
    return sum(one.normalised for row in VECTORS.values() for one in row)


def beats(seed):
    """What a reporter is told of a run: records of epochs with their position, and ends of rounds."""
    dice = random.Random(seed)
    for round in range(ROUNDS):
        _, records = live(seed * ROUNDS + round, ENVS, EPOCHS)
        for epoch, record in enumerate(records):
            ratio = np.full((ENVS, len(SLOTS)), 5.0)
            yield "take", record | {"detector_ratio": ratio}, (round, epoch)
        yield "end_round", round, metrics(dice), Costs(rollout_s=1.0, memory=(FULL,) * dice.randint(0, 1))


def followed(one, beats):
    for name, *told in beats:
        getattr(one, name)(*told)


def written(sink):
    return [line(event, seq=i, time=0.0) for i, event in enumerate(sink.events)]


def through_a_file(tree):
    file = io.BytesIO()
    torch.save(tree, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def undisturbed(seed, **telemetry):
    sink = Keep()
    one = reporter(sink, **telemetry)
    followed(one, beats(seed))
    one.close()
    return written(sink)


CUTS = st.integers(0, ROUNDS * (EPOCHS + 1)).filter(lambda at: at % (EPOCHS + 1) != EPOCHS)
MODES = [{"level": level} for level in LEVELS]
MODES += [
    {"lifecycle_only": True},
    {"escalate": False},
    {"escalation_epochs": 1},
    {"level": "minimal", "escalation_epochs": 9},
]


@pytest.mark.parametrize("telemetry", MODES, ids=lambda mode: "-".join(f"{k}={v}" for k, v in mode.items()))
@settings(max_examples=one_in(4))
@given(seed=st.integers(0, 10**6), at=CUTS)
def test_who_goes_on_from_a_checkpoint_writes_the_lines_of_one_that_was_not_stopped(telemetry, seed, at):
    sink = Keep()
    first, second = (reporter(sink, **telemetry) for _ in range(2))
    told = list(beats(seed))
    followed(first, told[:at])
    tree = through_a_file(first.state())
    first.close()
    second.restore(tree)
    followed(second, told[at:])
    second.close()
    assert written(sink) == undisturbed(seed, **telemetry)
    assert equal(second.state(), through_a_file(second.state()))


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.is_floating_point())
    return type(one) is type(other) and (one == other or one != one)
