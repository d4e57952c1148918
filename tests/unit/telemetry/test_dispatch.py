"""From what happened to what is written: levels, the flight recorder, and sinks that fail beside others."""

import json
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import DONE, Blocked, Broken, FullDisk, Keep, batch, lived, passing, summary

from morphogen.config.telemetry_spec import LEVELS, TelemetrySpec
from morphogen.telemetry import dispatch as module
from morphogen.telemetry.anomaly import EpochReport
from morphogen.telemetry.dispatch import Dispatcher, PendingEvents, SinkWorker
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode
from morphogen.telemetry.kinds.epoch import RewardsPaid
from morphogen.telemetry.kinds.round import AnomalyDetected
from morphogen.telemetry.writer import JsonlSink

EPOCHS = 6  # of an episode
CALM = ()


def dispatch(*sinks, **fields):
    return Dispatcher(sinks, TelemetrySpec(**fields), epochs=EPOCHS)


def moment(at):
    """An epoch with an event of every level: minimal, normal, debug."""
    round, epoch = divmod(at, EPOCHS)
    where = {"round": round, "epoch": epoch}
    paid = RewardsPaid(names=(), components=(), totals=())
    found = Envelope(AnomalyDetected(kind="x", value=None, limit=None, subject=None, streak=0), **where)
    return PendingEvents(lambda: (found, passing(0, **where)), lambda: (Envelope(paid, **where),))


def told(causes, **fields):
    """Events of epochs, some of which raise the level."""
    sink = Keep()
    own = dispatch(sink, **{"queue": 999, **fields})
    for at, reasons in enumerate(causes):
        own.emit_epoch(moment(at), EpochReport(at, reasons))
    losses = own.close(DONE)
    assert not losses.lines()
    return sink.events


def epochs_of(events, name, *, late=False):
    return [e.round * EPOCHS + e.epoch for e in events if e.name == name and e.late == late]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_writes_what_the_one_before_writes_and_more(level):
    written = Counter(event.name for event in told([CALM] * 3, level=level))
    wanted = ["RunCompleted", "AnomalyDetected", "HostStabilized", "RewardsPaid"][: 1 + LEVELS.index(level)]
    assert sorted(written) == ([] if level == "off" else sorted(wanted))


def test_of_lives_only_nothing_else_is_written():
    sink = Keep()
    own = dispatch(sink, lifecycle_only=True)
    own.emit_epoch(PendingEvents(lambda: (lived(0), passing(0))), EpochReport(0, ("kl_spike",)))
    own.emit([summary()])
    own.close(DONE)
    assert sink.names == ["RolledBack", "RunCompleted"]


def test_a_cause_raises_the_level_for_five_epochs_and_tells_late_what_the_five_before_left_out():
    events = told([CALM] * 8 + [("RolledBack", "kl_spike", "RolledBack")] + [CALM] * 9)
    assert epochs_of(events, "RewardsPaid") == [9, 10, 11, 12, 13]
    assert epochs_of(events, "RewardsPaid", late=True) == [4, 5, 6, 7, 8]
    assert epochs_of(events, "HostStabilized") == list(range(18))
    assert epochs_of(events, "HostStabilized", late=True) == []
    raised = [event.data for event in events if event.name == "TelemetryEscalated"]
    assert [(one.reason, one.until_round, one.until_epoch) for one in raised] == [("RolledBack, kl_spike", 2, 1)]


def test_below_normal_the_flight_recorder_tells_what_normal_would_have_told_too():
    events = told([CALM, CALM, ("kl_spike",)], level="minimal")
    assert epochs_of(events, "HostStabilized", late=True) == epochs_of(events, "RewardsPaid", late=True) == [0, 1, 2]
    assert epochs_of(events, "HostStabilized") == []


@given(st.lists(st.booleans(), max_size=30), st.sampled_from(["minimal", "normal"]), st.integers(1, 6))
def test_events_at_a_level_are_among_those_at_debug_and_none_is_written_twice(causes, level, length):
    reasons = [("kl_spike",) * cause for cause in causes]
    every = told(reasons, level="debug")
    events = told(reasons, level=level, escalation_epochs=length)
    once = Counter((e.name, e.round, e.epoch, e.late) for e in events if e.name != "TelemetryEscalated")
    assert set(once.values()) <= {1}
    plain = {(name, round, epoch) for name, round, epoch, _ in once}
    assert len(plain) == len(once)
    assert plain <= {(e.name, e.round, e.epoch) for e in every}
    raised = {at + i for at, cause in enumerate(causes) if cause for i in range(1, length + 1)}
    assert epochs_of(events, "RewardsPaid") == sorted(raised & set(range(len(causes))))


