"""Events of a run directory: lines of the event file, and views of the records, in the order in which they happened."""

import os
import shutil
from itertools import groupby

import pytest
from support.faulty_sinks import Keep
from support.small_runs import tiny

import morphogen as mg
from morphogen.analysis.run_log import events, read_events, record_events
from morphogen.analysis.watch import loop
from morphogen.analysis.watch.loop import Cursor, FollowBatch, RecordCursor, fold_batch, read_new_events
from morphogen.analysis.watch.view import RunView
from morphogen.engine.reporter import WRITE_S
from morphogen.engine.scheduler import Hooks, Parts
from morphogen.run.train import train_ppo_vectorized
from morphogen.telemetry.record_files import list_records, record_path

ROUNDS, EPOCHS = 3, 6


@pytest.fixture(scope="module")
def live_and_log(tmp_path_factory):
    """Events that a sink got, and the run directory."""
    sink, out = Keep(), tmp_path_factory.mktemp("log") / "run"
    train_ppo_vectorized(tiny(rounds=ROUNDS, policy_name="random"), parts=Parts(sinks=(sink,)), out=out)
    return sink.events, out


@pytest.fixture
def copy(live_and_log, tmp_path):
    return shutil.copytree(live_and_log[1], tmp_path / "copy")


def test_a_sink_and_a_reader_get_the_same_events_in_the_same_order(live_and_log):
    told, out = live_and_log
    read = list(events(out))
    assert [event for event in read if event.name != "RunStarted"] == [one for one in told if one.name != "RunStarted"]
    positions = [key for key, _ in groupby((event.round, event.epoch) for event in read if event.round is not None)]
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
    assert [event.data.round for event in events(copy, kinds={"RoundCompleted"})] == list(range(ROUNDS))
    assert list(events(copy)) == list(read_events(copy / "events.jsonl"))


def test_a_record_of_another_run_is_refused(copy, tmp_path):
    train_ppo_vectorized(tiny(rounds=1, envs=3, policy_name="wait"), out=tmp_path / "other")
    shutil.copy(record_path(tmp_path / "other", 0), record_path(copy, 0))
    with pytest.raises(mg.errors.DataError, match=r"round-000001.npz.xz is damaged: it is the record of another run"):
        list(events(copy))


def test_watch_reads_a_record_again_only_if_it_was_written_again(live_and_log, copy, monkeypatch):
    read: list[int] = []

    def counted(paths, *rest, **more):
        read.extend(round for round, files in list_records(copy).items() if files == paths)
        return record_events(paths, *rest, **more)

    monkeypatch.setattr(loop, "record_events", counted)
    batch, _ = read_new_events(copy / "events.jsonl", Cursor())
    view, cursor = fold_batch(RunView(), batch, copy, RecordCursor())
    assert read == list(range(ROUNDS))
    for _ in range(3):
        assert fold_batch(view, FollowBatch(), copy, cursor) == (view, cursor)
    assert read == list(range(ROUNDS))
    os.utime(record_path(copy, ROUNDS - 1), ns=(0, 0))
    assert fold_batch(view, FollowBatch(), copy, cursor)[0] == view
    assert read == [*range(ROUNDS), ROUNDS - 1]


class Ticks:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        return self.now


def test_a_round_that_goes_on_is_read_and_watched_up_to_its_last_written_epoch(tmp_path):
    clock, out, seen = Ticks(), tmp_path / "run", []

    def look(round, epoch):
        clock.now += WRITE_S * (epoch == 3)
        seen.append(epoch)
        return len(seen) == 5

    hooks = Hooks(on_epoch=lambda round, epoch: look(round, epoch) and None, should_stop=lambda: len(seen) == 5)
    train_ppo_vectorized(tiny(rounds=1), parts=Parts(clock=clock, hooks=hooks), out=out)
    found = [event.epoch for event in events(out, kinds={"EpochCompleted"})]
    assert found == [0, 1, 2, 3, 4]
    assert [event.name for event in events(out)][-1] == "RunCompleted"
    batch, _ = read_new_events(out / "events.jsonl", Cursor())
    view, cursor = fold_batch(RunView(), batch, out, RecordCursor())
    assert (view.epoch, view.envs[0].accuracy.count, cursor[:2]) == (4, 5, (0, 5))
    assert fold_batch(view, FollowBatch(), out, cursor) == (view, cursor)
    assert mg.resume(out).history[0].episodes_completed == 4
    assert [event.epoch for event in events(out, kinds={"EpochCompleted"})] == list(range(EPOCHS))
