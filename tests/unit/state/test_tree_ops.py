"""Trees keep their docstring; a choice between a tensor and a number is the same eager and as a
graph.
"""

from dataclasses import FrozenInstanceError

import pytest
import torch

from morphogen.state.tree_ops import FrozenTree, choose, clear_rows

MASK = torch.tensor([True, False])


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int32, torch.int64, torch.float32, torch.float64]
)
def test_a_number_takes_the_dtype_of_the_other_side_in_a_graph_too(dtype):
    leaf = torch.tensor([1, 1]).to(dtype)
    for call in (
        lambda x: choose(MASK, 0, x),
        lambda x: choose(MASK, x, 0),
        lambda x: clear_rows(MASK, x),
    ):
        eager, graph = call(leaf), torch.compile(call, backend="eager", fullgraph=True)(leaf)
        assert eager.dtype == graph.dtype == dtype
        assert torch.equal(eager, graph)


def test_a_tree_keeps_its_docstring_and_cannot_be_changed():
    class Pair(FrozenTree):
        """Two leaves."""

        left: torch.Tensor
        right: torch.Tensor

    pair = Pair(left=torch.zeros(2), right=torch.ones(2), batch_size=[2])
    assert Pair.__doc__ == "Two leaves."
    assert pair[1].right.item() == 1.0
    with pytest.raises(FrozenInstanceError):
        pair.left = torch.ones(2)
