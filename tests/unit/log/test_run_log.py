"""Events of a run directory: lines of the event file, and views of the records, in the order in
which they happened.
"""

import shutil
from itertools import groupby

import pytest
from support.small_runs import tiny

import morphogen as mg
from bench.harness.memory_sink import MemorySink
from morphogen.log.derive import derive_events
from morphogen.log.record_files import record_path
from morphogen.log.run_log import events, read_events
from morphogen.train.loop import Parts
from morphogen.train.train import train_ppo_vectorized

ROUNDS, EPOCHS = 3, 6


@pytest.fixture(scope="module")
def live_and_log(tmp_path_factory):
    """A sink of a run, and the run directory."""
    sink, out = MemorySink(), tmp_path_factory.mktemp("log") / "run"
    train_ppo_vectorized(
        tiny(rounds=ROUNDS, policy_name="random"), parts=Parts(sinks=(sink,)), out=out
    )
    return sink, out


@pytest.fixture
def copy(live_and_log, tmp_path):
    return shutil.copytree(live_and_log[1], tmp_path / "copy")


def test_a_sink_and_a_reader_get_the_same_events_in_the_same_order(live_and_log):
    sink, out = live_and_log
    read = list(events(out))
    written = [event for event in read if event.epoch is None and event.name != "RunStarted"]
    assert written == [event for event in sink.events if event.name != "RunStarted"]
    derived = [event for record in sink.records for event in derive_events(record)]
    assert [event for event in read if event.epoch is not None] == derived
    positions = [
        key
        for key, _ in groupby(
            (event.round, event.epoch) for event in read if event.round is not None
        )
    ]
    assert positions == [(r, t) for r in range(ROUNDS) for t in (*range(EPOCHS), None)]


def test_events_are_chosen_by_kind_and_by_round(live_and_log):
    _, out = live_and_log
    every = list(events(out))
    kinds = {"EpochCompleted", "RoundCompleted", "RunCompleted"}
    assert list(events(out, kinds=kinds)) == [event for event in every if event.name in kinds]
    assert list(events(out, rounds={1})) == [event for event in every if event.round == 1]
    assert list(mg.events(out, kinds={"SeedPruned"}, rounds={0, 2})) == [
        event for event in every if event.name == "SeedPruned" and event.round in (0, 2)
    ]


def test_events_that_need_no_record_are_read_without_one(copy):
    shutil.rmtree(copy / "records")
    assert [event.data.round for event in events(copy, kinds={"RoundCompleted"})] == list(
        range(ROUNDS)
    )
    assert list(events(copy)) == list(read_events(copy / "events.jsonl"))


def test_a_record_of_another_run_is_refused(copy, tmp_path):
    train_ppo_vectorized(tiny(rounds=1, envs=3, policy_name="wait"), out=tmp_path / "other")
    shutil.copy(record_path(tmp_path / "other", 0), record_path(copy, 0))
    with pytest.raises(
        mg.errors.DataError,
        match=r"round-000001.npz.xz is damaged: it is the record of another run",
    ):
        list(events(copy))
