"""Records of rounds: what a level keeps is enough for its events, and a file is whole or refused by name."""

import lzma
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import SLOTS, facts, live, round_record
from support.seed_tallies import tallies_of

from morphogen.errors import DataError
from morphogen.telemetry.derive import derive_events
from morphogen.telemetry.record_files import (
    encode_record,
    list_records,
    read_record,
    read_shards,
    record_path,
    remove_records,
    write_record,
)
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


def test_the_numbers_of_an_env_that_are_not_finite_are_counted_where_details_are_kept(tmp_path):
    record = record_of(detailed=[1, 4])
    sick = {name: record.columns[name].copy() for name in ("val_loss", "alpha")}
    sick["val_loss"][4, 1], sick["alpha"][4, 1, 0] = np.nan, -np.inf
    sick["val_loss"][2, 0] = np.inf  # an epoch without details
    found = read_record(written(tmp_path, replace(record, columns={**record.columns, **sick}))).columns["nonfinite"]
    assert found.shape == (6, 2)
    assert found[4, 1] - read_record(written(tmp_path, record)).columns["nonfinite"][4, 1] == 2
    assert not found[[0, 2, 3, 5]].any()


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


def write_shard(folder, record, rank, ranks):
    """Write the record of the envs of a rank, as earlier versions did."""
    path, size = record_path(folder, record.round, rank, ranks), record.facts.envs // ranks
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_record(record.take(range(rank * size, (rank + 1) * size))))


def write_shards(folder, record, ranks, epochs=None):
    """Write the shards of a record, of the first `epochs` by rank; return their paths."""
    size = record.facts.envs // ranks
    for rank in range(ranks):
        part = record if epochs is None else unfinished(record, range(rank * size, (rank + 1) * size), epochs[rank])
        write_shard(folder, part, rank, ranks)
    return list_records(folder)[record.round]


def unfinished(record, envs, epochs):
    """The record that a rank writes of a round that goes on: its envs, the epochs so far."""
    part = record.take(envs)
    columns = {name: column[:epochs] for name, column in part.columns.items()}
    return replace(part, detailed=part.detailed[:epochs], columns=columns, ends={})


ranked = {"seed": st.integers(0, 10**6), "ranks": st.integers(1, 3), "each": st.integers(1, 2), "level": LEVELS}


@given(**ranked, detailed=st.lists(st.integers(0, 5)))
def test_shards_are_read_as_the_record_of_one_process(tmp_path_factory, seed, ranks, each, level, detailed):
    folder = tmp_path_factory.mktemp("run")
    record = record_of(seed, ranks * each, level=level, detailed=None if level == "debug" else detailed)
    joined = read_shards(write_shards(folder, record, ranks))
    assert list(derive_events(joined)) == list(derive_events(record))
    whole = read_record(written(tmp_path_factory.mktemp("run"), record))
    assert joined.columns.keys() == whole.columns.keys()
    assert joined.ends.keys() == whole.ends.keys()
    assert all(np.array_equal(joined.columns[name], column) for name, column in whole.columns.items())
    assert all(np.array_equal(joined.ends[name], end) for name, end in whole.ends.items())


@given(**ranked, data=st.data())
def test_a_round_that_goes_on_is_read_up_to_the_epochs_of_all_ranks(tmp_path_factory, seed, ranks, each, level, data):
    record = record_of(seed, ranks * each, level=level)
    epochs = [data.draw(st.integers(1, 6)) for _ in range(ranks)]
    joined = read_shards(write_shards(tmp_path_factory.mktemp("run"), record, ranks, epochs))
    assert list(derive_events(joined)) == list(derive_events(unfinished(record, range(ranks * each), min(epochs))))


def test_numpy_reads_a_shard_in_one_line(tmp_path):
    record = record_of(envs=4)
    _, path = write_shards(tmp_path, record, 2)
    assert path.name == "round-000001.rank1-of-2.npz.xz"
    columns = np.load(lzma.open(path))  # noqa: SIM115  (as in the manual)
    assert np.array_equal(columns["val_acc"], record.columns["val_acc"][:, 2:])
    assert np.array_equal(columns["episodes"]["reward"], record.ends["reward"][2:])


def test_a_round_without_one_of_its_shards_was_not_written(tmp_path):
    record = record_of(envs=4)
    paths = write_shards(tmp_path, record, 2)
    write_shards(tmp_path, replace(record, round=5), 4)
    assert {round: len(paths) for round, paths in list_records(tmp_path).items()} == {0: 2, 5: 4}
    paths[1].unlink()
    assert list_records(tmp_path).keys() == {5}
    write_record(tmp_path, record)  # by one process
    assert list_records(tmp_path)[0] == (record_path(tmp_path, 0),)


def test_records_of_any_number_of_ranks_are_removed(tmp_path):
    for round, ranks in ((0, 2), (1, 1), (2, 4), (3, 2)):
        write_shards(tmp_path, replace(record_of(envs=4), round=round), ranks)
    record_path(tmp_path, 2, 3, 4).unlink()
    remove_records(tmp_path, 2)
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [
        "round-000001.rank0-of-2.npz.xz",
        "round-000001.rank1-of-2.npz.xz",
        "round-000002.npz.xz",
    ]


def test_a_shard_under_the_name_of_another_is_refused(tmp_path):
    paths = write_shards(tmp_path, record_of(envs=4), 2)
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(DataError, match=r"rank1-of-2\.npz\.xz is the record of round 1, envs 0 to 1$"):
        read_shards(paths)


def test_shards_of_different_runs_are_refused(tmp_path):
    one, other = record_of(envs=4), record_of(envs=4, level="debug")
    paths = write_shards(tmp_path, one, 2)
    write_shard(tmp_path, other, 1, 2)
    with pytest.raises(DataError, match=r"rank1-of-2\.npz\.xz does not fit .*rank0-of-2\.npz\.xz"):
        read_shards(paths)
