"""Comparisons: pairs of seeds in the same worlds, runs that are made once, verdicts that the
intervals allow.
"""

import json
import shutil

import numpy as np
import pytest
from support.small_runs import tiny

import morphogen as mg
from morphogen.cli import main
from morphogen.extras.compare import series
from morphogen.extras.compare.comparison import NO_VERDICT, compare_pair
from morphogen.log import run_directory
from morphogen.log.run_log import read_rounds
from morphogen.ppo.exchange import ALONE
from morphogen.train.loop import Parts
from morphogen.train.train import train_ppo_vectorized

DICE = np.random.default_rng(2)
SMALL = [
    "--set",
    "preset=smoke",
    "--set",
    "episode_length=3",
    "--rounds",
    "1",
    "--episodes",
    "3",
    "--quiet",
]


def run_compare(*words):
    return main.main(["compare", *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two rules on two seeds."""
    place = tmp_path_factory.mktemp("compared")
    assert (
        run_compare("rule:sparse", "rule:delta", "--seeds", "5,2", *SMALL, "--out", str(place)) == 0
    )
    return place


@pytest.fixture(scope="module")
def found(trained):
    return json.loads((trained / "comparison.json").read_bytes())


@pytest.mark.slow
def test_every_side_is_trained_on_every_seed_as_it_says(trained):
    for rule in ("sparse", "delta"):
        for seed in (5, 2):
            folder, spec, said = run_directory.open_directory(trained / f"rule-{rule}" / str(seed))
            assert (spec.reward.rule, spec.seed, spec.preset, spec.rounds) == (
                rule,
                seed,
                "smoke",
                1,
            )
            assert said["status"] == "completed"
            assert folder.policy.exists()


@pytest.mark.slow
def test_the_file_holds_every_episode_of_every_run_in_pairs(found):
    sides = found["sides"]
    assert (found["seeds"], found["episodes"], list(sides)) == (
        [5, 2],
        3,
        ["rule:sparse", "rule:delta"],
    )
    for side in sides.values():
        assert np.shape(side["network_value"]) == np.shape(side["param_epochs"]) == (2, 3)
        assert side["mean"]["value"] == pytest.approx(np.mean(side["network_value"]))
    (pair,) = found["pairs"]
    ours, theirs = (np.array(side["network_value"]) for side in sides.values())
    assert pair["difference"]["value"] == pytest.approx((ours - theirs).mean())
    assert np.array_equal(*(side["minibatches"] for side in sides.values()))


@pytest.mark.slow
def test_runs_are_compared_in_python_with_the_numbers_of_the_command(trained, found):
    lines = []
    sides = [trained / f"rule-{rule}" for rule in ("sparse", "delta")]
    numbers = mg.compare(*sides, episodes=found["episodes"], report=lines.append)
    assert len(lines) == 4
    assert numbers["pairs"][0]["difference"] == found["pairs"][0]["difference"]
    with pytest.raises(mg.ConfigError, match="compare: expected two or more sides, got 1"):
        mg.compare(sides[0])


@pytest.mark.slow
def test_runs_that_are_there_are_not_made_again(trained, found, tmp_path):
    runs = sorted(trained.glob("rule-*/*/events.jsonl"))
    before = [path.stat().st_mtime_ns for path in runs]
    assert len(runs) == 4
    assert (
        run_compare("rule:sparse", "rule:delta", "--seeds", "5,2", *SMALL, "--out", str(trained))
        == 0
    )
    assert [path.stat().st_mtime_ns for path in runs] == before
    again = json.loads((trained / "comparison.json").read_bytes())
    assert again["pairs"] == found["pairs"]


@pytest.mark.slow
def test_runs_are_compared_wherever_they_lie_and_one_with_its_copy_gets_no_verdict(
    trained, tmp_path, capsys
):
    copy, file = tmp_path / "copy", tmp_path / "numbers.json"
    shutil.copytree(trained / "rule-delta", copy)
    words = [
        str(trained / "rule-delta"),
        str(copy),
        str(trained / "rule-sparse"),
        "--episodes",
        "3",
    ]
    assert run_compare(*words, "--json", str(file)) == 0
    same, other = json.loads(file.read_bytes())["pairs"]
    assert same["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert (same["effect"], same["verdict"]) == (None, NO_VERDICT)
    assert other["second"] == words[2]
    shown = capsys.readouterr().out
    assert f"{words[0]} against {words[1]}: no verdict" in shown
    assert "3 held-out instances for each of 2 pairs of runs" in shown


@pytest.mark.slow
def test_a_run_that_was_stopped_is_gone_on_with(tmp_path):
    spec = tiny(rounds=2, episode_length=3)
    place = tmp_path / "run"
    train_ppo_vectorized(spec, out=place, on_round=lambda *_: False)
    assert run_directory.open_directory(place)[2]["status"] == "stopped"
    series.train_run(place, spec, command="", console=None, parts=Parts(), exchange=ALONE)
    assert run_directory.open_directory(place)[2]["status"] == "completed"
    assert len(read_rounds(place)) == 2


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
    "smok rule:delta": "(did you mean smoke?)",
    "rule:dleta smoke": "(did you mean delta?)",
    "smoke": "compare: expected two or more sides, got 1",
    "smoke smoke --out {new}": 'compare: expected every name once, got "smoke" twice',
    "smoke rule:nothing --out {new}": "side: expected one of sparse, delta",
    "smoke nowhere --out {new}": "side: expected a run directory, a folder of them, a preset",
    "smoke rule:delta": "--out: expected a directory to train smoke in, got nothing",
    "smoke rule:delta --seeds 1,1 --out {new}": '--seeds: expected every name once, got "1" twice',
    "smoke rule:delta --seeds 1,x --out {new}": "--seeds: expected an integer",
    "smoke rule:delta --rounds 0 --out {new}": "--rounds: expected an integer in 1 .. 1000000, "
    "got 0",
    "smoke rule:delta --episodes 0 --out {new}": "--episodes: expected an integer in 1 .. 10000, "
    "got 0",
    "smoke rule:delta --set ppo.clip=7 --out {new}": "ppo.clip: expected a number > 0 and <= 1, "
    "got 7",
    "smoke whitebox --out {new}": "whitebox: expected the task of smoke, got another",
    "{run} smoke --seeds 1,2 --out {new}": "smoke: expected 1 runs, as {run} has, got 2",
    "{run} {other} --seeds 1": "--seeds: expected a preset or rule as a side, got runs only",
    "rule:delta rule:sparse --out {trained} --seeds 5": "--out: expected no run of another configuration, got ",
    "{run} {other} --json {run}/config.json": "which exists",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_compared_is_refused_and_nothing_is_written(
    words, trained, tmp_path, capsys
):
    names = {
        "new": tmp_path / "new",
        "run": trained / "rule-delta" / "5",
        "other": trained / "rule-sparse" / "5",
        "trained": trained,
    }
    assert run_compare(*words.format(**names).split()) == 2
    assert REFUSED[words].format(**names) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
