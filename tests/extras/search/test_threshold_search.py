"""Search for the thresholds of the heuristic: what is tried, what is found, the file, and who plays
it.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.small_runs import context_of

import morphogen as mg
from morphogen.cli.main import main
from morphogen.env.setup import build_setup
from morphogen.extras.search import successive_halving, threshold_search
from morphogen.extras.search.instance_sets import training_instances
from morphogen.extras.search.threshold_search import (
    GRID,
    draw_thresholds,
    near_thresholds,
    score_thresholds,
    search_thresholds,
)

pytest.importorskip("morphogen.extras.whitebox")
SPEC = mg.resolve(mg.RunSpec(task="whitebox", envs=16))


def test_candidates_are_those_of_the_grid_the_own_ones_first_and_the_same_every_time():
    found = draw_thresholds(SPEC)
    assert found[0] == SPEC.heuristic
    assert len(set(found)) == len(found) > 40
    assert found == draw_thresholds(SPEC)
    assert found[1:] != draw_thresholds(SPEC.with_settings(seed=1))[1:]
    for thresholds in found[1:]:
        assert all(getattr(thresholds, name) in axis for name, axis in GRID.items())
        assert thresholds.blueprints in {(), ("conv_light",), ("conv_heavy",), ("bottleneck",)}
        assert thresholds.slots in {(), *((slot,) for slot in SPEC.slots)}


def test_what_is_near_differs_in_one_threshold():
    thresholds = mg.HeuristicSpec(first_epoch=0, max_cost=0.2)
    near = near_thresholds([thresholds], SPEC)
    names = ("blueprints", "slots", *GRID)
    changed = [
        [name for name in names if getattr(other, name) != getattr(thresholds, name)]
        for other in near
    ]
    assert all(len(one) == 1 for one in changed)
    assert {one[0] for one in changed} == set(names)
    assert {other.max_cost for other in near} == {0.1, 0.2, 0.3}


def test_a_level_of_the_loss_is_searched_where_the_run_has_one():
    without, levels = mg.HeuristicSpec(), mg.HeuristicSpec(min_loss=0.6)
    assert {thresholds.min_loss for thresholds in near_thresholds([without], SPEC)} == {None}
    assert {thresholds.min_loss for thresholds in draw_thresholds(SPEC)} == {None}
    other = replace(SPEC, heuristic=levels)
    assert {thresholds.min_loss for thresholds in near_thresholds([levels], other)} == {
        0.4,
        0.6,
        0.8,
    }
    assert {thresholds.min_loss for thresholds in draw_thresholds(other)[1:]} == {
        None,
        0.2,
        0.4,
        0.6,
        0.8,
        1.0,
        1.5,
    }


def test_the_value_of_rules_is_that_of_their_episodes():
    rules = mg.HeuristicSpec(first_epoch=0, min_plateau=0, max_cost=0.3)
    found = score_thresholds(
        context_of(build_setup(SPEC)), rules, training_instances(SPEC, 5), worlds=range(2)
    )
    alone = mg.play(mg.make(replace(SPEC, heuristic=rules), envs=5), "heuristic").network_value
    assert found.shape == (2, 5)
    assert np.allclose(found[0], alone)
    assert np.allclose(found[1], alone)  # the white box has the same worlds in all siblings


def make_quick(monkeypatch, drawn, parents, *stay):
    """Let a search try few candidates."""
    monkeypatch.setattr(threshold_search, "DRAWN", drawn)
    monkeypatch.setattr(threshold_search, "PARENTS", parents)
    trials = tuple(zip((3, 1), stay, strict=True))
    monkeypatch.setattr(successive_halving, "NEXT_TRIALS", trials)


@pytest.mark.slow
def test_the_search_ends_with_better_rules_than_it_began_with(monkeypatch):
    make_quick(monkeypatch, 16, 2, 8, 3)
    said: list[str] = []
    context = replace(context_of(build_setup(SPEC)), report=said.append)
    numbers, data = search_thresholds(context, instances=8, worlds=1)
    instances = training_instances(SPEC, 8)
    own = score_thresholds(context, SPEC.heuristic, instances, worlds=[0]).mean()
    rules = SPEC.with_settings(**json.loads(data)).heuristic
    best = score_thresholds(context, rules, instances, worlds=[0]).mean()
    assert numbers["value"] == pytest.approx(best)
    assert numbers["value of the own thresholds"] == pytest.approx(own)
    assert best > own
    assert len(said) == 3


@pytest.mark.slow
def test_the_command_writes_thresholds_which_a_run_and_an_evaluation_take(
    tmp_path, capsys, monkeypatch
):
    make_quick(monkeypatch, 3, 1, 2, 1)
    file = tmp_path / "rules.json"
    words = ["--preset", "whitebox", "--set", "envs=8", "--set", "final_episodes=0"]
    words += ["--set", "episode_length=6"]
    tune = ["tune", *words, "--family", "reactive", "--on", "3", "--out", str(file), "--json"]
    assert main(tune) == 0
    shown = capsys.readouterr()
    assert shown.err.count("candidates on") == 3
    found = json.loads(shown.out)
    assert (found["file"], found["instances"]) == (str(file), 3)
    assert isinstance(found["value"], float)
    settings = json.loads(file.read_text())
    run = tmp_path / "run"
    main(["train", "heuristic", "--config", str(file), *words, "--rounds", "1", "--out", str(run)])
    assert json.loads((run / "config.json").read_text())["heuristic"] == settings["heuristic"]
    evaluation = pytest.importorskip("morphogen.extras.evaluate.evaluation")
    _, contents = evaluation.evaluate(
        run, [f"reactive:{file}"], episodes=4, report=lambda line: None
    )
    both = contents["arms"]
    assert both["trained"]["network_value"] == both[f"reactive:{file}"]["network_value"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected"),
        ("{}", r"expected settings heuristic\.\*, got {}"),
        (
            '{"heuristic": {"patience": 0}}',
            r"heuristic\.patience: expected a number greater than or equal to 1, got 0",
        ),
        ("{", "cannot be used"),
    ],
)
def test_a_file_without_thresholds_is_refused_by_name(tmp_path, text, said):
    file = tmp_path / "rules.json"
    file.write_text(text)
    env = mg.make("whitebox", envs=2)
    with pytest.raises(mg.ConfigError, match=said) as raised:
        mg.build_arm(f"reactive:{file}", env.setup)
    assert str(file) in str(raised.value)
    with pytest.raises(mg.ConfigError, match="cannot be used"):
        mg.build_arm(f"reactive:{tmp_path / 'missing'}", env.setup)
