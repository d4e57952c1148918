"""Every private name of torch and tensordict does what `compat` needs: a release that renames one
fails here.
"""

import pytest
import torch
from tensordict import TensorClass, TensorDict
from torch._dynamo.utils import counters

from morphogen import compat

ONES = torch.ones(2)
ATEN = torch.ops.aten


class _Pair(TensorClass):
    """A tensor class with a leaf and a branch."""

    leaf: torch.Tensor
    branch: TensorDict


def make_pair() -> _Pair:
    branch = TensorDict({"x": torch.zeros(3, 2)}, [3])
    return _Pair(leaf=torch.arange(3), branch=branch, batch_size=[3], device="cpu")


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("add_each", (1,), 3.0),
        ("addcmul_each", ([3 * ONES], [ONES]), 5.0),
        ("div_each", (4,), 0.5),
        ("lerp_each", ([3 * ONES], 0.5), 2.5),
        ("mul_each", (3,), 6.0),
        ("sqrt_each", (), 2**0.5),
        ("sub_each", ([3 * ONES],), -1.0),
    ],
)
def test_operators_on_lists(name, args, expected):
    [result] = getattr(compat, name)([2 * ONES], *args)
    torch.testing.assert_close(result, torch.full((2,), expected))


def test_norms_copies_and_joins_of_lists():
    assert compat.norm_each([torch.tensor([3.0, 4.0])], 2)[0] == 5.0
    target = torch.zeros(2)
    compat.copy_each([target], [ONES])
    assert torch.equal(target, ONES)


def test_transforms_are_seen_and_left():
    def inside(x: torch.Tensor) -> torch.Tensor:
        assert compat.transforms_active()
        with compat.outside_transforms():
            made = torch.tensor(1.0)
        assert torch.func.debug_unwrap(made) is made
        return x.sum()

    assert not compat.transforms_active()
    torch.func.grad(inside)(ONES)


class _Double(torch.autograd.Function):
    """A function whose gradient is ten times too large."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        return 20 * grads[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functions_are_applied_with_their_gradient(monkeypatch):
    def total(x):
        return compat.apply_function(_Double, x).sum()

    grad = torch.func.grad(total)
    assert grad(ONES).tolist() == [20.0, 20.0]
    assert torch.compile(grad, fullgraph=True)(ONES).tolist() == [20.0, 20.0]
    assert not total(ONES.clone().requires_grad_().detach()).requires_grad
    monkeypatch.delattr(torch.autograd.Function, "apply")  # not the slow way
    x = ONES.clone().requires_grad_()
    total(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 20.0]


def test_graphs_are_counted_and_modes_listed():
    before = compat.compiled_graphs()
    torch.compile(lambda x: x + 1, backend="eager")(ONES)
    assert compat.compiled_graphs() == before + 1 == counters["stats"]["unique_graphs"]
    assert compat.list_mode_options("reduce-overhead")["triton.cudagraphs"]


def test_modes_see_operators_and_skip_the_compiler():
    class Names(compat.UnguardedMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    with Names():
        torch.compile(lambda x: x + 1, backend="eager")(ONES)
    assert names == ["add"]
    assert "_should_skip_dynamo" in vars(compat.TorchDispatchMode)


def test_operators_are_described():
    add = ATEN.add_.Tensor
    this, other, *_ = compat.schema_arguments(add)
    assert (this.name, str(this.type), this.is_out) == ("self", "Tensor", False)
    assert this.alias_info.is_write
    assert other.alias_info is None
    assert compat.unchecked_operator(add)(torch.zeros(2), ONES).tolist() == [1.0, 1.0]
    assert compat.is_composite(ATEN.matmul.default)
    assert not compat.is_composite(ATEN.mm.default)


def test_memory_has_an_identity():
    empty = torch.empty(0)
    assert compat.storage_key(empty) == compat.storage_key(empty[:0])
    assert compat.storage_key(empty) != compat.storage_key(torch.empty(0))


def test_trees_are_flattened_in_order():
    tree = {"a": [1, 2], "b": 3}
    leaves, form = compat.tree_flatten(tree)
    assert leaves == [1, 2, 3]
    assert compat.tree_unflatten(leaves, form) == tree
    assert compat.tree_map(lambda leaf: leaf + 1, tree) == {"a": [2, 3], "b": 4}


def test_leaves_of_a_tree_are_its_dictionary():
    pair = make_pair()
    assert compat.field_names(_Pair) == {"leaf", "branch"}
    assert compat.leaves_of(pair)["leaf"] is pair.leaf
    assert compat.storage_of(pair).device == pair.device
    branch = pair.branch
    assert compat.storage_of(branch) is branch
    assert set(compat.leaves_of(branch)) == {"x"}


def test_a_tree_is_built_as_by_its_constructor():
    pair = make_pair()
    built = compat.build_tree(_Pair, dict(compat.leaves_of(pair)), compat.storage_of(pair))
    assert type(built) is _Pair
    assert built.batch_size == pair.batch_size
    assert built.device == pair.device
    assert built.names == pair.names
    assert (built == pair).all()
    assert (built.clone() == pair).all()
    storage, other = compat.storage_of(built), compat.storage_of(pair)
    assert vars(storage).keys() <= vars(other).keys()
