"""Records of rounds: what a level keeps is enough for its events, and a file is whole or refused by name."""

import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import SLOTS, facts, live, round_record
from support.seed_tallies import tallies_of

from morphogen.errors import DataError
from morphogen.telemetry.derive import derive_events
from morphogen.telemetry.record_files import encode_record, read_record, record_path, write_record
from morphogen.telemetry.scores import round_tallies

LEVELS = st.sampled_from(["minimal", "normal", "debug"])
lifetimes = {"seed": st.integers(0, 10**6), "envs": st.integers(1, 4), "epochs": st.integers(1, 12)}


def record_of(seed=3, envs=2, epochs=6, **more):
    return round_record(live(seed, envs, epochs)[1], facts(envs, epochs), **more)


def written(folder, record):
    write_record(folder, record)
    return record_path(folder, record.round)


@given(**lifetimes, level=LEVELS, data=st.data())
def test_events_read_back_are_those_of_the_whole_record(tmp_path_factory, seed, envs, epochs, level, data):
    detailed = data.draw(st.none() | st.lists(st.integers(0, epochs - 1))) if level != "debug" else None
    known = facts(envs, epochs)
    records = live(seed, envs, epochs)[1][: data.draw(st.integers(1, epochs))]
    record = round_record(records, known, round=4, level=level, detailed=detailed)
    again = read_record(written(tmp_path_factory.mktemp("run"), record))
    assert list(derive_events(again)) == list(derive_events(record))


@given(**lifetimes)
def test_tallies_of_a_round_are_those_of_its_events(seed, envs, epochs):
    record = record_of(seed, envs, epochs)
    assert round_tallies(record) == tallies_of(derive_events(record))


def test_numpy_reads_a_record_in_one_line(tmp_path):
    record = record_of()
    columns = np.load(lzma.open(written(tmp_path, record)))  # noqa: SIM115  (as in the manual)
    assert columns["stage"].shape == (6, 2, len(SLOTS))
    assert np.array_equal(columns["val_acc"], record.columns["val_acc"])
    assert np.array_equal(columns["episodes"]["reward"], record.ends["reward"])
    assert columns["detailed"].tolist() == [False] * 6


def test_a_level_keeps_what_the_one_below_keeps_and_more():
    sizes = [len(encode_record(record_of(level=level))) for level in ("minimal", "normal", "debug")]
    assert sizes[0] < sizes[1] < sizes[2]


def test_equal_records_are_equal_files():
    assert encode_record(record_of()) == encode_record(record_of())
    assert encode_record(record_of()) != encode_record(record_of(seed=4))


@given(at=st.floats(0, 1, exclude_max=True), change=st.sampled_from(["cut", "bit", "more"]))
def test_a_damaged_file_is_refused_by_name(tmp_path_factory, at, change):
    path = written(tmp_path_factory.mktemp("run"), record_of())
    data = path.read_bytes()
    place = int(at * len(data))
    bit = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    path.write_bytes({"cut": data[:place], "bit": bit, "more": data + data[: place + 1]}[change])
    with pytest.raises(DataError, match=r"round-000001.npz.xz is damaged: "):
        read_record(path)


def test_a_record_under_another_name_is_refused(tmp_path):
    path = written(tmp_path, record_of())
    other = path.rename(record_path(tmp_path, 6))
    with pytest.raises(DataError, match=r"round-000007\.npz\.xz is the record of round 1"):
        read_record(other)


def test_a_file_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "records").mkdir()
    for content in (b"", b"hello", lzma.compress(b"hello"), lzma.compress(b"PK\x05\x06" + bytes(18))):
        record_path(tmp_path, 0).write_bytes(content)
        with pytest.raises(DataError, match=r"round-000001.npz.xz is damaged: "):
            read_record(record_path(tmp_path, 0))
