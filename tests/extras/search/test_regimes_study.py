"""The study of `digits_regimes`: worlds of one kind of regime, and the best net of each kind."""

import pytest
from support.small_runs import tiny

import morphogen as mg

regimes = pytest.importorskip("bench.studies.regimes")
RegimeSpec = regimes.RegimeSpec
QUICK = mg.LifecycleSpec(
    min_training_epochs=1,
    min_prune_age=1,
    embargo_epochs=1,
    auto_forward=("TRAIN", "BLEND", "HOLD"),
)


@pytest.mark.slow
def test_the_best_net_of_each_kind_of_phase_is_found_in_worlds_of_that_kind():
    regime = RegimeSpec(hazard=0.2, least=4, views={"noisy": 1}, classes=(2, 3), noise=3.0)
    observe, price = mg.ObserveSpec(instance=("param_price",)), mg.InstanceSpec(classes=(10, 10))
    small = {
        "slots": ("r0c0",),
        "blueprints": ("norm", "depthwise"),
        "lifecycle": QUICK,
        "episode_length": 8,
    }
    said: list[str] = []
    rows = regimes.measure_kinds(
        tiny(regime=regime, observe=observe, instance=price, **small), 2, said.append
    )
    assert [(row["view"], row["classes"]) for row in rows] == [
        ("plain", 2),
        ("plain", 3),
        ("noisy", 2),
        ("noisy", 3),
    ]
    assert len(said) == 4
    best = {row["best"] for row in rows}
    for row in rows:
        assert set(row["gain_over_best_of_other_kinds"]) == best - {row["best"]}
