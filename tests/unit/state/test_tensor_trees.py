"""Trees in safetensors files that somebody else may have written: nothing runs, no memory is taken
on a false claim.
"""

import itertools
import json
import os
import resource

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import load_tree, restore_tree, save_tree, to_nested_dict

DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.sampled_from(DTYPES).map(lambda dtype: torch.ones(2, 3, dtype=dtype)),
    st.sampled_from((torch.tensor(7), torch.zeros(0, 4))).map(torch.clone),
)
NAMES = st.text(max_size=3).filter(lambda name: "." not in name)
TREES = st.recursive(
    LEAVES,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(tree=TREES)
def test_every_tree_of_tensors_and_plain_values_comes_back(tree, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "tree"
    save_tree({"": tree}, path)
    assert same(load_tree(path, label="file"), {"": tree})


def test_arrays_and_transposed_tensors_come_back_as_tensors(tmp_path):
    save_tree({"a": np.arange(3), "b": torch.arange(6).view(2, 3).T}, tmp_path / "x")
    assert same(
        load_tree(tmp_path / "x", label="file"),
        {"a": torch.arange(3), "b": torch.arange(6).view(2, 3).T},
    )


def test_the_axes_of_a_tensor_keep_their_order_in_memory(tmp_path):
    tensors = [
        torch.arange(24).view(2, 3, 4).permute(*order) for order in itertools.permutations(range(3))
    ]
    save_tree(tensors, tmp_path / "x")
    loaded = load_tree(tmp_path / "x", label="file")
    assert same(loaded, tensors)
    assert [tensor.stride() for tensor in loaded] == [tensor.stride() for tensor in tensors]


def test_two_tensors_of_one_path_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"two tensors have the path a\.b"):
        save_tree({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}, tmp_path / "x")
    assert not os.listdir(tmp_path)


def test_other_programs_can_read_the_tensors_by_path(tmp_path):
    save_tree({"params": {"head": torch.ones(2)}, "task": "digits"}, tmp_path / "x")
    assert torch.equal(safetensors.torch.load_file(tmp_path / "x")["params.head"], torch.ones(2))


def test_a_tensor_outlives_the_file_that_it_came_from(tmp_path):
    save_tree({"a": torch.arange(1000)}, tmp_path / "x")
    tensor = load_tree(tmp_path / "x", label="file")["a"]
    (tmp_path / "x").write_bytes(bytes(9000))
    assert torch.equal(tensor, torch.arange(1000))
    tensor += 1  # and is the reader's alone


def refusal(path):
    with pytest.raises(CheckpointError) as error:
        load_tree(path, label="checkpoint file")
    assert str(error.value).startswith(f"checkpoint file {path} ")
    assert "\n" not in str(error.value)
    return str(error.value)


def safetensors_file(path, tree, data=bytes(24), length=None, **tensors):
    """A file of the format with this header, whatever it claims."""
    entries = {
        name: dict(zip(("dtype", "shape", "data_offsets"), claim, strict=True))
        for name, claim in tensors.items()
    }
    header = json.dumps({"__metadata__": {"tree": tree}, **entries}).encode()
    path.write_bytes(
        (len(header) if length is None else length).to_bytes(8, "little") + header + data
    )
    return path


REFERENCE = '{"a": {"$tensor": "a"}}'
CLAIMS = {
    "more than the file": ("F32", [10**6], [0, 4 * 10**6]),
    "a shape out of all proportion": ("F32", [2**62], [0, 24]),
    "less than nothing": ("F32", [-6], [0, 24]),
    "a part of the file": ("F32", [2], [0, 8]),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_false_claim_is_refused_and_takes_no_memory(tmp_path, claim):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "cannot be read: " in refusal(
        safetensors_file(tmp_path / "x", REFERENCE, a=CLAIMS[claim])
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**40, 2**63, 2**64 - 1])
def test_a_header_that_is_longer_than_the_file_or_damaged_is_refused(tmp_path, length):
    refusal(safetensors_file(tmp_path / "x", REFERENCE, length=length, a=("F32", [6], [0, 24])))


def test_an_honest_claim_is_met(tmp_path):
    tree = load_tree(
        safetensors_file(tmp_path / "x", REFERENCE, a=("F32", [2, 3], [0, 24])), label="file"
    )
    assert same(tree, {"a": torch.zeros(2, 3)})


def test_two_tensors_that_share_their_bytes_are_refused(tmp_path):
    claim = ("F32", [6], [0, 24])
    refusal(
        safetensors_file(tmp_path / "x", '[{"$tensor": "a"}, {"$tensor": "b"}]', a=claim, b=claim)
    )


TREES_WITH_FAULTS = {
    "has two places": '[{"$tensor": "a"}, {"$tensor": "a"}]',
    "the tensor 'b' is missing": '[{"$tensor": "a"}, {"$tensor": "b"}]',
    "the tensor 'a' has no place": "{}",
    "cannot be read": '{"$tensor": []}',
    "the tensor 'a' has the axes [1]": '{"$tensor": "a", "$order": [1]}',
    "the tensor 'a' has the axes [0, 0]": '{"$tensor": "a", "$order": [0, 0]}',
    "nested too deep": "[" * 100_000,
    "nested deeper than 64": "[" * 70 + REFERENCE + "]" * 70,
    "Expecting value": "",
}


@pytest.mark.parametrize(("message", "tree"), TREES_WITH_FAULTS.items(), ids=TREES_WITH_FAULTS)
def test_a_tree_that_does_not_fit_its_tensors_is_refused(tmp_path, message, tree):
    assert message in refusal(safetensors_file(tmp_path / "x", tree, a=("F32", [6], [0, 24])))


def test_a_file_without_a_tree_is_refused(tmp_path):
    safetensors.torch.save_file({"a": torch.zeros(2)}, tmp_path / "x")
    assert "expected a tree in its metadata" in refusal(tmp_path / "x")


class Code:
    def __reduce__(self):
        return os.mkdir, ("made",)


def test_a_file_of_an_older_format_is_refused_in_one_sentence_and_runs_no_code(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Code()}, "x.pt")
    assert "expected a safetensors file, got a file of an older format" in refusal(
        tmp_path / "x.pt"
    )
    assert os.listdir() == ["x.pt"]


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert "a pipe or device" in refusal(tmp_path / "pipe")
    assert "symbolic links" in refusal(tmp_path / "loop")
    assert "expected a file, got a directory" in refusal(tmp_path)
    assert "is missing" in refusal(tmp_path / "absent")


LIKE = TensorDict({"a": torch.ones(2, 3), "b": {"c": torch.zeros(2)}}, batch_size=[2])
MISFITS = {
    "tree.a is missing": {"b": {"c": torch.zeros(2)}},
    "tree.b.d is unknown": {**to_nested_dict(LIKE), "b": {"c": torch.zeros(2), "d": 1}},
    r"tree.a: expected float32 \[2, 3\], got float32 \[2, 9\]": {"a": torch.ones(2, 9)},
    "tree.a: expected .*, got float16": {"a": torch.ones(2, 3, dtype=torch.float16)},
    "tree.a: expected .*, got int": {"a": 3},
    "tree: expected a dict, got list": [],
}


@pytest.mark.parametrize(("message", "tree"), MISFITS.items(), ids=MISFITS)
def test_a_tree_is_restored_like_another_or_its_first_misfit_is_named(message, tree):
    restored = restore_tree(to_nested_dict(LIKE), LIKE, "tree")
    assert (restored == LIKE).all()
    assert restored["a"].data_ptr() != LIKE["a"].data_ptr()
    with pytest.raises(CheckpointError, match=message):
        restore_tree(tree, LIKE, "tree")
