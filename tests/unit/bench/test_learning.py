"""Statistics over several evaluated runs: differences to rivals, and the share of the gap that is
closed.
"""

import numpy as np
import pytest

from bench.studies import learning


def test_a_rival_is_beaten_only_where_training_seeds_agree():
    theirs = np.zeros((1, 40))
    luck = np.array([[0.3], [-0.1], [0.1]]) + np.zeros((3, 40))
    assert learning.compare_to_arm(luck, theirs)["difference"]["low"] > 0
    assert not learning.compare_to_arm(luck, theirs)["above_zero"]
    assert learning.compare_to_arm(luck[:1], theirs)["above_zero"]


def test_the_interval_of_the_gap_holds_both_uncertainties_at_once():
    dice = np.random.default_rng(2)
    wait = dice.normal(size=(1, 200))
    way = dice.uniform(0.0, 0.4, size=(1, 200))
    values = {"wait": wait, "oracle": wait + way, "trained": wait + 0.5 * way}
    assert learning.gap_closed(values) == pytest.approx({"value": 0.5, "low": 0.5, "high": 0.5})
    noisy = learning.gap_closed(
        {**values, "trained": values["trained"] + dice.normal(0, 0.1, size=(1, 200))}
    )
    assert noisy is not None
    assert noisy["low"] < 0.5 < noisy["high"]


def test_the_gap_begins_at_the_best_arm_that_does_not_know_the_regimes():
    base = np.zeros((1, 8))
    values = {
        "planted": base,
        "open": base + 0.2,
        "reactive": base + 0.1,
        "clairvoyant": base + 0.6,
    }
    values |= {"wait": base - 9, "oracle": base + 9, "trained": base + 0.3}
    assert learning.gap_ends(values) == ("open", "clairvoyant")
    assert learning.gap_closed(values) == pytest.approx({"value": 0.25, "low": 0.25, "high": 0.25})
    assert learning.gap_ends({"open": base, "clairvoyant": base}) is None
