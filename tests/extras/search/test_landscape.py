"""The survey of the digits task: what is read out of accuracies, and that it looks at training instances only."""

import json

import numpy as np
import pytest

from bench.studies import landscape
from morphogen.data.instances import TRAINING_INSTANCES
from morphogen.extras.search.instance_sets import training_instances

TINY = {"envs": 2, "slots": ["r0c0"], "blueprints": ["norm"], "data": {"minibatches": 1, "batch": 8, "val_samples": 16}}
MADE = {  # the seed adds 20 points to the first of two instances, which sees single pixels
    "instances": {"reach": [0, 1]},
    "schedules": [
        {"grows": "nothing", "params": 0, "accuracy": [[0.4, 0.4], [0.4, 0.4]]},
        {"grows": "norm in r0c0", "params": 10, "accuracy": [[0.6, 0.4], [0.6, 0.4]]},
    ],
}


def test_where_parameters_cost_next_to_nothing_growing_pays_where_it_helps():
    found = landscape.value_at_prices(MADE, (1e-6, 2e-6), budget=100)
    assert found["nothing"] == pytest.approx(0.4)
    assert found["best_fixed"] == {"grows": "norm in r0c0", "value": pytest.approx(0.5, abs=1e-5)}
    assert found["best_of_each"] == pytest.approx(0.5, abs=1e-5)
    assert found["closed_by_fixed"] < 1


def test_where_they_cost_more_than_half_of_the_gain_only_the_choice_by_instance_pays():
    found = landscape.value_at_prices(MADE, (1.5, 1.6), budget=100)
    assert found["best_fixed"] == {"grows": "nothing", "value": pytest.approx(0.4)}
    assert 0.4 + 0.02 < found["best_of_each"] < 0.4 + 0.025
    assert found["closed_by_fixed"] == pytest.approx(0, abs=1e-9)


def test_gains_are_told_by_the_reach_of_the_host():
    nothing, seed = landscape.gains(MADE)
    assert nothing["points"] == 0
    assert (seed["points"], seed["points at reach 0"], seed["points at reach 1"]) == pytest.approx((10, 20, 0))


@pytest.mark.slow
def test_a_survey_plays_training_instances_in_two_worlds_and_writes_what_it_found(tmp_path, monkeypatch):
    plain = landscape.landscape_spec
    small = lambda preset, host=None: plain(preset, **TINY, host=host or {})  # noqa: E731
    monkeypatch.setattr(landscape, "landscape_spec", small)
    landscape.main(["--on", "2", "--json", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["grows"] for row in found["schedules"]] == ["nothing", "norm in r0c0"]
    assert np.shape([row["accuracy"] for row in found["schedules"]]) == (2, 2, 2)
    assert [row["params"] for row in found["schedules"]] == [0, 9]
    assert found["wider"]["width"] == 8
    assert np.shape(found["wider"]["accuracy"]) == (2, 2)
    assert found["commonest_label"] == 4 / 16
    assert training_instances(small("digits"), 2).split is TRAINING_INSTANCES
