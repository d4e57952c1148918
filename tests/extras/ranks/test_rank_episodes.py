"""Evaluation over ranks: every episode is played once, and the results are those of one process."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import morphogen as mg
from morphogen.device.transfers import Transfers
from morphogen.evaluation import arms, replays
from morphogen.evaluation.play import play_arm
from morphogen.evaluation.schedule_search import (
    build_schedule,
    initial_candidates,
    score_lines,
    score_schedules,
    training_instances,
)
from morphogen.extras.ranks.rank_exchange import RankExchange, joined_places, part_size
from morphogen.learn.exchange import ALONE
from tests.extras.ranks.thread_ranks import run_ranks


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 5))
def test_joined_parts_hold_every_episode_of_every_group_in_its_order(counts, ranks):
    rows = []
    for rank in range(ranks):
        own = RankExchange(rank, ranks)
        rows += [(group, place) for group, n in enumerate(counts) for place in own.places(n).tolist()]
    joined = [rows[place] for place in joined_places(counts, ranks)]
    assert joined == [(group, place) for group, n in enumerate(counts) for place in range(n)]


@given(st.integers(1, 20), st.integers(1, 30))
def test_no_rank_plays_one_row_where_one_process_plays_several(count, ranks):
    assert part_size(count, ranks) >= min(count, 2)


@pytest.fixture(scope="module")
def setup():
    return mg.build_setup(mg.RunSpec(preset="whitebox", envs=5, seed=3))


def assert_equal_traces(ours, theirs):
    for field in fields(ours):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name)


def play_all(setup, exchange):
    """Arms of every kind."""
    setup = replace(setup, exchange=exchange)
    transfers = Transfers(setup.device, lambda: 0.0)
    played = play_arm(setup, transfers, mg.build_arm("random", setup), name="random", episodes=12)
    results = {"random": played}
    static = replays.play_static_arm(setup, transfers, 12, results)
    portfolio = [build_schedule(candidate, setup.spec) for candidate in initial_candidates(setup.spec)[:3]]
    oracle = arms.play_hindsight_oracle(setup, transfers, portfolio, episodes=7, worlds=1, rows=8)
    return [played.traces, static.traces, oracle.traces], oracle.pick.tolist()


def test_arms_of_every_kind_have_the_results_of_one_process_on_two_ranks(setup):
    whole, picks = play_all(setup, ALONE)
    for parts, own_picks in run_ranks(2, lambda exchange: play_all(setup, exchange)):
        assert own_picks == picks
        for ours, theirs in zip(parts, whole, strict=True):
            assert_equal_traces(ours, theirs)


def test_scores_of_schedules_are_those_of_one_process_where_groups_are_uneven(setup):
    schedules = [build_schedule(candidate, setup.spec) for candidate in initial_candidates(setup.spec)[:3]]
    ground = training_instances(setup.spec, 3)

    def score(exchange):
        transfers = Transfers(setup.device, lambda: 0.0)
        shared = replace(setup, exchange=exchange)
        return score_schedules(shared, transfers, schedules, ground, worlds=range(2), rows=5)

    whole = score(ALONE)
    assert len(np.unique(whole)) > 2
    for values in run_ranks(2, score):
        np.testing.assert_array_equal(values, whole)


def test_scores_are_in_the_order_of_the_lines_whichever_play_side_by_side(setup):
    idle, one, other = (build_schedule(candidate, setup.spec) for candidate in initial_candidates(setup.spec)[:3])
    lines, ground = [one, idle, other, idle, one], training_instances(setup.spec, 3)
    transfers, places = Transfers(setup.device, lambda: 0.0), torch.tensor([2, 0, 0, 1, 0])
    found = score_lines(setup, transfers, lines, ground.choose(places), worlds=range(2), rows=2)
    table = score_schedules(setup, transfers, [idle, one, other], ground, worlds=range(2), rows=9)
    assert len(np.unique(table)) > 2
    expected = [table[(1, 0, 2, 0, 1)[i], :, place] for i, place in enumerate(places.tolist())]
    np.testing.assert_allclose(found.T, expected, atol=1e-6)
