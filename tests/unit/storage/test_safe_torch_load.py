"""Files of `torch.save` that somebody else may have written: nothing runs, nothing is taken for mere claims."""

import os
import pickle
import resource
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.malicious_pickles import claimed, named, number, word

from morphogen.errors import CheckpointError
from morphogen.storage.safe_torch_load import load_tree

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.sampled_from((torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16)).map(
        lambda dtype: torch.ones(2, 3, dtype=dtype)
    ),
    st.sampled_from((torch.tensor(7), torch.zeros(0, 4))).map(torch.clone),
)
TREES = st.recursive(
    LEAVES,
    lambda one: (
        st.lists(one, max_size=3)
        | st.lists(one, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), one, max_size=3)
    ),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def packed(path, pickle, data=bytes(24), kind=zipfile.ZIP_STORED):
    """A file as `torch.save` would make it, with this pickle and this one storage."""
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, part in {"data.pkl": pickle, "byteorder": b"little", "data/0": data, "version": b"3\n"}.items():
            archive.writestr(f"archive/{name}", part)
    return path


def refused(path):
    with pytest.raises(CheckpointError) as told:
        load_tree(path, label="checkpoint file")
    assert str(told.value).startswith(f"checkpoint file {path} ")
    return str(told.value)


@given(tree=TREES)
def test_every_tree_of_tensors_and_plain_values_comes_back(tree, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "tree.pt"
    torch.save(tree, path)
    assert same(load_tree(path, label="file"), tree)


def test_a_tensor_outlives_the_file_that_it_came_from(tmp_path):
    torch.save({"a": torch.arange(1000)}, tmp_path / "x.pt")
    found = load_tree(tmp_path / "x.pt", label="file")["a"]
    (tmp_path / "x.pt").write_bytes(bytes(9000))
    assert torch.equal(found, torch.arange(1000))
    found += 1  # and is the reader's own


class Code:
    def __reduce__(self):
        return os.mkdir, ("made",)


CALLS = {
    "a call of the system": b"\x80\2" + named("os system") + word("touch made") + b"\x85R.",
    "bytes": b"\x80\2" + named("builtins bytearray") + number(2**36) + b"\x85R.",
    "a storage": b"\x80\2" + named("torch UntypedStorage") + number(2**36) + b"\x85R.",
    "a parameter": pickle.dumps(torch.nn.Parameter, protocol=2),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_pickle_calls_nothing_but_what_builds_tensors(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    assert "which is not allowed" in refused(packed(tmp_path / "x.pt", CALLS[call]))
    assert os.listdir() == ["x.pt"]


def test_a_pickle_of_any_object_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Code()}, "x.pt")
    assert "names 'posix mkdir', which is not allowed" in refused(tmp_path / "x.pt")
    assert os.listdir() == ["x.pt"]


CLAIMS = {
    "a storage longer than its entry": (10**6, [10**6], [1]),
    "far more than the file": (2**40, [2**40], [1]),
    "a number out of all proportion": (2**40, [2**62], [0]),
    "one number told a million million times": (6, [10**12], [0]),
    "less than nothing": (-6, [-6], [1]),
    "backwards": (6, [2], [-1]),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_file_only_claims_is_refused_and_takes_no_memory(tmp_path, claim):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(packed(tmp_path / "x.pt", b"\x80\2" + claimed(*CLAIMS[claim]) + b"."))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_an_honest_claim_is_met(tmp_path):
    found = load_tree(packed(tmp_path / "x.pt", b"\x80\2" + claimed(6, [2, 3], [3, 1]) + b"."), label="file")
    assert torch.equal(found, torch.zeros(2, 3))


def test_entries_that_unfold_are_refused(tmp_path):
    path = packed(tmp_path / "x.pt", b"\x80\2" + claimed(6, [6], [1]) + b".", kind=zipfile.ZIP_DEFLATED)
    assert "is compressed" in refused(path)


def test_two_tensors_that_share_their_bytes_are_more_than_the_file_holds(tmp_path):
    whole = torch.zeros(100)
    torch.save({"a": whole, "b": whole}, tmp_path / "x.pt")
    assert "declares more than the 400 bytes" in refused(tmp_path / "x.pt")


ODD = {
    "unfolds to more than": b"]q\0" + b"".join(b"](h" + bytes([k, 104, k]) + b"eq" + bytes([k + 1]) for k in range(60)),
    "nested deeper than": b"]" * 1000 + b"a" * 999,
    "nested deeper than 64": b"]q\0h\0a",
    "more than 64 bits": number(2**64),
    "expected names and integers": b"}G\x3f\xf0\0\0\0\0\0\0Ns",
    "surrogates not allowed": b"X\3\0\0\0\xed\xa0\x80",
}


@pytest.mark.parametrize("message", ODD)
def test_trees_that_other_programs_cannot_hold_are_refused(tmp_path, message):
    assert message in refused(packed(tmp_path / "x.pt", b"\x80\2" + ODD[message] + b"."))


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert "a pipe or device" in refused(tmp_path / "pipe")
    assert "symbolic links" in refused(tmp_path / "loop")
    assert "expected a file, got a directory" in refused(tmp_path)
    assert "is missing" in refused(tmp_path / "absent")
