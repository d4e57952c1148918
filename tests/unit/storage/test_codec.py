"""Values as trees that a checkpoint holds, and back: nothing changes on the way, nothing that is none comes through."""

import io
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from morphogen.errors import CheckpointError
from morphogen.storage.codec import check_arrays, pack, unpack
from morphogen.storage.type_check import Count
from morphogen.telemetry.event_tally import Array


class Pair(NamedTuple):
    left: Array
    right: float | None = None


@dataclass(frozen=True)
class Whole:
    ratio: Fraction
    counts: Counter[str]
    pairs: tuple[Pair, ...]
    named: Mapping[str, int | str | bool]
    inner: "Pair | None"
    both: tuple[str, float]
    size: Count = 0


DTYPES = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
)
PAIRS = st.builds(Pair, ARRAYS, st.none() | st.floats())
NAMES = st.text(max_size=3)
WHOLE = st.builds(
    Whole,
    ratio=st.fractions() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Fraction(x) ** 2),
    counts=st.dictionaries(NAMES, st.integers()).map(Counter),
    pairs=st.lists(PAIRS, max_size=2).map(tuple),
    named=st.dictionaries(NAMES, st.integers(-(2**70), 2**70) | NAMES | st.booleans()),
    inner=st.none() | PAIRS,
    both=st.tuples(NAMES, st.floats()),
    size=st.integers(0, 9),
)


def same(one, other):
    """Equal, and of the same types; NaN is NaN."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return type(other) is float and (one == other or (math.isnan(one) and math.isnan(other)))
    return type(one) is type(other) and one == other


@given(WHOLE)
def test_a_value_comes_back_through_a_file_with_its_types(value):
    file = io.BytesIO()
    torch.save(pack(value), file)
    file.seek(0)
    found = unpack(Whole, torch.load(file, weights_only=True), "state")
    assert all(same(getattr(value, name), getattr(found, name)) for name in vars(value))


def test_a_tensor_has_a_storage_of_its_own():
    array = np.arange(12.0).reshape(3, 4)[:, ::-2]
    tensor = pack(array)
    assert (tensor.shape, tensor.untyped_storage().nbytes()) == ((3, 2), 6 * 8)
    array[0, 0] = 99.0
    assert tensor[0, 0] == 3.0


def test_numbers_of_numpy_are_plain_ones_and_what_is_no_value_is_refused():
    assert type(pack(np.float64(0.5))) is float
    with pytest.raises(TypeError, match="cannot hold a object"):
        pack({"a": object()})


GOOD = pack(
    Whole(Fraction(1, 3), Counter(a=2), (Pair(np.zeros(2)),), {"a": 1}, Pair(np.zeros(2), 1.0), ("x", math.nan))
)
BAD = {
    "state.ratio: expected a fraction": [("ratio", text) for text in ("1/0", "1e9", "x", 3, "1/2\n", "9" * 5000)],
    "state.counts: expected a dict by name, got .*": [("counts", 3), ("counts", {3: 1})],
    "state.counts.a: expected int, got 1.5": [("counts", {"a": 1.5})],
    r"state.pairs: expected a list, got .*": [("pairs", {}), ("pairs", "ab"), ("pairs", None)],
    r"state.pairs\[0\].left: expected a tensor, got .*": [("pairs", [{"left": [1.0], "right": None}])],
    r"state.pairs\[0\].left: expected a plain tensor, got .*": [
        ("pairs", [{"left": one, "right": None}])
        for one in (torch.zeros(2).to_sparse(), torch.zeros(2, device="meta"), torch.zeros(2, dtype=torch.bfloat16))
    ],
    r"state.pairs\[0\]: expected a dict, got 3": [("pairs", [3])],
    r"state.pairs\[0\].right is missing": [("pairs", [{"left": torch.zeros(2)}])],
    "state.named.a: expected bool, got 0.5": [("named", {"a": 0.5})],
    "state.inner.right: expected float, got float32": [("inner", {"left": torch.zeros(2), "right": torch.tensor(1.0)})],
    r"state.both: expected a list of 2, got .*": [("both", ["x"]), ("both", ["x", 1.0, 2.0])],
    r"state.both\[0\]: expected str, got 1": [("both", [1, 1.0])],
    "state.size: expected int >= 0, got -1": [("size", -1)],
    "state.size: expected int >= 0, got true": [("size", True)],
    "state.more is unknown": [("more", 1)],
}


@pytest.mark.parametrize(("message", "changes"), BAD.items(), ids=BAD)
def test_what_does_not_fit_is_refused_by_path_value_and_what_is_wanted(message, changes):
    unpack(Whole, GOOD, "state")
    for name, value in changes:
        with pytest.raises(CheckpointError, match=f"^{message}"):
            unpack(Whole, {**GOOD, name: value}, "state")


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(torch.zeros(2)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.sampled_from([*GOOD]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*GOOD]), TREES))
def test_any_tree_is_a_value_or_refused(change):
    with suppress(CheckpointError):
        assert isinstance(unpack(Whole, {**GOOD, **change}, "state"), Whole)


@pytest.mark.parametrize(
    ("array", "fits"),
    [
        (np.zeros((2, 3), dtype=np.float32), True),
        (np.zeros((3, 2)), False),
        (np.zeros((2, 3), dtype=bool), False),
        (np.zeros((2, 3), dtype=np.int8), False),
        (np.zeros((2, 3), dtype=np.complex64), False),
    ],
)
def test_arrays_are_compared_by_shape_and_by_what_they_hold(array, fits):
    like = pack({"a": (np.zeros((2, 3)),)})
    if fits:
        return check_arrays(pack({"a": (array,)}), like, "state")
    with pytest.raises(CheckpointError, match=r"state.a\[0\] is .*; want reals \[2, 3\]"):
        check_arrays(pack({"a": (array,)}), like, "state")
    return None
