"""The files of a run that goes on: cut to where they stood, numbered on, refused where they are not its own."""

import csv
import errno
import json
import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import Blocked, Broken, FullDisk, Keep, lived, summary
from support.generated_logs import started
from support.random_records import facts, live, round_record
from support.small_runs import tiny

from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import to_settings
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError, ConfigError
from morphogen.run import sinks
from morphogen.run.sinks import open_sinks
from morphogen.storage.codec import pack
from morphogen.storage.run_directory import RunDirectory
from morphogen.telemetry import writer
from morphogen.telemetry.derive import derive_events
from morphogen.telemetry.dispatch import Dispatcher
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.jsonl import decode, encode
from morphogen.telemetry.kinds.round import AnomalyDetected
from morphogen.telemetry.record_files import encode_record, list_records, record_path
from morphogen.telemetry.log_file import LogFile, LoggerPosition, ScalarSink

BEGIN = Envelope(started(tiny()))
KNOWN = facts(1, 2)
CALM = {"detectors": np.zeros((1, 3, 2), dtype=bool), "rolled_back": np.zeros(1, dtype=bool)}
RECORDS = [record | CALM for record in live(1, 1, 2)[1]]


def spec_of(**telemetry):
    return replace(tiny(), telemetry=TelemetrySpec(**telemetry))


def folder_of(path):
    """A run directory without an event."""
    path.mkdir(exist_ok=True)
    manifest = {"run_id": BEGIN.data.run_id, "inode": path.stat().st_ino}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return RunDirectory(path)


def about(at):
    """Two events about a round, and its record, in which nothing stood out."""
    return [odd(at), summary(at)], round_record(RECORDS, KNOWN, round=at)


def odd(at):
    return Envelope(AnomalyDetected(kind="kl_spike", value=0.2, limit=0.1, subject=None, streak=0), round=at)


def dispatch(found, spec, *more):
    return Dispatcher((*more, *found), spec.telemetry)


def begun(path, epochs, **telemetry):
    """A run directory, its spec, and a dispatch that was told some epochs."""
    spec, folder = spec_of(**telemetry), folder_of(path)
    own = dispatch(open_sinks(spec, folder)[0], spec)
    own.emit([BEGIN])
    for at in range(epochs):
        own.emit(*about(at))
    return spec, folder, own


def drained(own, rounds=0):
    at = own.drain(rounds)
    assert at is not None
    return at


def numbers(path):
    return [json.loads(text)["seq"] for text in path.read_text().splitlines()]


def told(path):
    return [decode(text) for text in path.read_text().splitlines()]


def test_a_position_is_where_the_file_ends_and_its_next_number(tmp_path):
    _, folder, own = begun(tmp_path, 3)
    at = drained(own)
    assert (at.bytes, at.seq) == (folder.events.stat().st_size, len(told(folder.events))) == (at.bytes, 7)
    assert (at.pending, at.rounds, at.dir, at.loggers) == ((), 0, None, {})
    own.close()


@given(before=st.integers(0, 4), after=st.integers(0, 4), torn=st.integers(0, 200))
def test_what_came_after_is_cut_and_the_numbers_go_on(tmp_path_factory, before, after, torn):
    spec, folder, own = begun(tmp_path_factory.mktemp("run"), before)
    position = drained(own)
    kept = folder.events.read_bytes()
    for at in range(before, before + after):
        own.emit(*about(at))
    own.close()
    with folder.events.open("ab") as file:
        file.write(encode(lived(9), seq=99, time=0.0).encode()[:torn])
    size = folder.events.stat().st_size
    found, cut = open_sinks(spec, folder, pack(position))
    assert (cut, folder.events.read_bytes()) == (size - len(kept), kept)
    again = dispatch(found, spec)
    again.emit([summary()])
    again.close()
    assert folder.events.read_bytes().startswith(kept)
    assert numbers(folder.events) == list(range(2 * before + 2))
    assert told(folder.events)[-1] == summary()


def cut_short(path, at):
    os.truncate(path, at.bytes - 1)


