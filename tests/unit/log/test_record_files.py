"""Records of rounds: a file gives the events of its record, or is refused by name."""

import lzma
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import SLOTS, facts, live, round_record

from morphogen.errors import DataError
from morphogen.log.derive import derive_events
from morphogen.log.record_files import (
    encode_record,
    list_records,
    read_record,
    record_path,
    remove_records,
    write_record,
)

lifetimes = {"seed": st.integers(0, 10**6), "envs": st.integers(1, 4), "epochs": st.integers(1, 12)}


def record_of(seed=3, envs=2, epochs=6):
    return round_record(live(seed, envs, epochs)[1], facts(envs, epochs))


def written(folder, record):
    write_record(folder, record)
    return record_path(folder, record.round)


@given(**lifetimes)
def test_events_read_back_are_those_of_the_record(tmp_path_factory, seed, envs, epochs):
    record = round_record(live(seed, envs, epochs)[1], facts(envs, epochs), round=4)
    again = read_record(written(tmp_path_factory.mktemp("run"), record))
    assert list(derive_events(again)) == list(derive_events(record))
    assert again.columns.keys() == record.columns.keys()


def test_numpy_reads_a_record_in_one_line(tmp_path):
    record = record_of()
    columns = np.load(lzma.open(written(tmp_path, record)))  # noqa: SIM115  (as in the manual)
    assert columns["stage"].shape == (6, 2, len(SLOTS))
    assert np.array_equal(columns["val_acc"], record.columns["val_acc"])
    assert np.array_equal(columns["episodes"]["reward"], record.ends["reward"])


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
    for content in (
        b"",
        b"hello",
        lzma.compress(b"hello"),
        lzma.compress(b"PK\x05\x06" + bytes(18)),
    ):
        record_path(tmp_path, 0).write_bytes(content)
        with pytest.raises(DataError, match=r"round-000001.npz.xz is damaged: "):
            read_record(record_path(tmp_path, 0))


def test_records_of_later_rounds_are_removed(tmp_path):
    for round in range(4):
        write_record(tmp_path, replace(record_of(), round=round))
    remove_records(tmp_path, 2)
    assert list_records(tmp_path) == {round: record_path(tmp_path, round) for round in (0, 1)}
