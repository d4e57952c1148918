"""Shards: the states of the envs of all ranks equal one process, and lie in memory as they
do.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import run_comparison

from morphogen.errors import CheckpointError
from morphogen.extras.ranks.shards import join_envs, take_envs
from morphogen.state.tensor_trees import memory_order
from tests.extras.ranks.thread_ranks import run_ranks

DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 12])
ENVS = 12


def tree_of(envs=ENVS, epochs=3):
    """Every number is of one env and epoch; two leaves have their axes in another order in
    memory.
    """
    number = torch.arange(envs)
    images = (number.view(-1, 1, 1, 1) * 100 + torch.arange(2 * 3 * 5).view(1, 2, 3, 5)).float()
    later = (torch.arange(epochs).view(-1, 1) * 1000 + number).double()
    return {
        "state": {
            "host": {"x": images.contiguous(memory_format=torch.channels_last)},
            "turned": images[:, 0].transpose(1, 2).contiguous().transpose(1, 2),
            "key": number.clone(),
        },
        "segment": number % 2 == 0,
        "rollout": {
            "masks": {"op": later.unsqueeze(-1).expand(-1, -1, 4).clone()},
            "reward": later,
        },
        "columns": {"val_acc": later + 0.5},
        "none": {},
    }


def equal(one, other):
    return not list(run_comparison.tree_differences(one, other, ""))


def part(tree, rank, ranks):
    return take_envs(tree, lambda envs: range(rank * envs // ranks, (rank + 1) * envs // ranks))


@given(ranks=DIVISORS)
def test_a_rank_has_its_envs_in_every_leaf(ranks):
    for rank in range(ranks):
        own, tree = slice(rank * ENVS // ranks, (rank + 1) * ENVS // ranks), tree_of()
        taken = part(tree, rank, ranks)
        assert taken["state"]["key"].tolist() == list(range(ENVS))[own]
        assert taken["rollout"]["reward"].equal(tree["rollout"]["reward"][:, own])
        assert taken["columns"]["val_acc"].equal(tree["columns"]["val_acc"][:, own])
        assert taken["state"]["host"]["x"].equal(tree["state"]["host"]["x"][own])


@given(ranks=DIVISORS)
def test_the_parts_of_all_ranks_are_the_whole_and_lie_in_memory_as_it_does(ranks):
    joined = join_envs([part(tree_of(), rank, ranks) for rank in range(ranks)])
    assert equal(joined, tree_of())
    assert memory_order(joined["state"]["host"]["x"]) == [0, 2, 3, 1]
    assert memory_order(joined["state"]["turned"]) == [0, 2, 1]


def test_shards_that_differ_in_their_leaves_are_refused_on_all_ranks():
    one, other = part(tree_of(), 0, 2), part(tree_of(), 1, 2)
    del other["rollout"]["masks"]
    with pytest.raises(
        CheckpointError, match="the shards of the envs differ: expected the entries masks, reward"
    ):
        join_envs([one, other])
    found = run_ranks(2, lambda exchange: exchange.join_envs((one, other)[exchange.rank]))
    assert [type(error) for error in found] == [CheckpointError] * 2
