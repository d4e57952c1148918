"""From what happened to what is written: levels, the flight recorder, and sinks that fail beside others."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import DONE, Broken, Keep, lived, passing, summary

from morphogen.config.telemetry_spec import LEVELS, TelemetrySpec
from morphogen.telemetry.anomaly import EpochReport
from morphogen.telemetry.dispatch import Dispatcher, PendingEvents
from morphogen.telemetry.events import Envelope
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
