"""The sync audit: each of its two checks finds its kind of read, and code without reads
passes.
"""

import pytest
import torch
from tensordict import TensorDict

from morphogen.testing import audit

X, MASK = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, True])


def quiet(x, mask):
    return torch.where(mask, x.sort().values, 0.0).sum()


def item(x, mask):
    return x * x.sum().item()


def branch(x, mask):
    return x if mask.all() else -x


def chosen(x, mask):
    return x[mask]


def put(x, mask):
    out = x.clone()
    out[mask] = 1.0
    return out


def kinds(x, mask):
    return x.unique()


def compared(x, mask):
    return x if torch.equal(x, x + 1) else -x


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (item, "_local_scalar_dense"),
        (branch, "_local_scalar_dense"),
        (chosen, "index"),
        (put, "index_put_"),
        (kinds, "_unique2"),
        (compared, "equal"),
    ],
)
def test_a_read_is_seen_where_it_happens(function, op):
    with audit.HostReadMode() as seen:
        function(X, MASK)
    assert f"aten.{op}" in {read.partition(" ")[0] for read in seen.reads}
    line = function.__code__.co_firstlineno
    op_and_place = seen.reads[0]
    assert any(f" at {__file__}:{line + shift}:" in op_and_place for shift in (1, 2))
    assert audit.audit(function, X, MASK).startswith(op_and_place)


def listed(x, mask):
    return torch.tensor(x.tolist())


def fetched(x, mask):
    return x.cpu() + 1


def counted(x, mask):
    return torch.from_numpy(x.numpy())


def made(x, mask):
    return {"here": x, "there": torch.zeros(3)}


@pytest.mark.parametrize("function", [item, chosen, listed, fetched, counted])
def test_where_there_are_no_values_none_can_be_read(function):
    assert audit.meta_failure(function, X, MASK)


def test_a_result_on_the_cpu_is_named():
    assert audit.meta_failure(made, X, MASK) == "its output there is on cpu"


def test_code_without_reads_passes():
    assert audit.audit(quiet, X, MASK) == ""


def test_the_arguments_are_left_alone():
    tree = TensorDict({"x": X.clone()}, batch_size=[3])
    audit.audit(lambda part: part["x"].zero_(), tree)
    assert torch.equal(tree["x"], X)
