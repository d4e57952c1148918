"""The writer thread: the log loses nothing, every other sink is late at most or left out."""

import json
import threading
import time

import pytest
from support.faulty_sinks import DONE, SAVED, Blocked, Broken, FullDisk, Keep, summary
from support.random_records import facts, live, round_record

from bench.harness.memory_sink import MemorySink
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log import log_file
from morphogen.log.log_file import LogFile
from morphogen.log.record_files import read_record, record_path
from morphogen.log.run_log import read_events
from morphogen.log.writer import LogWriter

ENVS, EPOCHS = 3, 9
FULL = "OSError: [Errno 28] No space left on device"


def record_of(seed=1):
    return round_record(live(seed, ENVS, EPOCHS)[1], facts(ENVS, EPOCHS))


def writer(*sinks, **fields):
    return LogWriter(sinks, TelemetrySpec(**fields))


def drained(own, rounds):
    position = own.drain(rounds)
    assert position is not None
    return position


def lines(folder):
    return [json.loads(text) for text in (folder / "events.jsonl").read_text().splitlines()]


def test_sinks_get_the_events_of_every_round_in_order_and_are_closed():
    kept, batches, memory = Keep(), [], MemorySink()
    own = writer(kept, batches.append, memory)
    for round in range(5):
        own.emit([summary(round)], record_of())
    assert own.close(DONE).lines() == []
    names = ["RoundCompleted"] * 5 + ["RunCompleted"]
    assert kept.names == [event.name for event in memory.events] == names
    assert [[event.name for event in batch] for batch in batches] == [[name] for name in names]
    assert [event.round for event in kept.events[:5]] == list(range(5))
    assert (kept.closed, len(memory.records)) == (1, 5)


def test_at_level_off_nothing_is_written():
    kept = Keep()
    own = writer(kept, level="off")
    own.emit([summary()])
    assert own.close(DONE).lines() == []
    assert kept.events == []


def test_a_round_is_a_line_of_the_file_and_a_record_beside_it(tmp_path):
    own = writer(LogFile(tmp_path / "events.jsonl"))
    own.emit([summary(), summary()], record_of())
    own.close(DONE)
    assert [line.get("round") for line in lines(tmp_path)] == [1, None]
    assert [event.name for event in read_events(tmp_path / "events.jsonl")] == [
        "RoundCompleted"
    ] * 2 + ["RunCompleted"]
    assert read_record(record_path(tmp_path, 0)).epochs == EPOCHS


def test_a_sink_that_raises_is_left_out_and_reported_to_the_others(tmp_path):
    kept, broken = Keep(), Broken(at=1)
    own = writer(kept, broken, LogFile(tmp_path / "events.jsonl"))
    for round in range(4):
        own.emit([summary(round)])
        own.drain(round)
    losses = own.close(DONE)
    assert [name for name in kept.names if name != "SinkFailed"] == ["RoundCompleted"] * 4 + [
        "RunCompleted"
    ]
    assert [
        line["data"]["sink"] for line in lines(tmp_path) if line.get("event") == "SinkFailed"
    ] == ["Broken"]
    assert lines(tmp_path)[-1]["event"] == "RunCompleted"
    assert losses.lines() == ["Broken failed: RuntimeError: no route to host"]
    assert (broken.closed, losses.incomplete) == (1, False)


def test_sinks_that_never_come_back_take_nothing_from_the_others(tmp_path):
    stuck, late, kept = Blocked(), Blocked(), Keep()
    own = writer(stuck, late, kept, LogFile(tmp_path / "events.jsonl"), close_timeout_s=0.3)
    own.emit([summary(0)], record_of())
    assert stuck.began.wait(60)
    own.emit([summary(1)], record_of())
    assert drained(own, 2).seq == 2, "a checkpoint does not wait for a logger"
    losses = own.close(DONE)
    assert losses.failed == dict.fromkeys(("Blocked",), "did not take what was left in 0.3 s")
    assert [name for name in kept.names if name != "SinkFailed"] == ["RoundCompleted"] * 2 + [
        "RunCompleted"
    ]
    assert lines(tmp_path)[-1]["event"] == "RunCompleted"
    for sink in (stuck, late):
        sink.free.set()


