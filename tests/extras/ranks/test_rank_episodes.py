"""Evaluation over ranks: every episode is played once, with the results of one process."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import morphogen as mg
from morphogen.device.transfers import Transfers
from morphogen.evaluation.play import play_arm
from morphogen.extras.ranks.rank_exchange import joined_places, part_size
from morphogen.ppo.exchange import ALONE
from tests.extras.ranks.thread_ranks import Board, ThreadRank, run_ranks


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 5))
def test_joined_parts_hold_every_episode_of_every_group_in_its_order(counts, ranks):
    rows = []
    for rank in range(ranks):
        own = ThreadRank(rank, Board(ranks))
        rows += [
            (group, place) for group, n in enumerate(counts) for place in own.places(n).tolist()
        ]
    joined = [rows[place] for place in joined_places(counts, ranks)]
    assert joined == [(group, place) for group, n in enumerate(counts) for place in range(n)]


@given(st.integers(1, 20), st.integers(1, 30))
def test_no_rank_plays_one_row_where_one_process_plays_several(count, ranks):
    assert part_size(count, ranks) >= min(count, 2)


@pytest.fixture(scope="module")
def setup():
    return mg.build_setup(mg.RunSpec(preset="tiny", envs=5, seed=3, episode_length=3))


def assert_equal_traces(ours, theirs):
    for field in fields(ours):
        np.testing.assert_array_equal(
            getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name
        )


@pytest.mark.slow
def test_an_arm_has_the_traces_of_one_process_on_two_ranks(setup):
    def play(exchange):
        shared = replace(setup, exchange=exchange)
        transfers = Transfers(setup.device, lambda: 0.0)
        arm = mg.build_arm("random", shared)
        return play_arm(shared, transfers, arm, name="random", episodes=12).traces

    alone = play(ALONE)
    for traces in run_ranks(2, play):
        assert_equal_traces(traces, alone)