def foreign(path, at):
    path.write_bytes(path.read_bytes().replace(BEGIN.data.run_id.encode(), b"f" * 12))


def shifted(path, at):
    path.write_bytes(path.read_bytes().replace(b'"envs":', b'"envs": ', 1) + b"\n")


def headless(path, at):
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1] + b"x" * 9999 + b"\n")


def other_begin(path, at):
    path.write_bytes(b"x" * (at.bytes - 1) + b"\n")


def unnamed(path, at):
    path.with_name("manifest.json").write_text("[]")


def a_pipe(path, at):
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    r"events\.jsonl has \d+ bytes: expected at least": cut_short,
    "expected the RunStarted of run 0123456789ab": foreign,
    "expected the end of a line": shifted,
    "expected the end of a line|expected the RunStarted": headless,
    "first line: expected the RunStarted": other_begin,
    "has no run_id": unnamed,
    "is missing": lambda path, at: path.unlink(),
    "jsonl is missing": a_pipe,
}


@pytest.mark.parametrize(("message", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_a_file_that_is_not_that_of_the_run_is_refused_and_left_alone(tmp_path, message, damage):
    spec, folder, own = begun(tmp_path, 2, loggers=("csv",))
    own.emit([summary()])
    at = drained(own)
    own.emit([summary(1)])
    own.close()
    damage(folder.events, at)
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    with pytest.raises(CheckpointError, match=message):
        open_sinks(spec, folder, pack(at))
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": -1}, "position.bytes: expected greater than or equal to 0, got -1"),
        ({"seq": 1.5}, "position.seq: expected a valid integer, got 1.5"),
        ({"pending": ["{}"]}, r"position.pending\[0\]: expected the line"),
        (
            {"loggers": {"csv": {"id": None, "files": {"a": "b"}}}},
            "position.loggers.csv.files.a: expected a valid integer",
        ),
        ({"more": 1}, "position.more is unknown"),
    ],
)
def test_a_position_that_is_none_is_refused_by_name(tmp_path, change, message):
    spec, folder, own = begun(tmp_path, 2)
    tree = pack(drained(own))
    own.close()
    with pytest.raises(CheckpointError, match=message):
        open_sinks(spec, folder, {**tree, **change})


def test_in_another_folder_a_new_file_begins_and_its_numbers_go_on(tmp_path):
    _, folder, own = begun(tmp_path / "run", 2)
    at = drained(own)
    own.close()
    before = folder.events.read_bytes()
    spec = spec_of(dir=str(tmp_path / "else"))
    found, cut = open_sinks(spec, folder, pack(at))
    second = dispatch(found, spec)
    second.emit(*about(2))
    then = drained(second)
    second.emit(*about(3))
    second.close()
    new = tmp_path / "else/events.jsonl"
    assert (cut, numbers(new), folder.events.read_bytes()) == (0, [5, 6, 7, 8], before)
    with pytest.raises(ConfigError, match=r"telemetry.dir: expected a new file, got .*else/events.jsonl, which exists"):
        open_sinks(spec, folder, pack(at))
    third, cut = open_sinks(spec, folder, pack(then))
    assert (cut > 0, numbers(new)) == (True, [5, 6])
    third[-1].close()


def test_a_run_that_was_silent_begins_its_file_and_may_do_so_again(tmp_path):
    silent, spec, folder = spec_of(level="off"), spec_of(), folder_of(tmp_path)
    assert open_sinks(silent, folder) == ((), 0)
    assert dispatch((), silent).drain(0) is None
    for _ in range(2):
        found, _ = open_sinks(spec, folder, None)
        own = dispatch(found, spec)
        own.emit([BEGIN])
        own.close()
        assert numbers(folder.events) == [0]
    assert open_sinks(silent, folder, None) == ((), 0)


# --- events that a file could not take yet ----------------------------------------------------------------------------


class Disk(LogFile):
    """An event file with room for that many bytes."""

    room = 0

    def __init__(self, path, **knobs):
        super().__init__(path, **knobs)
        self._file = FullDisk(self._file, Disk.room)


