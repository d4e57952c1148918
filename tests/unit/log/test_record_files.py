"""Records of rounds: a file gives the events of its record, or is refused by name."""

import lzma
import shutil
from dataclasses import replace
from pathlib import Path

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
    read_round,
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


LOGS = Path(__file__).parents[2] / "golden/data/logs"


@pytest.fixture
def parts(tmp_path):
    """A folder with the record of a round in two parts, as runs of several processes wrote it, and
    the files.
    """
    shutil.copytree(LOGS / "two-ranks/records", tmp_path / "records")
    return tmp_path, list_records(tmp_path)[0]


def test_parts_are_read_as_one_record(parts):
    _, paths = parts
    one, other = map(read_record, paths)
    joined = read_round(paths)
    assert (joined.envs, joined.epochs) == (4, 4)
    for name, column in joined.columns.items():
        assert np.array_equal(
            column, np.concatenate([one.columns[name], other.columns[name]], axis=1)
        )
    assert np.array_equal(
        joined.ends["reward"], np.concatenate([one.ends["reward"], other.ends["reward"]])
    )


def test_a_round_without_one_of_its_parts_was_not_written(parts):
    folder, paths = parts
    paths[1].unlink()
    assert list_records(folder) == {}
    write_record(folder, record_of())
    assert list_records(folder) == {0: (record_path(folder, 0),)}


def test_records_of_later_rounds_are_removed_in_one_file_or_several(parts):
    folder, paths = parts
    for round in range(1, 4):
        write_record(folder, replace(record_of(), round=round))
    remove_records(folder, 2)
    assert list_records(folder) == {0: paths, 1: (record_path(folder, 1),)}


def test_a_part_under_the_name_of_another_is_refused(parts):
    _, paths = parts
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(
        DataError, match=r"rank1-of-2\.npz\.xz is the record of round 1, envs 0 to 1$"
    ):
        read_round(paths)
