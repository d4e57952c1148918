"""Comparisons: pairs of seeds in the same worlds, and verdicts that the intervals allow."""

import json
import shutil

import numpy as np
import pytest

import morphogen as mg
from morphogen.cli import main
from morphogen.config.config_files import dump_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.extras.compare.comparison import NO_VERDICT, compare_pair
from morphogen.log import run_directory
from morphogen.train.train import train_ppo_vectorized

DICE = np.random.default_rng(2)
SMALL = {"preset": "smoke", "episode_length": 3, "rounds": 1, "final_episodes": 0}
SMALL["data"] = {"minibatches": 2, "val_samples": 50}


def run_compare(*words):
    return main.main(["compare", *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two rules on two seeds."""
    place = tmp_path_factory.mktemp("compared")
    for rule in ("sparse", "delta"):
        for seed in (5, 2):
            spec = RunSpec(**SMALL, reward={"rule": rule}, seed=seed)
            train_ppo_vectorized(spec, out=place / rule / str(seed))
    return place


@pytest.fixture(scope="module")
def found(trained):
    return mg.compare(trained / "sparse", trained / "delta", episodes=3, report=lambda line: None)


@pytest.mark.slow
def test_every_episode_of_every_run_is_there_in_pairs(trained, found):
    sides = found["sides"]
    assert (found["seeds"], found["episodes"]) == ([2, 5], 3)
    assert list(sides) == [str(trained / "sparse"), str(trained / "delta")]
    for side in sides.values():
        assert np.shape(side["network_value"]) == np.shape(side["param_epochs"]) == (2, 3)
        assert side["mean"]["value"] == pytest.approx(np.mean(side["network_value"]))
    (pair,) = found["pairs"]
    ours, theirs = (np.array(side["network_value"]) for side in sides.values())
    assert pair["difference"]["value"] == pytest.approx((ours - theirs).mean())
    assert np.array_equal(*(side["minibatches"] for side in sides.values()))


@pytest.mark.slow
def test_runs_are_compared_wherever_they_lie_and_one_with_its_copy_gets_no_verdict(
    trained, found, tmp_path, capsys
):
    copy, file = tmp_path / "copy", tmp_path / "numbers.json"
    shutil.copytree(trained / "sparse", copy)
    words = [*map(str, (trained / "sparse", copy, trained / "delta")), "--episodes", "3"]
    assert run_compare(*words, "--json", str(file)) == 0
    same, other = json.loads(file.read_bytes())["pairs"]
    assert same["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert (same["effect"], same["verdict"]) == (None, NO_VERDICT)
    assert other == found["pairs"][0]
    shown = capsys.readouterr().out
    assert f"{words[0]} against {words[1]}: no verdict" in shown
    assert "3 held-out instances for each of 2 pairs of runs" in shown


@pytest.mark.slow
def test_a_clear_difference_gets_a_verdict_for_the_better_side():
    theirs = DICE.normal(size=(3, 64))
    ours = theirs + 1.0 + 0.1 * DICE.normal(size=(3, 64))
    assert compare_pair("a", "b", ours, theirs)["verdict"] == "a is better than b"
    assert compare_pair("b", "a", theirs, ours)["verdict"] == "a is better than b"
    assert compare_pair("a", "b", ours[:1], theirs[:1])["verdict"] == "a is better than b"
    assert compare_pair("a", "b", ours[:1], theirs[:1])["over seeds"] is None


@pytest.mark.slow
def test_a_difference_that_other_seeds_would_turn_gets_none():
    theirs = DICE.normal(size=(3, 64))
    ours = theirs + np.array([[3.0], [-0.5], [0.5]])
    found = compare_pair("a", "b", ours, theirs)
    episodes, seeds = found["difference"], found["over seeds"]
    assert episodes["low"] > 0 > seeds["low"]
    assert found["verdict"] == NO_VERDICT


@pytest.mark.slow
def test_sides_that_are_alike_get_a_verdict_in_one_of_twenty():
    given = [
        compare_pair("a", "b", *DICE.normal(size=(2, 1, 64)))["verdict"] != NO_VERDICT
        for _ in range(200)
    ]
    assert 0.0 < np.mean(given) <= 0.11


REFUSED = {
    "{run}": "compare: expected two or more sides, got 1",
    "{run} {run}": "compare: expected two or more sides, got 1",
    "{run} nowhere": 'side: expected a run directory or a folder of them, got "nowhere"',
    "{run} {other} --episodes 0": "--episodes: expected an integer in 1 .. 10000, got 0",
    "{run} {trained}/delta": "{trained}/delta: expected 1 runs, as {run} has, got 2",
    "{run} {whitebox}": "{whitebox}: expected the task of {run}, got another",
    "{run} {other} --json {run}/config.json": "which exists",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_compared_is_refused(words, trained, tmp_path, capsys):
    names = {
        "run": trained / "delta" / "5",
        "other": trained / "sparse" / "5",
        "trained": trained,
        "whitebox": tmp_path / "whitebox",
    }
    config = dump_config(resolve(RunSpec(preset="whitebox")))
    manifest = {"run_id": "1"}
    with run_directory.create_directory(names["whitebox"], config=config, manifest=manifest):
        pass
    assert run_compare(*words.format(**names).split()) == 2
    assert REFUSED[words].format(**names) in capsys.readouterr().err
