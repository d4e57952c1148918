"""Values as trees that a checkpoint holds, and back: nothing changes on the way, nothing that is
none comes through.
"""

import math
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import Field

from morphogen.errors import CheckpointError
from morphogen.log.codec import Array, pack, unpack
from morphogen.state.tensor_trees import load_tree, save_tree


class Pair(NamedTuple):
    left: Array
    right: float | None = None


@dataclass(frozen=True)
class Whole:
    counts: Counter[str]
    pairs: tuple[Pair, ...]
    named: Mapping[str, int | str | bool]
    inner: "Pair | None"
    both: tuple[str, float]
    size: Annotated[int, Field(ge=0)] = 0


DTYPES = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
)
PAIRS = st.builds(Pair, ARRAYS, st.none() | st.floats())
NAMES = st.text(max_size=3)
WHOLE = st.builds(
    Whole,
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
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return type(other) is float and (one == other or (math.isnan(one) and math.isnan(other)))
    return type(one) is type(other) and one == other


@given(WHOLE)
def test_a_value_comes_back_through_a_file_with_its_types(value):
    with tempfile.TemporaryDirectory() as folder:
        save_tree(pack(value), Path(folder) / "tree")
        found = unpack(Whole, load_tree(Path(folder) / "tree", label="file"), "state")
    assert all(same(getattr(value, name), getattr(found, name)) for name in vars(value))


def test_an_array_is_copied():
    array = np.arange(12.0).reshape(3, 4)[:, ::-2]
    copy = pack(array)
    assert (copy.shape, copy.base) == ((3, 2), None)
    array[0, 0] = 99.0
    assert copy[0, 0] == 3.0


def test_numbers_of_numpy_are_plain_ones_and_what_is_no_value_is_refused():
    assert type(pack(np.float64(0.5))) is float
    with pytest.raises(TypeError, match="cannot hold a object"):
        pack({"a": object()})


GOOD = pack(
    Whole(
        Counter(a=2),
        (Pair(np.zeros(2)),),
        {"a": 1},
        Pair(np.zeros(2), 1.0),
        ("x", math.nan),
    )
)
BAD = {
    "state.counts: expected an object, got 3": [("counts", 3)],
    "state.counts.a: expected a valid integer, got 1.5": [("counts", {"a": 1.5})],
    r"state.pairs: expected a valid .*, got .*": [("pairs", {}), ("pairs", "ab"), ("pairs", None)],
    r"state.pairs\[0\].left: expected an array, got .*": [
        ("pairs", [{"left": [1.0], "right": None}])
    ],
    r"state.pairs\[0\].left: expected a dense array of a dtype of numpy, got .*": [
        ("pairs", [{"left": one, "right": None}])
        for one in (
            torch.zeros(2).to_sparse(),
            torch.zeros(2, device="meta"),
            torch.zeros(2, dtype=torch.bfloat16),
        )
    ],
    r"state.pairs\[0\]: expected .*, got 3": [("pairs", [3])],
    r"state.pairs\[0\].left is missing": [("pairs", [{"right": None}])],
    "state.named.a.*: expected a valid .*, got 0.5": [("named", {"a": 0.5})],
    "state.inner.right: expected a valid number, got": [
        ("inner", {"left": torch.zeros(2), "right": torch.tensor(1.0)})
    ],
    r"state.both\[1\] is missing": [("both", ["x"])],
    "state.both: Tuple should have at most 2 items": [("both", ["x", 1.0, 2.0])],
    r"state.both\[0\]: expected a valid string, got 1": [("both", [1, 1.0])],
    "state.size: expected a number greater than or equal to 0, got -1": [("size", -1)],
    "state.size: expected a valid integer, got true": [("size", True)],
    "state.more is unknown": [("more", 1)],
}


@pytest.mark.parametrize(("message", "changes"), BAD.items(), ids=BAD)
def test_what_does_not_fit_is_refused_by_path_value_and_what_is_wanted(message, changes):
    unpack(Whole, GOOD, "state")
    for name, value in changes:
        with pytest.raises(CheckpointError, match=f"^{message}"):
            unpack(Whole, {**GOOD, name: value}, "state")


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.just(torch.zeros(2)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from([*GOOD]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*GOOD]), TREES))
def test_any_tree_is_a_value_or_refused(change):
    with suppress(CheckpointError):
        assert isinstance(unpack(Whole, {**GOOD, **change}, "state"), Whole)