def test_a_slow_sink_gets_every_event_once_it_is_free(tmp_path):
    slow = Blocked()
    own = writer(slow, LogFile(tmp_path / "events.jsonl"))
    for round in range(6):
        own.emit([summary(round)])
    threading.Timer(0.1, slow.free.set).start()
    assert own.close(DONE).lines() == []
    assert [event.round for event in slow.events] == [*range(6), None]


def test_the_run_waits_for_a_slow_sink_once_its_queue_is_full(monkeypatch):
    monkeypatch.setattr("morphogen.log.writer.MIB", 1)
    slow = Blocked()
    own = writer(slow, queue=8, close_timeout_s=60)
    own.emit([summary(0)])
    threading.Timer(0.3, slow.free.set).start()
    began = time.monotonic()
    for round in range(1, 4):
        own.emit([summary(round)])
    assert time.monotonic() - began > 0.2
    assert own.close(DONE).lines() == []
    assert len(slow.events) == 5


def test_a_sink_that_takes_nothing_while_its_queue_is_full_is_left_out(monkeypatch):
    monkeypatch.setattr("morphogen.log.writer.MIB", 1)
    stuck, kept = Blocked(), Keep()
    own = writer(stuck, kept, queue=8, close_timeout_s=0.2)
    for round in range(4):
        own.emit([summary(round)])
    losses = own.close(DONE)
    assert losses.failed == {"Blocked": "took nothing in 0.2 s"}
    assert len([name for name in kept.names if name == "RoundCompleted"]) == 4
    stuck.free.set()


def full_log(folder, monkeypatch, room):
    """A log on a disk that takes `room` bytes more, and the disk."""
    file = LogFile(folder / "events.jsonl")
    disk = FullDisk(file._file, room)
    monkeypatch.setattr(file, "_file", disk)
    return disk, file


@pytest.mark.parametrize("room", [0, 100, 400])
def test_a_full_disk_costs_no_line_once_there_is_room_again(tmp_path, monkeypatch, room):
    disk, file = full_log(tmp_path, monkeypatch, room)
    kept = Keep()
    own = writer(kept, file)
    for round in range(3):
        own.emit([summary(round)])
    position = drained(own, 3)
    assert position.bytes == file.size
    written = len(lines(tmp_path))
    assert written + len(position.pending) >= 3
    disk.room = None
    own.emit([summary(3)])
    losses = own.close(DONE)
    found = lines(tmp_path)
    assert [line["round"] for line in found if "round" in line] == [1, 2, 3, 4]
    assert [line["seq"] for line in found] == list(range(len(found)))
    assert (losses.lines(), kept.names.count("SinkFailed")) == ([], 1)


def test_lines_that_wait_at_a_checkpoint_are_those_that_the_disk_did_not_take(
    tmp_path, monkeypatch
):
    _, file = full_log(tmp_path, monkeypatch, 0)
    own = writer(file)
    own.emit([summary(0)])
    position = drained(own, 1)
    other = LogFile(tmp_path / "other.jsonl")
    other.write_lines(list(position.pending))
    other.close()
    events = [
        event for event in read_events(tmp_path / "other.jsonl") if event.name != "SinkFailed"
    ]
    assert events == [summary(0)]
    own.close(DONE)


def test_a_disk_that_stays_full_leaves_complete_lines_and_is_reported(tmp_path, monkeypatch):
    disk, file = full_log(tmp_path, monkeypatch, None)
    own = writer(file)
    own.emit([SAVED_EVENT])
    own.drain(0)
    disk.room = 100
    for round in range(5):
        own.emit([summary(round)])
    losses = own.close(DONE)
    assert [line["event"] for line in lines(tmp_path)] == ["CheckpointSaved"]
    assert (losses.failed, losses.incomplete) == ({"events.jsonl": FULL}, True)


SAVED_EVENT = log_file.Envelope(SAVED)


def test_a_folder_that_was_replaced_is_an_error_of_the_log(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    own = writer(LogFile(folder / "events.jsonl"))
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    (folder / "events.jsonl").touch()
    own.emit([summary()], record_of())
    losses = own.close(DONE)
    assert losses.incomplete
    assert "its folder was replaced by another one" in losses.lines()[0]
