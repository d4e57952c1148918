"""The search for schedules: it finds a known winner and writes a schedule that a run takes."""

from functools import partial

import numpy as np
import pytest
from support.small_runs import QUICK, context_of, tiny, tiny_setup

from morphogen.errors import ConfigError
from morphogen.extras.schedules.action_schedule import parse_schedule
from morphogen.extras.search import successive_halving
from morphogen.extras.search.candidates import (
    GrowthStep,
    build_schedule,
    initial_candidates,
    neighbours,
)
from morphogen.extras.search.successive_halving import (
    cross_world_value,
    halve_candidates,
    search_schedules,
)
from morphogen.vocab.action import Style
from morphogen.vocab.blueprint import Blueprint

SPEC = tiny(episode_length=12, lifecycle=QUICK)
# no member of the family: between two of its starts
WINNER = (GrowthStep(3, "r0c1", Blueprint.DEPTHWISE),)


def value_of(candidate, kind):
    """Half of the instances want the winner, the others want nothing."""
    if kind or not candidate:
        return 0.4 + 0.3 * (kind and not candidate)
    first = candidate[0]
    near = [
        first.slot == "r0c1",
        first.blueprint is Blueprint.DEPTHWISE,
        first.style is Style.SIGMOID_ADD,
    ]
    return 0.5 + 0.1 * sum(near) - 0.02 * abs(first.epoch - 3) - 0.1 * (len(candidate) - 1)


def made_up(noise=0.0):
    """Mean values of candidates, with noise."""
    draw = np.random.default_rng(3)

    def play(candidates, count):
        rows = [[value_of(candidate, i % 2) for i in range(count)] for candidate in candidates]
        return np.mean(rows, axis=1) + noise * draw.standard_normal(len(rows))

    return play


def halve(play, report=lambda line: None):
    return halve_candidates(
        initial_candidates(SPEC),
        play,
        partial(neighbours, spec=SPEC),
        group=lambda candidate: tuple(growth.blueprint for growth in candidate),
        parents=(6, 0),
        instances=48,
        report=report,
    )


@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_the_winner_is_found_beyond_the_family(noise):
    said = []
    means, tried = halve(made_up(noise), said.append)
    assert max(means, key=means.get) == WINNER
    assert means[WINNER] == pytest.approx(0.6, abs=0.01)
    assert means[()] == pytest.approx(0.55, abs=0.01)
    assert len(said) == 3
    assert tried > len(means)


def test_more_instances_are_played_by_fewer_schedules_and_each_kind_of_seed_stays():
    asked = []

    def play(candidates, count):
        asked.append((list(candidates), count))
        return made_up()(candidates, count)

    _, tried = halve(play)
    first, second, third = (candidates for candidates, _ in asked)
    assert [count for _, count in asked] == [4, 16, 48]
    assert len(first) > len(second) > len(third)
    assert all(len(set(played)) == len(played) for played, _ in asked)
    assert {candidate[0].blueprint for candidate in third if candidate} == {
        candidate[0].blueprint for candidate in first if candidate
    }
    assert tried == len({*first, *second, *third})


def test_the_file_is_a_schedule_that_a_run_takes(monkeypatch):
    setup = tiny_setup(episode_length=12, lifecycle=QUICK)
    drawn = made_up()
    played = {}

    def score(context, schedules, instances, *, worlds):
        values = drawn([played[schedule.name] for schedule in schedules], len(instances.tasks))
        return np.broadcast_to(values[:, None, None], (len(schedules), len(worlds), 1))

    def build(candidate, spec):
        schedule = build_schedule(candidate, spec)
        played[schedule.name] = candidate
        return schedule

    monkeypatch.setattr(successive_halving, "score_schedules", score)
    monkeypatch.setattr(successive_halving, "build_schedule", build)
    numbers, data = search_schedules(context_of(setup), instances=12, worlds=2)
    assert parse_schedule(data.decode(), setup.spec) == build_schedule(WINNER, setup.spec)
    assert "depthwise in r0c1 from epoch 3" in numbers["best"]
    assert (numbers["value"], numbers["value without growing"]) == pytest.approx((0.6, 0.55))


def test_a_run_in_which_nothing_can_be_kept_is_not_searched():
    setup = tiny_setup(episode_length=12, disabled_ops=("FOSSILIZE",))
    with pytest.raises(ConfigError, match="no seed can be germinated and fossilized in 12 epochs"):
        search_schedules(context_of(setup), instances=2, worlds=2)


def test_a_pick_by_luck_has_no_value():
    values = np.random.default_rng(0).standard_normal((2_000, 20, 2))
    assert values.mean(axis=2).max(axis=1).mean() > 1
    assert np.mean([cross_world_value(one) for one in values]) == pytest.approx(0, abs=0.05)


def test_a_pick_for_a_reason_has_all_of_its_value():
    assert cross_world_value(np.array([[0.5, 0.7], [0.4, 0.6]])) == pytest.approx(0.6)
