"""Results over several evaluated runs: differences, gap, curves, table, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support import made_up_evaluations
from support.extras import needs_extra

from bench.harness.harvest import load_seed_runs
from bench.studies import learning
from morphogen.analysis.run_log import events
from morphogen.evaluation.bootstrap import interval, iqm

ROUNDS_S = 12.5 + 2.5  # of a round of the made-up runs: its rollout, its update


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return made_up_evaluations.several(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def place(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "new"
    learning.main([*map(str, runs[::-1]), "--json", str(folder / "found.json"), "--picture", str(folder / "found.svg")])
    return folder


@pytest.fixture(scope="module")
def found(place):
    return json.loads((place / "found.json").read_text())


def refused(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        learning.main([str(word) for word in words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_difference_to_every_rival_is_found_over_instances_and_over_seeds(found):
    gains = {"wait": 0.16, "random": 0.26, "tuned": 0.11, "oracle": -0.04, "static": 0.06, "static-cost": 0.08}
    assert {name: round(one["difference"]["value"], 6) for name, one in found["rivals"].items()} == gains
    for name, one in found["rivals"].items():
        assert one["above_zero"] == (name != "oracle")
        assert one["improvement"]["value"] == (name != "oracle")
        assert one["difference"]["low"] == pytest.approx(one["difference"]["high"]), "all instances differ alike"
        assert one["over_seeds"]["high"] - one["over_seeds"]["low"] == pytest.approx(2 * 4.303 * 0.02 / 3**0.5)


def test_a_rival_is_beaten_only_where_training_seeds_agree():
    theirs = np.zeros((1, 40))
    luck = np.array([[0.3], [-0.1], [0.1]]) + np.zeros((3, 40))
    assert learning.compare_to_arm(luck, theirs)["difference"]["low"] > 0
    assert not learning.compare_to_arm(luck, theirs)["above_zero"]
    assert learning.compare_to_arm(luck[:1], theirs)["above_zero"]


def test_runs_that_do_alike_tell_no_more_than_one():
    dice = np.random.default_rng(1)
    one, base = dice.normal(0.2, 1.0, size=(1, 60)), np.zeros((1, 60))
    thrice = np.repeat(one, 3, axis=0)
    for name in ("difference", "improvement"):
        alone, together = (learning.compare_to_arm(rows, base)[name] for rows in (one, thrice))
        assert together == pytest.approx(alone)
    assert learning.pooled_iqm(thrice) == pytest.approx(iqm(one, seed=learning.SEED))


def test_the_share_of_the_gap_is_that_of_the_means(found):
    assert found["gap_closed"] == pytest.approx({"value": 0.8, "low": 0.8, "high": 0.8})
    assert [round(one["gap_closed"]["value"], 6) for one in found["seeds"]] == [0.7, 0.8, 0.9]
    assert [round(one["difference"]["tuned"]["value"], 6) for one in found["seeds"]] == [0.09, 0.11, 0.13]


def test_the_interval_of_the_gap_holds_both_uncertainties_at_once():
    dice = np.random.default_rng(2)
    wait = dice.normal(size=(1, 200))
    way = dice.uniform(0.0, 0.4, size=(1, 200))
    values = {"wait": wait, "oracle": wait + way, "trained": wait + 0.5 * way}
    assert learning.gap_closed(values) == pytest.approx({"value": 0.5, "low": 0.5, "high": 0.5})
    noisy = learning.gap_closed({**values, "trained": values["trained"] + dice.normal(0, 0.1, size=(1, 200))})
    assert noisy is not None
    assert noisy["low"] < 0.5 < noisy["high"]


def test_the_gap_begins_at_the_best_arm_that_does_not_know_the_regimes():
    base = np.zeros((1, 8))
    values = {"planted": base, "open": base + 0.2, "reactive": base + 0.1, "clairvoyant": base + 0.6}
    values |= {"wait": base - 9, "oracle": base + 9, "trained": base + 0.3}
    assert learning.gap_ends(values) == ("open", "clairvoyant")
    assert learning.gap_closed(values) == pytest.approx({"value": 0.25, "low": 0.25, "high": 0.25})
    assert learning.gap_ends({"open": base, "clairvoyant": base}) is None


def test_without_a_way_there_is_no_share_of_it():
    wait = np.zeros((1, 8))
    assert learning.gap_closed({"wait": wait, "trained": wait + 1}) is None
    assert learning.gap_closed({"wait": wait, "trained": wait + 1, "oracle": wait - 1}) is None


def test_everything_can_be_computed_again_from_the_file(found):
    rows = {name: np.array(one["network_value"]) for name, one in found["arms"].items()}
    assert {name: len(one) for name, one in rows.items()} == {
        **{"trained": 3, "static": 3, "static-cost": 3},
        **{"wait": 1, "random": 1, "tuned": 1, "oracle": 1},
    }
    assert found["arms"]["tuned"]["mean"] == interval(rows["tuned"], seed=learning.SEED)._asdict()
    assert learning.compare_to_arm(rows["trained"], rows["static"]) == found["rivals"]["static"]
    assert learning.gap_closed(rows) == found["gap_closed"]
    assert found["arms"]["wait"]["params"] == made_up_evaluations.PARAMS


def test_commands_and_settings_say_how_it_was_made(found, runs):
    assert [one["seed"] for one in found["runs"]] == [1, 2, 3], "in whatever order they are named"
    made, played = found["runs"][1]["commands"]
    assert made == "morphogen train --seed 2 --out seed-2"
    assert played.startswith(f"morphogen evaluate {runs[1]} --greedy --episodes 12 --seed 1234 --arms static,")
    assert found["runs"][0]["seconds"] == ROUNDS_S * made_up_evaluations.ROUNDS
    assert found["settings"]["evaluation_seed"] == 1234
    assert found["settings"]["episodes"] == made_up_evaluations.EPISODES


@pytest.mark.parametrize(
    ("task", "name"),
    [("digits", "network value"), pytest.param("digits_regimes", "anytime value", marks=needs_extra("regimes"))],
)
def test_the_table_names_the_value_of_its_task(found, task, name):
    head = learning.markdown({**found, "settings": {**found["settings"], "task": task}}).splitlines()[2]
    assert head.startswith(f"| arm | {name} (95 % interval) | trained minus arm |")


def test_curves_are_the_plays_on_held_out_instances_while_a_run_learns(found, runs):
    told = found["curves"]
    assert [one["seed"] for one in told["seeds"]] == [1, 2, 3]
    for one, path in zip(told["seeds"], runs, strict=True):
        plays = [event.data for event in events(path, kinds={"HeldOutPlayed"}) if event.data.policy == "ppo"]
        assert told["rounds"] == [play.rounds for play in plays]
        assert one["value"] == pytest.approx([np.mean(play.network_value) for play in plays])
        assert told["instances"] == len(plays[0].network_value)
    assert len(told["mean"]) == made_up_evaluations.ROUNDS + 1
    assert set(told["rivals"]) == {"wait", "heuristic"}


def test_runs_that_played_nothing_while_they_learned_have_no_curve(runs):
    quiet = [replace(run, plays=[]) for run in load_seed_runs(runs)]
    assert learning.learning_curves(quiet) is None
    assert b"no data" in learning.draw_curves({"curves": None})


def test_the_picture_has_a_curve_per_seed_and_is_the_same_again(place, found):
    drawn = (place / "found.svg").read_bytes()
    assert drawn == learning.draw_curves(found)
    for name in ("seed 1", "seed 2", "seed 3", "mean over seeds", "wait", "heuristic"):
        assert f">{name}<" in drawn.decode()


def test_arms_are_added_that_played_beside_another_run(runs, tmp_path):
    """The same as if they had played beside a run of the file; another number of rounds does not matter to them."""
    once, later, picture = tmp_path / "once.json", tmp_path / "later.json", tmp_path / "a.svg"
    more = {"wait": 0.0, "clairvoyant": 0.3}
    other = made_up_evaluations.run(tmp_path / "other", 9, made_up_evaluations.evaluation(0.5, more))
    made_up_evaluations.change(other / "config.json", rounds=8)
    learning.main([*map(str, runs), "--json", str(later), "--picture", str(picture)])
    drawn = picture.read_bytes()
    learning.main([str(other), "--json", str(later), "--picture", str(picture), "--add"])
    beside = {"static": 0.1, "static-cost": 0.08, "clairvoyant": 0.3}
    last = made_up_evaluations.run(tmp_path / "last", 3, made_up_evaluations.evaluation(0.18, beside))
    learning.main([*map(str, (*runs[:2], last)), "--json", str(once), "--picture", str(picture)])
    first, second = (json.loads(file.read_text()) for file in (once, later))
    for name in ("arms", "rivals", "seeds", "gap_closed"):
        assert first[name] == second[name]
    assert second["arms"]["clairvoyant"]["mean"]["value"] == pytest.approx(np.mean(made_up_evaluations.HARD) + 0.3)
    assert [command.endswith("--arms wait,clairvoyant") for command in second["added"]] == [True]
    assert picture.read_bytes() == drawn


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"wait": 0.1, "clairvoyant": 0.3}, "wait is not the same as in the results"),
        ({"clairvoyant": 0.3}, "has no arm of the results"),
        ({"static": 0.1}, "has no arm of the results"),
    ],
)
def test_arms_of_other_instances_are_not_added(runs, tmp_path, capsys, arms, words):
    file, other = (
        tmp_path / "a.json",
        made_up_evaluations.run(tmp_path / "other", 9, made_up_evaluations.evaluation(0.5, arms)),
    )
    learning.main([*map(str, runs), "--json", str(file), "--picture", str(tmp_path / "a.svg")])
    before = file.read_text()
    assert words in refused(capsys, other, "--json", file, "--add")
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", ""), ("[]", "expected an object"), ('{"settings": {}, "runs": []}', "it lacks base, added, arms")],
)
def test_nothing_is_added_to_what_are_no_results(runs, tmp_path, capsys, content, words):
    file = tmp_path / "a.json"
    file.write_text(content)
    said = refused(capsys, runs[0], "--json", file, "--add")
    assert f"{file} cannot be added to: {words}" in said
    assert file.read_text() == content


def test_arms_of_hosts_that_live_by_other_rules_are_not_added(runs, tmp_path, capsys):
    """Although `wait`, which knows nothing of seeds, is the same."""
    file, told = tmp_path / "a.json", made_up_evaluations.evaluation(0.5, {"wait": 0.0, "clairvoyant": 0.3})
    other = made_up_evaluations.run(tmp_path / "other", 9, told)
    made_up_evaluations.change(other / "config.json", max_seeds=1, rounds=8)
    learning.main([*map(str, runs), "--json", str(file), "--picture", str(tmp_path / "a.svg")])
    assert "has another max_seeds than the runs of the results" in refused(capsys, other, "--json", file, "--add")


def test_the_table_has_a_row_per_arm(place, found, capsys):
    learning.main(["--table", "--json", str(place / "found.json")])
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert rows.keys() == found["arms"].keys()
    assert "| +0.160 (+0.160 .. +0.160) | +0.110 .. +0.210 |" in rows["wait"]
    assert rows["trained"].endswith("|  |  | 438 | 70.0 |"), "nothing is better than itself"
    assert lines[-1] == "Share of the way from `wait` to `oracle`: 0.800 (0.800 .. 0.800)."


def test_what_was_not_evaluated_is_named(tmp_path, capsys, runs):
    lone = made_up_evaluations.run(tmp_path / "lone", 4, made_up_evaluations.evaluation(0.1))
    (lone / "evaluation.json").unlink()
    assert "lone/evaluation.json is not there" in refused(capsys, runs[0], lone)
    assert "no RUN is given" in refused(capsys)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": 5}, "was evaluated with seed 5"),
        ({"greedy": False}, "was evaluated with greedy false"),
        ({"episodes": 11}, "has no network_value of 11 episodes of trained"),
        ({"arms": {"wait": made_up_evaluations.arm(0.0)}}, "lacks the arm trained"),
        ({"arms": {"trained": made_up_evaluations.arm(0.1)}}, "static played beside 3 of 4 runs"),
        (
            {"arms": made_up_evaluations.evaluation(0.1, {"static": 0, "static-cost": 0, "wait": 0.2})["arms"]},
            "wait is not the same",
        ),
        (
            {"arms": made_up_evaluations.evaluation(0.1, {"static": 0, "static-cost": 0, "static-params": 0})["arms"]},
            "static-params played beside 1 of 4 runs",
        ),
        (
            {"arms": made_up_evaluations.evaluation(0.1, {"schedule:x/a.json": 0, "schedule:y/a.json": 0})["arms"]},
            "several arms of one kind",
        ),
    ],
)
def test_evaluations_that_do_not_fit_together_are_refused(tmp_path, capsys, runs, fields, words):
    other = made_up_evaluations.run(tmp_path / "other", 4, {**made_up_evaluations.evaluation(0.1), **fields})
    assert words in refused(capsys, *runs, other, "--json", tmp_path / "a.json", "--picture", tmp_path / "a.svg")
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        ("config.json", {"seed": 2}, "has seed 2, as another run"),
        ("config.json", {"rounds": 8}, "was configured differently"),
        ("manifest.json", {"status": "stopped"}, "want a completed run"),
    ],
)
def test_runs_that_do_not_fit_together_are_refused(tmp_path, capsys, runs, file, fields, words):
    other = made_up_evaluations.run(tmp_path / "other", 4, made_up_evaluations.evaluation(0.1))
    made_up_evaluations.change(other / file, **fields)
    assert words in refused(capsys, *runs, other)