@pytest.mark.parametrize("room", [0, 700, 4_000])
def test_what_a_full_disk_did_not_take_is_told_once_there_is_room_again(tmp_path, monkeypatch, room):
    monkeypatch.setattr(Disk, "room", room)
    with monkeypatch.context() as patch:
        patch.setattr(sinks.writer, "LogFile", Disk)
        spec, folder, own = begun(tmp_path, 9)
    at = drained(own)
    assert at.pending
    assert at.bytes == folder.events.stat().st_size
    own.close()
    found, _ = open_sinks(spec, folder, pack(at))
    found[-1].close()
    after = told(folder.events)
    assert [one.round for one in after if one.name == "AnomalyDetected"] == list(range(9))
    assert numbers(folder.events) == list(range(len(after)))


def test_a_record_that_a_full_disk_did_not_take_is_told_by_lines(tmp_path, monkeypatch):
    def fail(sink, record):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "write_record", fail)
        spec, folder, own = begun(tmp_path, 3)
        at = drained(own, rounds=3)
        own.close()
    open_sinks(spec, folder, pack(at))[0][-1].close()
    held = [event for round in range(3) for event in derive_events(about(round)[1])]
    assert [one for one in told(folder.events) if one.epoch is not None] == held
    assert list_records(folder.path) == {}


class Stuck(LogFile):
    """An event file that takes nothing until it is let go."""

    def write(self, events):
        self.entered.set()
        assert self.free.wait(60)
        super().write(events)


def test_a_file_that_takes_nothing_is_waited_for_with_patience_and_what_it_was_given_is_pending(tmp_path, monkeypatch):
    monkeypatch.setattr(Stuck, "entered", threading.Event(), raising=False)
    monkeypatch.setattr(Stuck, "free", threading.Event(), raising=False)
    monkeypatch.setattr(sinks.writer, "LogFile", Stuck)
    _, _, own = begun(tmp_path, 3, close_timeout_s=0.05)
    assert Stuck.entered.wait(60)
    at = drained(own)
    assert (at.bytes, at.seq) == (0, 0)
    lines = [decode(text) for text in at.pending]
    assert [one.name for one in lines if one.epoch is None] == [
        "RunStarted",
        *["AnomalyDetected", "RoundCompleted"] * 3,
    ]
    Stuck.free.set()
    own.close()


def test_sinks_without_files_are_not_waited_for_and_what_they_do_takes_nothing_from_the_file(tmp_path):
    spec, folder = spec_of(), folder_of(tmp_path)
    blocked = Blocked()
    own = dispatch(open_sinks(spec, folder)[0], spec, blocked, Broken(), Keep())
    own.emit([BEGIN])
    assert drained(own).seq >= 1
    assert not blocked.batches
    blocked.free.set()
    own.close()


# --- loggers ----------------------------------------------------------------------------------------------------------


@given(before=st.integers(0, 3), after=st.integers(0, 3))
def test_rows_of_a_logger_go_on_without_a_gap_and_none_is_there_twice(tmp_path_factory, before, after):
    path = tmp_path_factory.mktemp("run")
    spec, folder, own = begun(path, before, loggers=("csv",))
    position = drained(own)
    for at in range(before, before + after):
        own.emit(*about(at))
    own.close()
    found, _ = open_sinks(spec, folder, pack(position))
    again = dispatch(found, spec)
    for at in range(before, 4):
        again.emit(*about(at))
    again.close()
    steps = {}
    for name in ("epoch", "round"):
        with (path / f"metrics/csv/{name}.csv").open() as file:
            steps[name] = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps["round"] == [1, 2, 3, 4]
    assert steps["epoch"] == [round * spec.episode_length + epoch for round in range(4) for epoch in range(2)]


