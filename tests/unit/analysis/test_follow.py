"""Reading an event file while it grows: every event once, in order, whatever happens to the file meanwhile."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.handwritten_logs import saved

from morphogen.analysis.watch.loop import Cursor, FollowBatch, read_new_events
from morphogen.errors import ConfigError
from morphogen.telemetry.jsonl import encode


def text(numbers, time=0.0):
    """Lines of events that are told apart by their numbers."""
    return [encode(saved(number), seq=i, time=time).encode() for i, number in enumerate(numbers)]


START = Cursor()


def caught_up(path, cursor=START, **how):
    """Everything that is there now: the numbers of its events, lines that were none, whether it began anew."""
    numbers, unreadable, anew = [], 0, False
    while (found := read_new_events(path, cursor, **how)) != (FollowBatch(), cursor):
        batch, cursor = found
        numbers, anew = (
            ([], True) if batch.restarted else (numbers + [one.data.size_bytes for one in batch.events], anew)
        )
        unreadable += batch.unreadable
    return numbers, unreadable, anew, cursor


@given(
    numbers=st.lists(st.integers(0, 10**6), max_size=8),
    cuts=st.lists(st.integers(0, 2000), max_size=6),
    chunk=st.integers(1, 400),
)
def test_every_event_comes_once_and_in_order_wherever_the_file_ends_meanwhile(tmp_path_factory, numbers, cuts, chunk):
    path, whole = tmp_path_factory.mktemp("run") / "events.jsonl", b"".join(text(numbers))
    cursor, found = START, []
    for cut in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        new, unreadable, anew, cursor = caught_up(path, cursor, chunk=chunk)
        found += new
        assert found == numbers[: whole[:cut].count(b"\n")]
        assert (unreadable, anew) == (0, False)
    assert found == numbers


@given(
    numbers=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    keep=st.integers(0, 10**4),
    later=st.lists(st.integers(0, 10**6), max_size=8),
    chunk=st.integers(1, 400),
)
def test_a_file_that_was_cut_and_went_on_is_read_from_its_start(tmp_path_factory, numbers, keep, later, chunk):
    """Also where it has grown beyond what was read before anybody looked again."""
    path, before = tmp_path_factory.mktemp("run") / "events.jsonl", b"".join(text(numbers))
    path.write_bytes(before)
    *_, cursor = caught_up(path, chunk=chunk)
    kept = keep % len(numbers)
    path.write_bytes(b"".join(text(numbers)[:kept] + text([*numbers[:kept], *later], time=9.0)[kept:]))
    assert caught_up(path, cursor, chunk=chunk)[:3] == ([*numbers[:kept], *later], 0, True)


def test_a_file_that_is_not_there_yet_has_nothing_and_one_that_is_gone_counts_no_more(tmp_path):
    path = tmp_path / "later" / "events.jsonl"
    assert caught_up(path)[:3] == ([], 0, False)
    path.parent.mkdir()
    path.write_bytes(b"".join(text([3, 4])))
    numbers, *_, cursor = caught_up(path)
    assert numbers == [3, 4]
    os.remove(path)
    assert caught_up(path, cursor)[:3] == ([], 0, True)


def test_a_last_line_without_its_end_waits_for_it(tmp_path):
    path, lines = tmp_path / "events.jsonl", text([1, 2])
    path.write_bytes(lines[0] + lines[1][:-1])  # complete but for the end of the line
    numbers, *_, cursor = caught_up(path)
    assert numbers == [1]
    with path.open("ab") as file:
        file.write(b"\n")
    assert caught_up(path, cursor)[0] == [2]


@given(junk=st.binary(max_size=60), place=st.integers(0, 2))
def test_lines_that_are_no_events_are_counted_and_passed_over(tmp_path_factory, junk, place):
    path, lines = tmp_path_factory.mktemp("run") / "events.jsonl", text([5, 6])
    wrong = junk.replace(b"\n", b"").replace(b"\r", b"") + b"\n"
    path.write_bytes(b"".join([*lines[:place], wrong, *lines[place:]]))
    assert caught_up(path)[:3] == ([5, 6], 1, False)


@pytest.mark.parametrize(
    "wrong", [b"[]", b"3", b'{"v":1}', b'{"a":' * 20_000, b'{"v":1,"v":2}', b"null", b'"x"', b"\xff", b"[[1],{}]"]
)
def test_json_that_is_no_event_is_passed_over(tmp_path, wrong):
    path = tmp_path / "events.jsonl"
    path.write_bytes(wrong + b"\n" + text([5])[0])
    assert caught_up(path)[:2] == ([5], 1)


def test_a_line_longer_than_a_portion_is_read_as_a_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode(saved(7, path="x" * 5_000), seq=0, time=0.0).encode())
    assert caught_up(path, chunk=16)[0] == [7]


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"expected the event file of a run: expected a file, got a directory"):
        read_new_events(tmp_path, START)
