"""Shards: those that do not fit together are refused on all ranks."""

import torch

from morphogen.errors import CheckpointError
from tests.extras.ranks.thread_ranks import run_ranks


def test_shards_that_differ_in_their_leaves_are_refused_on_all_ranks():
    number = torch.arange(6)
    shards = [{"state": {"key": number, "age": number}}, {"state": {"key": number}}]
    found = run_ranks(2, lambda exchange: exchange.join_envs(shards[exchange.rank]))
    assert [type(error) for error in found] == [CheckpointError] * 2
    assert "the shards of the envs differ: expected the entries key, age" in str(found[0])
