"""The study that holds `digits_regimes` to its bounds: what it measures, and what it finds wrong."""

import json

import pytest
from support.small_runs import tiny

import morphogen as mg
from bench.studies import regimes
from morphogen.extras.regimes.regime_spec import RegimeSpec
from morphogen.vocab.action import Op
from morphogen.vocab.image_view import View

QUICK = mg.LifecycleSpec(
    min_training_epochs=1, min_prune_age=1, embargo_epochs=1, auto_forward=("TRAIN", "BLEND", "HOLD")
)


def ends(value, low):
    return {"value": value, "low": low, "high": 2 * value - low}


def measured(**changes):
    """Results within all bounds, but for the changes."""
    kinds = [
        {"gain_over_best_of_other_kinds": {"a": ends(0.1, 0.05)}},
        {"gain_over_best_of_other_kinds": {"b": ends(0.1, -0.05), "c": ends(0.1, 0.01)}},
    ]
    rivals = {
        "clairvoyant_minus": {"static": ends(0.06, 0.04), "open": ends(0.05, 0.031)},
        "prunes": 0.3,
        "grows_later": 0.5,
        "ops": dict.fromkeys((op.name for op in Op), 0.1),
    }
    rivals |= {name: value for name, value in changes.items() if name in rivals}
    return changes.get("kinds", kinds), rivals


def test_a_task_within_all_bounds_passes():
    assert all(regimes.judge(*measured()).values())


@pytest.mark.parametrize(
    ("changes", "criterion"),
    [
        ({"kinds": [{"gain_over_best_of_other_kinds": {"a": ends(0.1, 0.05)}}] * 1}, "kinds of regimes"),
        ({"kinds": [{"gain_over_best_of_other_kinds": {"a": ends(0.1, -0.01)}}] * 3}, "kinds of regimes"),
        ({"clairvoyant_minus": {"static": ends(0.049, 0.04), "open": ends(0.06, 0.05)}}, "clairvoyant minus"),
        ({"clairvoyant_minus": {"static": ends(0.06, 0.04), "open": ends(0.06, 0.03)}}, "clairvoyant minus"),
        ({"prunes": 0.29}, "clairvoyant prunes"),
        ({"grows_later": 0.29}, "clairvoyant grows"),
        ({"ops": {"WAIT": 0.9, "PRUNE": 0.0}}, "every op"),
    ],
)
def test_what_is_out_of_bounds_fails_and_nothing_else(changes, criterion):
    found = regimes.judge(*measured(**changes))
    assert [name for name, passes in found.items() if not passes] == [name for name in found if criterion in name]
    assert not all(found.values())


def test_the_command_writes_its_file_and_prints_a_summary(tmp_path, monkeypatch, capsys):
    kinds, rivals = measured(prunes=0.4)
    monkeypatch.setattr(regimes, "measure_kinds", lambda *_: kinds)
    monkeypatch.setattr(regimes, "measure_rivals", lambda *_: rivals)
    idle = tmp_path / "idle.json"
    idle.write_text('{"version": 1, "name": "idle", "on_illegal": "wait", "steps": []}')
    regimes.main([str(idle), str(idle), "--json", str(tmp_path / "found" / "file.json")])
    assert json.loads((tmp_path / "found" / "file.json").read_text())["criteria"] == regimes.judge(kinds, rivals)
    assert "prunes in 40%, grows after the first regime in 50%" in capsys.readouterr().out


def test_a_view_comes_with_its_own_numbers_of_classes():
    spec = RegimeSpec(views={"noisy": 1, "half": 1}, classes=(3, 4), noisy_classes=(2, 2))
    found = [(view.label, count) for view, count in regimes.kinds_of_regimes(spec)]
    assert found == [("plain", 3), ("plain", 4), ("half", 3), ("half", 4), ("noisy", 2)]
    assert {count for _, count in regimes.kinds_of_regimes(RegimeSpec())} == {10}


@pytest.mark.parametrize(("view", "classes"), [(View.PLAIN, 3), (View.NOISY, 2)])
def test_worlds_of_a_kind_have_no_other_view_and_number_of_classes(view, classes):
    spec = mg.resolve(mg.RunSpec(preset=regimes.PRESET, envs=4))
    alone = regimes.spec_of_kind(spec, view, classes)
    assert alone.regime.views.used == (view,)
    assert alone.regime.hazard == spec.regime.hazard > 0
    state, _ = mg.make(alone, envs=16).reset()
    assert set(state.instance.classes.tolist()) == {classes}


@pytest.mark.slow
def test_the_best_net_of_each_kind_of_regime_is_found_in_worlds_of_that_kind():
    regime = RegimeSpec(hazard=0.2, least=4, views={"noisy": 1}, classes=(2, 3), noise=3.0)
    observe, price = mg.ObserveSpec(instance=("param_price",)), mg.InstanceSpec(classes=(10, 10))
    small = {"slots": ("r0c0",), "blueprints": ("norm", "depthwise"), "lifecycle": QUICK, "episode_length": 8}
    said: list[str] = []
    rows = regimes.measure_kinds(tiny(regime=regime, observe=observe, instance=price, **small), 2, said.append)
    assert [(row["view"], row["classes"]) for row in rows] == [("plain", 2), ("plain", 3), ("noisy", 2), ("noisy", 3)]
    assert len(said) == 4
    best = {row["best"] for row in rows}
    for row in rows:
        assert set(row["gain_over_best_of_other_kinds"]) == best - {row["best"]}
