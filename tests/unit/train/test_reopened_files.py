"""The files of a resumed run: cut at the checkpoint, numbered from there, refused if they belong to
another run.
"""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_sinks import summary
from support.generated_logs import started
from support.random_records import facts, live, round_record
from support.small_runs import tiny

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import CheckpointError, ConfigError
from morphogen.log.events import Envelope
from morphogen.log.jsonl import decode
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.run_directory import EVENTS, RunDirectory
from morphogen.log.writer import LogWriter
from morphogen.train.sinks import open_sinks

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
    return Envelope(
        AnomalyDetected(kind="kl_spike", value=0.2, limit=0.1, subject=None, streak=0), round=at
    )


def dispatch(found, spec):
    return LogWriter(found, spec.telemetry)


def begun(path, epochs, **telemetry):
    """A run directory, its spec, and a writer that got some rounds."""
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


def reported(path):
    return [event for text in path.read_text().splitlines() for event in decode(text)]


def test_a_position_is_where_the_file_ends_and_its_next_number(tmp_path):
    _, folder, own = begun(tmp_path, 3)
    at = drained(own)
    assert (at.bytes, at.seq) == ((folder.path / EVENTS).stat().st_size, 4)
    assert (at.pending, at.rounds, at.dir) == ((), 0, None)
    own.close()


@given(before=st.integers(0, 4), after=st.integers(0, 4), torn=st.integers(0, 200))
def test_what_came_after_is_cut_and_the_numbers_go_on(tmp_path_factory, before, after, torn):
    spec, folder, own = begun(tmp_path_factory.mktemp("run"), before)
    position = drained(own)
    kept = (folder.path / EVENTS).read_bytes()
    for at in range(before, before + after):
        own.emit(*about(at))
    own.close()
    with (folder.path / EVENTS).open("ab") as file:
        file.write((b"x" * 300 + b"\n")[:torn])
    size = (folder.path / EVENTS).stat().st_size
    found, cut = open_sinks(spec, folder, position)
    assert (cut, (folder.path / EVENTS).read_bytes()) == (size - len(kept), kept)
    again = dispatch(found, spec)
    again.emit([summary()])
    again.close()
    assert (folder.path / EVENTS).read_bytes().startswith(kept)
    assert numbers(folder.path / EVENTS) == list(range(before + 2))
    assert reported(folder.path / EVENTS)[-1] == summary()


def cut_short(path, at):
    os.truncate(path, at.bytes - 1)


def foreign(path, at):
    path.write_bytes(path.read_bytes().replace(BEGIN.data.run_id.encode(), b"f" * 12))


def shifted(path, at):
    path.write_bytes(path.read_bytes().replace(b'"envs":', b'"envs": ', 1) + b"\n")


def other_begin(path, at):
    path.write_bytes(b"x" * (at.bytes - 1) + b"\n")


def a_pipe(path, at):
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    r"events\.jsonl has \d+ bytes: expected a file of at least": cut_short,
    "expected the lines of run 0123456789ab": foreign,
    "expected the lines of run .* up to": shifted,
    "lines of run .* to the checkpoint": other_begin,
    "is missing": lambda path, at: path.unlink(),
    "jsonl is missing": a_pipe,
}


@pytest.mark.parametrize(("message", "damage"), DAMAGES.items(), ids=DAMAGES)
def test_a_file_that_is_not_that_of_the_run_is_refused_and_left_alone(tmp_path, message, damage):
    spec, folder, own = begun(tmp_path, 2)
    own.emit([summary()])
    at = drained(own)
    own.emit([summary(1)])
    own.close()
    damage((folder.path / EVENTS), at)
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    with pytest.raises(CheckpointError, match=message):
        open_sinks(spec, folder, at)
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before


def test_in_another_folder_a_new_file_begins_and_its_numbers_go_on(tmp_path):
    _, folder, own = begun(tmp_path / "run", 2)
    at = drained(own)
    own.close()
    before = (folder.path / EVENTS).read_bytes()
    spec = spec_of(dir=str(tmp_path / "else"))
    found, cut = open_sinks(spec, folder, at)
    second = dispatch(found, spec)
    second.emit(*about(2))
    then = drained(second)
    second.emit(*about(3))
    second.close()
    new = tmp_path / "else/events.jsonl"
    assert (cut, numbers(new), (folder.path / EVENTS).read_bytes()) == (0, [3, 4], before)
    with pytest.raises(
        ConfigError,
        match=r"telemetry.dir: expected a new file, got .*else/events.jsonl, which exists",
    ):
        open_sinks(spec, folder, at)
    third, cut = open_sinks(spec, folder, then)
    assert (cut > 0, numbers(new)) == (True, [3])
    third[0].close()


def test_a_run_that_was_silent_begins_its_file_and_may_do_so_again(tmp_path):
    silent, spec, folder = spec_of(level="off"), spec_of(), folder_of(tmp_path)
    assert open_sinks(silent, folder) == ((), 0)
    assert dispatch((), silent).drain(0) is None
    for _ in range(2):
        found, _ = open_sinks(spec, folder, None)
        own = dispatch(found, spec)
        own.emit([BEGIN])
        own.close()
        assert numbers(folder.path / EVENTS) == [0]
    assert open_sinks(silent, folder, None) == ((), 0)


# --- events that a file could not take yet
# ----------------------------------------------------------------------------
