"""Searches over ranks: every episode is played once, with the results of one process."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from support.small_runs import QUICK, context_of, tiny_setup

import morphogen as mg
from morphogen.evaluation.arms import policy_player
from morphogen.extras.search import instance_sets
from morphogen.extras.search.candidates import build_schedule, initial_candidates
from morphogen.extras.search.instance_sets import (
    play_schedules,
    score_pairs,
    score_schedules,
    training_instances,
)
from morphogen.extras.search.replays import play_static_arm
from morphogen.ppo.exchange import ALONE

run_ranks = pytest.importorskip("tests.extras.ranks.thread_ranks").run_ranks


@pytest.fixture(scope="module")
def setup():
    return tiny_setup(envs=5, seed=3, episode_length=8, lifecycle=QUICK)


@pytest.fixture(scope="module")
def schedules(setup):
    return [
        build_schedule(candidate, setup.spec) for candidate in initial_candidates(setup.spec)[:3]
    ]


@pytest.mark.slow
def test_arms_have_the_results_of_one_process_on_two_ranks(setup, schedules):
    def play(exchange):
        context = context_of(replace(setup, exchange=exchange))
        random = policy_player(mg.build_arm("random", setup), "random")(context, 12, {})
        static = play_static_arm(context, 12, {"random": random})
        own = [schedules[i % 3] for i in range(7)]
        return [static.traces, play_schedules(context, own)]

    alone = play(ALONE)
    for traces in run_ranks(2, play):
        for ours, theirs in zip(traces, alone, strict=True):
            for field in fields(ours):
                np.testing.assert_array_equal(
                    getattr(ours, field.name), getattr(theirs, field.name), field.name
                )


@pytest.mark.slow
def test_scores_of_schedules_are_those_of_one_process_where_groups_are_uneven(
    setup, schedules, monkeypatch
):
    monkeypatch.setattr(instance_sets, "ENVS_FACTOR", 1)
    instances = training_instances(setup.spec, 3)

    def score(exchange):
        return score_schedules(
            context_of(replace(setup, exchange=exchange)),
            schedules,
            instances,
            worlds=range(2),
        )

    alone = score(ALONE)
    assert len(np.unique(alone)) > 2
    for values in run_ranks(2, score):
        np.testing.assert_array_equal(values, alone)


@pytest.mark.slow
def test_scores_are_in_the_order_of_the_pairs_whichever_run_together(setup, schedules, monkeypatch):
    monkeypatch.setattr(instance_sets, "ENVS_FACTOR", 1)
    idle, one, other = schedules
    instances = training_instances(setup.spec, 3)
    places = torch.tensor([2, 0, 0, 1, 0])
    context = context_of(setup)
    pairs = [one, idle, other, idle, one]
    found = score_pairs(context, pairs, instances.choose(places), worlds=range(2))
    monkeypatch.undo()
    table = score_schedules(context, schedules, instances, worlds=range(2))
    assert len(np.unique(table)) > 2
    expected = [table[(1, 0, 2, 0, 1)[i], :, place] for i, place in enumerate(places.tolist())]
    np.testing.assert_allclose(found.T, expected, atol=1e-6)
