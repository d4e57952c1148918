"""From what happened to what is written: levels, kinds that a sink asks for, and sinks that fail beside others."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import DONE, Blocked, Broken, FullDisk, Keep, batch, lived, summary
from support.random_records import events_of, facts, live, round_record

from morphogen.analysis.run_log import read_events
from morphogen.config.telemetry_spec import LEVELS, TelemetrySpec
from morphogen.telemetry.derive import VIEW_KINDS
from morphogen.telemetry.dispatch import EVENT_BYTES, Dispatcher, SinkWorker
from morphogen.telemetry.jsonl import decode
from morphogen.telemetry.record_files import read_record, record_path
from morphogen.telemetry.writer import LOGGED_KINDS, LogFile

ENVS, EPOCHS = 3, 9
KNOWN = facts(ENVS, EPOCHS)


def dispatch(*sinks, **fields):
    return Dispatcher(sinks, TelemetrySpec(**fields))


def record_of(seed=1, **more):
    return round_record(live(seed, ENVS, EPOCHS)[1], KNOWN, **more)


def told(record, **fields):
    """Events of a round with that record, at a level."""
    sink = Keep()
    own = dispatch(sink, **fields)
    own.emit([summary()], record)
    losses = own.close(DONE)
    assert not losses.lines()
    return sink.events


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_sink_without_kinds_gets_the_events_of_the_round_in_order(level):
    records = live(1, ENVS, EPOCHS)[1]
    events = told(round_record(records, KNOWN, level=level), level=level)
    assert events[:-2] == events_of(records, KNOWN, level=level)
    assert [event.name for event in events[-2:]] == ["RoundCompleted", "RunCompleted"]


def test_at_level_off_nothing_is_written():
    assert told(record_of(), level="off") == []


@given(st.sets(st.integers(0, EPOCHS - 1)), st.sampled_from(["minimal", "normal"]))
def test_events_at_a_level_are_among_those_at_debug_and_all_of_them_where_it_is_raised(detailed, level):
    records = live(1, ENVS, EPOCHS)[1]
    every = events_of(records, KNOWN, level="debug")
    some = events_of(records, KNOWN, level=level, detailed=sorted(detailed))
    rank = LEVELS.index(level)
    last = {"AblationsMeasured"} if level == "normal" else set()
    assert some == [
        event
        for event in every
        if event.epoch in detailed
        or LEVELS.index(event.data.LEVEL) <= rank
        or (event.epoch == EPOCHS - 1 and event.name in last)
    ]


@given(st.sets(st.sampled_from(sorted(VIEW_KINDS | {"RoundCompleted"}))))
def test_a_sink_gets_the_kinds_that_it_asks_for(kinds):
    sink = Keep()
    sink.kinds = kinds
    own = dispatch(sink, level="debug")
    own.emit([summary()], record := record_of(level="debug"))
    own.close(DONE)
    assert sink.events == [event for event in told(record, level="debug")[:-1] if event.name in kinds]


def test_views_are_made_only_where_they_are_asked_for(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("morphogen.telemetry.derive.epoch_event", lambda record: made.append(1))
    own = dispatch(LogFile(tmp_path / "events.jsonl"))
    own.emit([summary()], record_of())
    assert not own.close(DONE).lines()
    assert made == []


def test_the_file_has_what_a_round_was_and_the_record_beside_it_the_rest(tmp_path):
    own, record = dispatch(LogFile(tmp_path / "events.jsonl")), record_of()
    own.emit([summary()], record)
    own.close(DONE)
    events = list(read_events(tmp_path / "events.jsonl"))
    assert events[:-2] == [event for event in events_of(live(1, ENVS, EPOCHS)[1], KNOWN) if event.name in LOGGED_KINDS]
    assert {event.name for event in events[:-2]} == {"RolledBack", "AnomalyDetected"}
    assert read_record(record_path(tmp_path, 0)).epochs == EPOCHS


def test_a_sink_that_raises_is_told_to_the_others_and_takes_no_line_from_them(tmp_path):
    kept, broken, file = Keep(), Broken(), LogFile(tmp_path / "events.jsonl")
    own = dispatch(kept, broken, file)
    for round in range(4):
        own.emit([summary(round)])
    losses = own.close(DONE)
    names = [name for name in kept.names if name != "SinkFailed"]
    assert names == ["RoundCompleted"] * 4 + ["RunCompleted"]
    text = (tmp_path / "events.jsonl").read_text().splitlines()
    assert sum('"SinkFailed"' in line and '"Broken"' in line for line in text) == 1
    assert '"RunCompleted"' in text[-1]
    assert losses.failed == {"Broken": "RuntimeError: no route to host"}
    assert losses.lines() == ["Broken failed: RuntimeError: no route to host"]
    assert not losses.incomplete


def test_a_function_is_a_sink():
    batches = []
    own = dispatch(batches.append)
    own.emit([summary()])
    own.close(DONE)
    assert [[event.name for event in batch] for batch in batches] == [["RoundCompleted"], ["RunCompleted"]]
    assert isinstance(batches[0], list)


# --- one worker -------------------------------------------------------------------------------------------------------


def outlet(sink, *, size=4, patience=60.0, retried=False):
    """An outlet with room for so many events, and the failures that it told."""
    failures = []
    sink.name, sink.retries = "sink", retried
    spec = TelemetrySpec(close_timeout_s=patience)
    told = lambda one, error: failures.append((one.name, error))  # noqa: E731
    return SinkWorker(sink, spec, told, max_bytes=size * EVENT_BYTES), failures


@given(st.lists(st.integers(1, 3), max_size=25), st.integers(3, 80))
def test_behind_a_slow_sink_everything_arrives_in_order(sizes, size):
    sink = Keep()
    own, failures = outlet(sink, size=size)
    every = [batch(*(lived(i, epoch=number) for i in range(count))) for number, count in enumerate(sizes)]
    for one in every:
        own.put(one)
    own.close()
    assert sink.events == [event for one in every for event in one.events]
    assert (failures, own.error, sink.closed) == ([], None, 1)


def test_a_sink_gets_its_batches_one_by_one():
    sink = Keep()
    own, _ = outlet(sink, size=50)
    wanted = [batch(lived(0, epoch=t), lived(1, epoch=t)) for t in range(20)]
    for one in wanted:
        own.put(one)
    own.close()
    assert sink.batches == [list(one.events) for one in wanted]


def test_a_full_queue_waits_and_then_gives_the_sink_up():
    sink = Blocked()
    own, failures = outlet(sink, size=2, patience=0.05)
    for env in range(8):
        own.put(batch(lived(env)))
    assert own.given_up
    assert [name for name, _ in failures] == ["sink"]
    assert "took nothing" in failures[0][1]
    own.put(batch(lived(9)))
    sink.free.set()


def test_waiting_ends_as_soon_as_there_is_room():
    sink = Blocked()
    own, failures = outlet(sink, size=1)
    own.put(batch(lived(0)))
    assert sink.began.wait(60)
    threading.Timer(0.05, sink.free.set).start()
    for env in range(1, 6):
        own.put(batch(lived(env)))
    own.close()
    assert [event.env for event in sink.events] == [0, 1, 2, 3, 4, 5]
    assert not failures


def test_a_round_that_is_larger_than_the_queue_is_taken_alone():
    sink = Keep()
    own, failures = outlet(sink, size=1)
    own.put(batch(*(lived(env) for env in range(9))))
    own.close()
    assert (len(sink.events), failures) == (9, [])


def test_a_sink_that_raises_is_closed_and_gets_no_more():
    sink = Broken(at=1)
    own, failures = outlet(sink)
    for env in range(5):
        own.put(batch(lived(env)))
    own.close()
    assert sink.calls == 2
    assert sink.closed == 1
    assert failures == [("sink", "RuntimeError: no route to host")]
    assert own.error == "RuntimeError: no route to host"


def test_a_sink_that_never_comes_back_is_given_up_at_the_end():
    sink = Blocked()
    own, failures = outlet(sink, patience=0.05)
    own.put(batch(lived(0)))
    own.close()
    assert failures == [("sink", "did not take what was left in 0.05 s")]
    sink.free.set()


def lines(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def full(tmp_path, monkeypatch, room):
    """The event file on a full disk, its disk, and its outlet."""
    file = LogFile(tmp_path / "events.jsonl")
    disk = FullDisk(file._file, room)
    monkeypatch.setattr(file, "_file", disk)
    return disk, *outlet(file, size=99, retried=True)


@pytest.mark.parametrize("room", [0, 100, 400])
def test_a_full_disk_loses_no_life_once_there_is_room_again(tmp_path, monkeypatch, room):
    failed = threading.Event()
    disk, own, failures = full(tmp_path, monkeypatch, room)
    own._on_failure = lambda one, error: (failures.append(error), failed.set())
    for env in range(3):
        own.put(batch(lived(env)))
    own.flush()
    assert failed.wait(60)
    for env in range(3, 9):
        own.put(batch(lived(env)))
    disk.room = None
    own.flush()
    own.put(batch(summary()))
    own.close()
    found = lines(tmp_path / "events.jsonl")
    assert [one["env"] for one in found if one["event"] == "RolledBack"] == list(range(9))
    assert [one["seq"] for one in found] == list(range(len(found)))
    assert failures == ["OSError: [Errno 28] No space left on device"]
    assert own.error is None


def test_a_disk_that_stays_full_leaves_whole_lines_and_is_told(tmp_path, monkeypatch):
    disk, own, failures = full(tmp_path, monkeypatch, None)
    own.sink.write([lived(0)])
    disk.room = 100
    for env in range(20):
        own.put(batch(lived(env)))
    own.close()
    text = (tmp_path / "events.jsonl").read_text()
    assert [decode(one) for one in text.splitlines()] == [lived(0)]
    assert text.endswith("\n")
    assert failures == [("sink", "OSError: [Errno 28] No space left on device")]
    assert own.error == failures[0][1]


def test_a_flush_is_done_once_what_waits_was_written():
    order = []
    sink = Keep()
    sink.write = lambda events: order.append("write")
    sink.flush = lambda: order.append("flush")
    own, _ = outlet(sink, size=9)
    for env in range(3):
        own.put(batch(lived(env)))
    own.flush()
    own.close()
    assert order[:3] == ["write"] * 3
    assert order[3:] in (["flush"], ["flush", "flush"])