def test_a_cause_told_at_the_end_of_a_round_raises_the_level_of_the_next():
    sink = Keep()
    own = dispatch(sink)
    own.emit_epoch(moment(5), EpochReport(5))
    own.emit([summary()])
    own.update_level(EpochReport(5, ("gradient_drift",)))
    own.emit_epoch(moment(6), EpochReport(6))
    own.close(DONE)
    assert epochs_of(sink.events, "RewardsPaid") == [6]
    assert epochs_of(sink.events, "RewardsPaid", late=True) == [5]


def test_details_are_made_only_where_they_are_written():
    asked = []
    quiet = PendingEvents(tuple, lambda: asked.append("details") or ())
    own = dispatch(Keep())
    own.emit_epoch(quiet, EpochReport(0))
    own.close(DONE)
    assert asked == []


def test_a_sink_that_raises_is_told_to_the_others_and_takes_no_line_from_them(tmp_path):
    kept, broken, file = Keep(), Broken(), JsonlSink(tmp_path / "events.jsonl")
    own = dispatch(kept, broken, file)
    for at in range(4):
        own.emit_epoch(moment(at), EpochReport(at))
    losses = own.close(DONE)
    names = [name for name in kept.names if name != "SinkFailed"]
    assert names == ["AnomalyDetected", "HostStabilized"] * 4 + ["RunCompleted"]
    text = (tmp_path / "events.jsonl").read_text().splitlines()
    assert sum('"SinkFailed"' in line and '"Broken"' in line for line in text) == 1
    assert '"RunCompleted"' in text[-1]
    assert losses.failed == {"Broken": "RuntimeError: no route to host"}
    assert losses.lines() == ["Broken failed: RuntimeError: no route to host"]
    assert not losses.incomplete


def test_a_function_is_a_sink():
    batches = []
    own = dispatch(batches.append)
    own.emit_epoch(moment(0), EpochReport(0))
    own.close(DONE)
    assert [[event.name for event in batch] for batch in batches] == [
        ["AnomalyDetected", "HostStabilized"],
        ["RunCompleted"],
    ]
    assert isinstance(batches[0], list)


# --- one worker -------------------------------------------------------------------------------------------------------


def outlet(sink, *, size=4, patience=60.0, retried=False):
    """An outlet and the failures that it told."""
    failures = []
    sink.name, sink.retries = "sink", retried
    spec = TelemetrySpec(queue=size, close_timeout_s=patience)
    return SinkWorker(sink, spec, lambda one, error: failures.append((one.name, error))), failures


def dropped(sink):
    """Drops that the events of a sink report."""
    return sum((Counter(e.data.dropped) for e in sink.events if e.name == "TelemetryDropped"), Counter())


KEPT = ("RolledBack", "RoundCompleted", "RunCompleted")  # whatever happens
QUEUED = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=25)


def batches(epochs):
    """A batch per epoch, of lives and passing events, and one more where a round ends."""
    for number, (lives, others, ends) in enumerate(epochs):
        yield batch(*(lived(i, epoch=number) for i in range(lives)), *(passing(i, epoch=number) for i in range(others)))
        if ends:
            yield batch(summary(number))


@given(QUEUED, st.integers(1, 5))
def test_behind_a_blocked_sink_what_is_never_dropped_arrives_in_order_and_the_rest_is_counted(epochs, size):
    sink = Blocked()
    own, failures = outlet(sink, size=size)
    every = [*batches(epochs), batch(Envelope(DONE))]
    for one in every:
        own.put(one)
    sink.free.set()
    own.close()
    produced = [event for one in every for event in one()]
    written = [event for event in sink.events if event.name != "TelemetryDropped"]
    assert [event for event in written if event.name in KEPT] == [event for event in produced if event.name in KEPT]
    assert Counter(event.name for event in written) + own.dropped == Counter(event.name for event in produced)
    assert dropped(sink) == own.dropped
    assert sink.names[-1] == "RunCompleted"
    assert (failures, own.error, sink.closed) == ([], None, 1)