@given(before=st.integers(0, 3), after=st.integers(0, 3), part=st.booleans())
def test_records_of_rounds_that_are_run_again_are_deleted_and_the_others_stay(tmp_path_factory, before, after, part):
    path = tmp_path_factory.mktemp("run")
    spec, folder, own = begun(path, before)
    if part:  # of the round that goes on
        own.emit((), round_record(RECORDS[:1], KNOWN, round=before))
    position = drained(own, before)
    for at in range(before, before + after):
        own.emit(*about(at))
    own.close()
    (path / "records").mkdir(exist_ok=True)
    (path / "records/.tmp-round-000009.npz.xz-0").write_bytes(b"torn")
    found, _ = open_sinks(spec, folder, pack(position))
    found[-1].close()
    assert [*list_records(path)] == list(range(before))
    assert {entry.name for entry in (path / "records").glob("*")} == {
        record_path(path, at).name for at in range(before)
    }
    for at in range(before):
        assert record_path(path, at).read_bytes() == encode_record(about(at)[1])


def test_files_that_a_logger_does_not_keep_are_left_alone(tmp_path):
    metrics, outside = tmp_path / "metrics", tmp_path / "mine.csv"
    sink = ScalarSink("csv", metrics, TelemetrySpec(), run=tmp_path, epochs=9)
    sink.write([summary(0)])
    sink.flush()
    place = sink.position()
    sink.close()
    for mine in (metrics / "csv/notes.txt", outside):
        mine.write_text("1,2\n")
    (metrics / "csv/link.csv").symlink_to(outside)
    writer.truncate_files(metrics, "csv", dict.fromkeys(place.files, 1))
    assert {(metrics / name).stat().st_size for name in place.files} == {1}
    writer.truncate_files(metrics, "csv", {})
    assert sorted(path.name for path in (metrics / "csv").rglob("*") if path.is_file()) == ["link.csv", "notes.txt"]
    assert outside.read_text() == "1,2\n"


def test_a_service_goes_on_in_the_same_run(tmp_path, monkeypatch):
    run = SimpleNamespace(id="3x7", info=SimpleNamespace(run_id="5y9"))
    asked = []

    def logger(**knobs):
        asked.append((knobs.get("id"), os.environ.pop("MLFLOW_RUN_ID", None)))
        return SimpleNamespace(experiment=run, log_scalar=lambda *row, step: None)

    loggers = SimpleNamespace(WandbLogger=logger, MLFlowLogger=logger)
    monkeypatch.setattr(writer.importlib, "import_module", lambda name: loggers)
    for name, known in (("wandb", "3x7"), ("mlflow", "5y9")):
        first = ScalarSink(name, tmp_path, TelemetrySpec(), run=tmp_path, epochs=9)
        assert first.position() == LoggerPosition()
        first.write([summary(0)])
        assert first.position() == LoggerPosition(id=known)
        again = ScalarSink(name, tmp_path, TelemetrySpec(), run=tmp_path, epochs=9, position=first.position())
        assert again.position() == LoggerPosition(id=known)
        again.write([summary(1)])
    assert asked == [(None, None), ("3x7", None), (None, None), (None, "5y9")]


def test_a_service_gets_the_settings_once_when_its_run_begins(tmp_path, monkeypatch):
    logged, config = [], dict(flatten_settings(to_settings(tiny())))

    def note(settings):
        logged.append(settings)

    run = SimpleNamespace(id="3x7", info=SimpleNamespace(run_id="5y9"), config=SimpleNamespace(update=note))
    logger = SimpleNamespace(experiment=run, log_scalar=lambda *row, step: None)
    package = SimpleNamespace(WandbLogger=lambda **_: logger, MLFlowLogger=lambda **_: logger, log_params=note)
    monkeypatch.setattr(writer.importlib, "import_module", lambda name: package)
    for name in ("wandb", "mlflow"):
        first = ScalarSink(name, tmp_path, TelemetrySpec(), run=tmp_path, epochs=9, config=config)
        first.write([summary(0)])
        first.write([summary(1)])
        again = {"config": config, "position": first.position()}
        ScalarSink(name, tmp_path, TelemetrySpec(), run=tmp_path, epochs=9, **again).write([summary(2)])
    assert logged == [config, config]
    assert (config["ppo.clip"], config["data.batch"], config["policy.floor.op"]) == (0.2, 8, 0.005)
