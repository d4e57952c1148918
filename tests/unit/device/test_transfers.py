"""The crossings between host and device: packed in one buffer, counted, and equal to the table."""

import time

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.device.transfers import (
    BufferLayout,
    Transfers,
    flatten_names,
)

CPU = torch.device("cpu")


def tree():
    return TensorDict(
        {
            "flags": torch.tensor([True, False, True]),
            "small": torch.tensor([[1, -2]], dtype=torch.int32),
            "real": torch.tensor([0.5, float("nan")]),
            "wide": torch.tensor(7, dtype=torch.int64),
            "nested": {"leaf": torch.arange(6, dtype=torch.float64).view(2, 3)},
        },
        batch_size=[],
    )


def test_a_packed_tree_comes_back_leaf_by_leaf():
    fences = Transfers(CPU, time.perf_counter)
    found = fences.read("update", tree())
    assert set(found) == {"flags", "small", "real", "wide", "nested.leaf"}
    np.testing.assert_array_equal(found["nested.leaf"], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    np.testing.assert_array_equal(found["real"], np.array([0.5, np.nan], dtype=np.float32))
    assert found["flags"].dtype == bool
    assert found["wide"] == 7
    assert found["small"].tolist() == [[1, -2]]


def test_every_leaf_is_aligned_in_the_buffer():
    at = 0
    for _, dtype, shape in BufferLayout.of(flatten_names(tree())).leaves:
        assert at % dtype.itemsize == 0
        at += dtype.itemsize * int(np.prod(shape))


def test_a_record_is_read_after_the_next_one_was_sent():
    fences = Transfers(CPU, time.perf_counter)
    for t in range(4):
        fences.send("record", TensorDict({"t": torch.tensor([t])}, batch_size=[]), t % 2)
        if t:
            assert fences.receive("record", (t - 1) % 2)["t"][0] == t - 1


def test_every_crossing_is_counted_under_its_name():
    fences = Transfers(CPU, time.perf_counter)
    assert fences.read_counts(torch.tensor([3, 1, 4], dtype=torch.int32)) == [3, 1, 4]
    fences.read("result", tree())
    fences.fetch_state(tree())
    assert {name: count for name, count in fences.ledger.items() if count} == {
        "plan": 1,
        "checkpoint": 1,
        "result": 1,
    }


def test_the_host_stands_still_only_in_fences_that_wait():
    seconds = iter(range(100))
    fences = Transfers(CPU, lambda: next(seconds))
    fences.send("record", tree())
    fences.receive("record")
    assert fences.total_wait_s == 0
    fences.read("update", tree())
    fences.read_counts(torch.tensor([1]))
    assert fences.total_wait_s == 2
