"""Intervals: what they are of, what they hold, and how wide they are, by hand and by simulation."""

import math
from statistics import fmean

import numpy as np
import pytest

from morphogen.evaluation.bootstrap import (
    draw_resamples,
    effect_size,
    improvement_probability,
    interval,
    iqm,
    resample_means,
    seed_interval,
    student_t_quantile,
    tail_shares,
)

DICE = np.random.default_rng(5)


def width(found):
    return found.high - found.low


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 100], 3.5),
        ([100, 6, 5, 4, 3, 2, 1, 0], 3.5),
        ([100, 0, 1, 2, 3, 4, 5, 6], 3.5),
        ([0, 0, 4, 4, 4, 10], 10 / 3),
        ([7], 7.0),
        ([[0, 1, 2, 3], [4, 5, 6, 100]], 3.5),
    ],
)
def test_the_interquartile_mean_is_that_of_the_middle_half(values, middle):
    assert iqm(np.array(values), seed=0).value == pytest.approx(middle)


def test_outliers_move_the_mean_and_not_the_interquartile_mean():
    values = DICE.normal(size=64)
    wild = np.where(np.arange(64) == values.argmax(), 1e6, values)
    assert iqm(wild, seed=0).value == iqm(values, seed=0).value
    assert interval(wild, seed=0).value > 1e4


def test_an_interval_holds_its_estimate_and_is_the_same_every_time():
    values = DICE.normal(size=40)
    for find in (interval, iqm):
        found = find(values, seed=3)
        assert found.low < found.value < found.high
        draw_resamples.cache_clear()
        assert find(values, seed=3) == found
        assert find(values, seed=4).low != found.low


def test_every_run_keeps_its_number_of_episodes_in_every_resample():
    drawn = draw_resamples(3, 5, seed=0, count=50).reshape(50, 3, 5)
    assert (drawn.sum(axis=2) == 5).all()
    assert len({tuple(row) for row in drawn[0].tolist()}) > 1, (
        "runs are drawn apart from each other"
    )
    assert len({one.tobytes() for one in drawn}) > 40


def test_what_differs_between_runs_only_makes_no_interval_wider():
    values = np.repeat([[0.0], [1.0]], 32, axis=1)
    assert interval(values, seed=0) == (0.5, 0.5, 0.5)
    assert width(interval(values.ravel(), seed=0)) > 0.2


@pytest.mark.slow
def test_intervals_are_as_wide_as_those_of_student():
    """Plain percentiles of a bootstrap are 3 % too narrow for 64 values."""
    ratios = []
    for seed in range(8):
        values = DICE.uniform(size=64)
        ratios.append(width(interval(values, seed=seed)) / (2 * 1.998 * values.std(ddof=1) / 8))
    assert 0.995 < fmean(ratios) < 1.025


def test_percentiles_of_few_values_lie_further_out():
    """0.57 % for 8 values and 2.2 % for 64 in the place of 2.5 %, read from tables of Student's t
    and of the normal.
    """
    for size, share in ((8, 0.00573), (64, 0.02201), (100_000, 0.025)):
        assert tail_shares(size, size - 1) == (
            pytest.approx(share, rel=0.005),
            pytest.approx(1 - share, rel=1e-4),
        )


def test_an_interval_reaches_further_to_the_side_of_the_long_tail():
    values = DICE.exponential(size=(2, 40))
    left, right = (interval(sign * values, seed=0) for sign in (-1.0, 1.0))
    assert right.high - right.value > 1.05 * (right.value - right.low)
    assert left.value - left.low == pytest.approx(right.high - right.value, rel=0.02)
    percentiles = np.quantile(
        resample_means(draw_resamples(2, 40, seed=0, count=10_000), values.ravel()), (0.025, 0.975)
    )
    assert right.low <= percentiles[0]
    assert right.high > percentiles[1]


def test_several_runs_of_few_episodes_are_widened_by_what_they_are():
    ratios = []
    for seed in range(10):
        values = DICE.normal(size=(8, 4))
        spread = math.sqrt(values.var(axis=1, ddof=1).mean())
        ratios.append(width(interval(values, seed=seed)) / (2 * 2.064 * spread / math.sqrt(32)))
    assert fmean(ratios) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("find", [interval, iqm])
def test_nineteen_of_twenty_intervals_hold_the_truth(find):
    held = [
        (found := find(values, seed=i // 20, count=400)).low <= 0.5 <= found.high
        for i, values in enumerate(DICE.uniform(size=(1_000, 64)))
    ]
    assert 0.93 <= np.mean(held) <= 0.97


def test_what_is_common_to_both_sides_does_not_matter_to_a_pair():
    ours, theirs, worlds = DICE.normal(0.3, 1, 64), DICE.normal(size=64), DICE.normal(0, 50, 64)
    assert improvement_probability(
        ours + worlds, theirs + worlds, seed=0
    ) == improvement_probability(ours, theirs, seed=0)
    assert effect_size(ours + worlds, theirs + worlds) == pytest.approx(effect_size(ours, theirs))


def test_the_probability_of_improvement_counts_ties_half_and_is_never_certain():
    ours = np.array([1.0, 1.0, 1.0, 0.0])
    assert improvement_probability(ours, np.array([0.0, 1.0, 2.0, 0.0]), seed=0).value == 0.5
    always = improvement_probability(np.ones(64), np.zeros(64), seed=0)
    assert (always.value, always.high) == (1.0, 1.0)
    assert 0.9 < always.low < 1.0
    never = improvement_probability(np.zeros(64), np.ones(64), seed=0)
    assert (never.value, never.low) == (0.0, 0.0)
    assert 0.0 < never.high < 0.1


def test_the_effect_is_the_mean_difference_in_its_standard_deviations():
    assert effect_size(np.array([2.0, 5.0]), np.array([1.0, 2.0])) == pytest.approx(math.sqrt(2))
    assert effect_size(np.array([1.0, 2.0]), np.array([0.0, 1.0])) is None


def test_over_runs_the_interval_is_that_of_their_means():
    found = seed_interval(np.array([[-1.0, 1.0], [1.0, 3.0], [3.0, 5.0]]))
    assert found is not None
    assert found == pytest.approx(
        (2.0, 2.0 - 4.303 * 2 / math.sqrt(3), 2.0 + 4.303 * 2 / math.sqrt(3))
    )
    assert not found.excludes_zero
    assert seed_interval(np.array([[1.0, 2.0]])) is None


@pytest.mark.parametrize(
    ("freedom", "published"),
    [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (63, 1.998), (10**6, 1.96)],
)
def test_quantiles_are_those_of_the_published_table(freedom, published):
    assert student_t_quantile(freedom) == pytest.approx(published, abs=0.0035)
