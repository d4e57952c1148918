"""The sync audit: each of its three checks finds its kind of read, and code without reads
passes.
"""

import functools

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


def places(x, mask):
    return torch.argwhere(mask)


def kinds(x, mask):
    return x.unique()


def repeated(x, mask):
    return torch.repeat_interleave(x, mask.long())


def compared(x, mask):
    return x if torch.equal(x, x + 1) else -x


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (item, "_local_scalar_dense"),
        (branch, "_local_scalar_dense"),
        (chosen, "index"),
        (put, "index_put_"),
        (places, "nonzero"),
        (kinds, "_unique2"),
        (repeated, "repeat_interleave"),
        (compared, "equal"),
    ],
)
def test_a_read_is_seen_where_it_happens(function, op):
    with audit.HostReadMode() as seen:
        function(X, MASK)
    assert f"aten.{op}" in {read.op for read in seen.reads}
    line = function.__code__.co_firstlineno
    first = seen.reads[0]
    assert any(f"{__file__}:{line + shift}:" in first.location for shift in (1, 2))
    assert audit.audit(function, X, MASK).startswith(f"{first.op} at ")


def listed(x, mask):
    return torch.tensor(x.tolist())


def fetched(x, mask):
    return x.cpu() + 1


def counted(x, mask):
    return torch.from_numpy(x.numpy())


def made(x, mask):
    return {"here": x, "there": torch.zeros(3)}


@pytest.mark.parametrize("function", [item, branch, chosen, places, listed, fetched, counted])
def test_where_there_are_no_values_none_can_be_read(function):
    assert audit.meta_failure(function, X, MASK)


def test_a_result_on_the_cpu_is_named():
    assert audit.meta_failure(made, X, MASK) == "its output there is on cpu"


@pytest.mark.parametrize(
    ("function", "name"), [(listed, "tolist"), (fetched, "cpu"), (counted, "numpy")]
)
def test_the_source_tells_what_a_run_on_the_cpu_does_not_show(function, name):
    with audit.HostReadMode() as seen:
        function(X, MASK)
    assert not seen.reads
    assert audit.audit(function, X, MASK).endswith(f"line 2 of its source has .{name}")


class Seldom:
    """Reads in a branch that is not taken."""

    def __init__(self, rare=False):
        self.rare = rare

    def __call__(self, x):
        return x.item() if self.rare else x


@pytest.mark.parametrize("function", [Seldom(), functools.partial(Seldom())])
def test_the_source_of_an_object_is_that_of_its_call(function):
    assert audit.audit(function, X) == "line 2 of its source has .item"


def test_code_without_reads_passes():
    assert audit.audit(quiet, X, MASK) == ""
    # the source of a lambda cannot be separated from its neighbours'
    assert audit.audit(lambda x: x + 1, X) == ""


def test_the_arguments_are_left_alone():
    tree = TensorDict({"x": X.clone()}, batch_size=[3])
    audit.audit(lambda part: part["x"].zero_(), tree)
    assert torch.equal(tree["x"], X)
