"""State of telemetry in a checkpoint: a resumed run emits the events of an undisturbed one."""

import json
import random
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.extras import needs_extra
from support.faulty_sinks import Keep
from support.made_up_checkpoints import made_up
from support.profiles import one_in
from support.random_records import SLOTS, as_sent, live
from support.small_runs import tiny_setup

from bench.harness.memory_sink import MemorySink
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError
from morphogen.log.codec import pack
from morphogen.log.jsonl import encode
from morphogen.log.record_files import encode_record
from morphogen.log.round_summary import RoundCosts
from morphogen.train.checkpoint import load_checkpoint
from morphogen.train.reporter import Reporter
from morphogen.vocab.observation import FEATURES

ENVS, EPOCHS, ROUNDS = 2, 5, 4
SETUP = cache(
    lambda: tiny_setup(rounds=ROUNDS, envs=ENVS, episode_length=EPOCHS, final_episodes=ENVS)
)
FULL = {"device": "cuda:0", "total_bytes": 100}
FULL |= dict.fromkeys(("allocated_bytes", "reserved_bytes", "peak_bytes", "retries", "ooms"), 90)


def reporter(sink, **telemetry):
    setup = SETUP()
    telemetry = {"plateau_threshold": 0.5, "improvement_threshold": 2.0, **telemetry}
    return Reporter(
        replace(setup, spec=replace(setup.spec, telemetry=TelemetrySpec(**telemetry))), (sink,)
    )


def metrics(dice):
    """Metrics of an update, alarming at random."""
    numbers = {"kl": dice.choice([0.01, 0.01, 0.7]), "gradient_norm": dice.choice([1.0, 1.1, 9.0])}
    numbers |= {"entropy_head.op": dice.choice([0.01, 0.01, 0.5]), "observation.clip_share": 0.5}
    scale = {
        "normaliser.mean": np.asarray([dice.random()] * features()),
        "normaliser.std": np.ones(features()),
    }
    return {name: np.float64(value) for name, value in numbers.items()} | scale


def features():
    return sum(one.normalised for row in FEATURES.values() for one in row)


def beats(seed):
    """Calls of a reporter in a run: records of epochs, and ends of rounds."""
    dice = random.Random(seed)
    for round in range(ROUNDS):
        _, records = live(seed * ROUNDS + round, ENVS, EPOCHS)
        for record in records:
            ratio = np.full((ENVS, len(SLOTS)), 5.0)
            yield "add_record", as_sent(record) | {"detector_ratio": ratio}
        yield (
            "end_round",
            round,
            metrics(dice),
            RoundCosts(
                rollout_s=1.0, env_epochs=ENVS * EPOCHS, memory=(FULL,) * dice.randint(0, 1)
            ),
        )


def followed(one, beats):
    for name, *reported in beats:
        if name == "end_round":
            reported.insert(1, one.gather())
        getattr(one, name)(*reported)


def written(sink):
    """Lines of the events about rounds, and the bytes of the records."""
    lines = [encode(event, seq=i, time=0.0) for i, event in enumerate(sink.events)]
    return lines, [encode_record(record) for record in sink.records]


def through_a_file(one):
    """State and columns of a reporter, saved and loaded."""
    saved = replace(made_up(), telemetry=one.state(), columns=one.columns())
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_checkpoint(saved.save(Path(folder)))
    return loaded.telemetry, loaded.columns


def undisturbed(seed):
    sink = MemorySink()
    one = reporter(sink)
    followed(one, beats(seed))
    one.close()
    return written(sink)


CUTS = st.integers(0, ROUNDS * (EPOCHS + 1)).filter(lambda at: at % (EPOCHS + 1) != EPOCHS)


@pytest.mark.slow
@settings(max_examples=one_in(4))
@given(seed=st.integers(0, 10**6), at=CUTS)
def test_a_reporter_that_continues_from_a_checkpoint_emits_the_events_of_one_that_was_not_stopped(
    seed, at
):
    sink = MemorySink()
    first, second = reporter(sink), reporter(sink)
    reported = list(beats(seed))
    followed(first, reported[:at])
    state, columns = through_a_file(first)
    first.close()
    second.restore(state, columns, at % (EPOCHS + 1))
    followed(second, reported[at:])
    second.close()
    assert written(sink) == undisturbed(seed)
    state, columns = through_a_file(second)
    assert equal(pack(state), pack(second.state()))
    assert columns == {}


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor | np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return type(one) is type(other) and (one == other or one != one)


@pytest.mark.slow
@needs_extra("alarms")
@needs_extra("scoreboard")
def test_the_records_around_a_cut_hold_what_has_to_be_remembered():
    """Without them the property above would be empty."""
    names = {json.loads(text)["event"] for seed in range(8) for text in undisturbed(seed)[0]}
    assert {"AnomalyDetected", "TrendDetected", "BlueprintScores"} <= names


def test_columns_that_are_not_of_this_position_are_refused_by_name():
    one = reporter(Keep())
    for shape in ((2, ENVS + 1, 3), (3, ENVS, 3)):
        with pytest.raises(CheckpointError, match=r"^columns\.alpha: expected \[2, 2, ...\], got"):
            one.restore(one.state(), {"alpha": torch.zeros(shape)}, 2)
    one.close()