def test_a_sink_that_keeps_up_gets_everything_batch_by_batch():
    sink = Keep()
    own, _ = outlet(sink, size=50)
    wanted = [batch(lived(0, epoch=t), passing(1, epoch=t)) for t in range(20)]
    for one in wanted:
        own.put(one)
    own.close()
    assert sink.batches == [list(one()) for one in wanted]
    assert own.waited_s == 0.0


def test_what_was_dropped_is_told_once_a_round_before_its_end():
    sink = Blocked()
    own, _ = outlet(sink, size=1)
    own.put(batch(lived(0)))
    assert sink.began.wait(60)
    for round in range(2):
        own.put(batch(passing(0, round=round), passing(1, round=round)))
        own.put(batch(summary(round)))
    sink.free.set()
    own.close()
    assert sink.names == ["RolledBack", "TelemetryDropped", "RoundCompleted", "RoundCompleted"]
    assert dropped(sink) == {"HostStabilized": 4}
    assert sink.events[1].round == 0


def test_a_queue_of_nothing_but_what_is_never_dropped_waits_and_then_gives_the_sink_up(monkeypatch):
    monkeypatch.setattr(module, "MAX_RETAINED", 2)
    sink = Blocked()
    own, failures = outlet(sink, size=2, patience=0.05)
    for env in range(8):
        own.put(batch(lived(env)))
    assert own.given_up
    assert own.waited_s > 0
    assert [name for name, _ in failures] == ["sink"]
    assert "took nothing" in failures[0][1]
    own.put(batch(lived(9)))
    sink.free.set()


def test_waiting_ends_as_soon_as_there_is_room_and_is_told(monkeypatch):
    monkeypatch.setattr(module, "MAX_RETAINED", 1)
    sink = Blocked()
    own, failures = outlet(sink, size=1)
    own.put(batch(passing(0)))
    assert sink.began.wait(60)
    own.put(batch(passing(1), lived(1)))
    threading.Timer(0.05, sink.free.set).start()
    for env in range(2, 6):
        own.put(batch(lived(env), passing(env)))
    own.put(batch(summary()))
    own.close()
    assert [event.env for event in sink.events if event.name == "RolledBack"] == [1, 2, 3, 4, 5]
    assert not failures
    assert own.waited_s > 0
    told = [event.data.writer_wait_s for event in sink.events if event.name == "TelemetryDropped"]
    assert 0 < sum(told) <= own.waited_s


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
    file = JsonlSink(tmp_path / "events.jsonl")
    disk = FullDisk(file._file, room)
    monkeypatch.setattr(file, "_file", disk)
    return disk, *outlet(file, size=2, retried=True)


@pytest.mark.parametrize("room", [0, 100, 400])
def test_a_full_disk_loses_no_life_once_there_is_room_again(tmp_path, monkeypatch, room):
    failed = threading.Event()
    disk, own, failures = full(tmp_path, monkeypatch, room)
    own._on_failure = lambda one, error: (failures.append(error), failed.set())
    for env in range(3):
        own.put(batch(lived(env), passing(env)))
    own.flush()
    assert failed.wait(60)
    for env in range(3, 9):
        own.put(batch(lived(env), passing(env)))
    disk.room = None
    own.flush()
    own.put(batch(summary()))
    own.close()
    found = lines(tmp_path / "events.jsonl")
    assert [one["env"] for one in found if one["event"] == "RolledBack"] == list(range(9))
    assert [one["seq"] for one in found] == list(range(len(found)))
    count = Counter(one["event"] for one in found)
    assert count["HostStabilized"] + own.dropped["HostStabilized"] == 9
    assert failures == ["OSError: [Errno 28] No space left on device"]
    assert own.error is None


def test_a_disk_that_stays_full_leaves_whole_lines_and_is_told(tmp_path, monkeypatch):
    disk, own, failures = full(tmp_path, monkeypatch, None)
    own.sink.write([lived(0)])
    disk.room = 100
    for env in range(20):
        own.put(batch(lived(env), passing(env)))
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
