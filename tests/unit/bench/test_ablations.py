"""Worth of changed settings, on made-up runs: grouping, verdicts, refusals."""

import json

import numpy as np
import pytest
from support import made_up_evaluations

from bench.harness.harvest import preset_settings
from bench.studies import ablations
from morphogen.config.fields import merge_settings, to_settings

FLAT = {"ppo": {"price_warmup_rounds": 3}}


def changed(folder, gain, *, seed=1, others=(), **fields):
    """A run with other settings, fields of its config; others: arms that played beside it."""
    run = made_up_evaluations.run(folder, seed, made_up_evaluations.evaluation(gain, others))
    kept = json.loads((run / "config.json").read_text())
    merged = {name: {**kept[name], **value} if isinstance(value, dict) else value for name, value in fields.items()}
    made_up_evaluations.change(run / "config.json", **merged)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    near = {"reward": {"rule": "loss"}, "max_seeds": 2}
    others = [
        changed(folder / f"{name}-{seed}", gain + 0.01 * seed, seed=seed, **fields)
        for name, gain, fields in (("worse", 0.0, FLAT), ("near", 0.135, near))
        for seed in (1, 2)
    ]
    return [*made_up_evaluations.several(folder), *others, changed(folder / "twin", 0.3, **FLAT)]


@pytest.fixture(scope="module")
def found(runs, tmp_path_factory):
    file = tmp_path_factory.mktemp("written") / "new" / "found.json"
    ablations.main([*map(str, runs[:7]), "--json", str(file)])
    return json.loads(file.read_text())


def refused(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        ablations.main([str(word) for word in words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_changes_are_named_by_the_settings_that_differ(found):
    first, second = (one["settings"] for one in found["changes"])
    assert first == {"ppo.price_warmup_rounds": [0, 3]}
    assert second.keys() == {"reward.rule", "max_seeds"}
    assert second["max_seeds"][1] == 2
    assert [one["seed"] for one in found["unchanged"]["runs"]] == [1, 2, 3]


def test_what_is_played_beside_the_learning_is_no_change(runs, tmp_path):
    quiet = changed(tmp_path / "quiet", 0.0, evaluation={"every_rounds": 0}, final_episodes=0, seed=4)
    both = changed(tmp_path / "both", 0.0, evaluation={"every_rounds": 0}, seed=4, **FLAT)
    ablations.main([*map(str, (*runs[:4], quiet, both)), "--json", str(tmp_path / "a.json")])
    found = json.loads((tmp_path / "a.json").read_text())
    assert [one["seed"] for one in found["unchanged"]["runs"]] == [1, 2, 3, 4]
    assert [one["settings"] for one in found["changes"]] == [{"ppo.price_warmup_rounds": [0, 3]}]


def test_a_change_is_held_against_the_mean_of_the_unchanged_runs(found):
    assert found["unchanged"]["means"] == pytest.approx(
        [np.mean(made_up_evaluations.HARD) + gain for gain in (0.14, 0.16, 0.18)]
    )
    differences = [one["difference"]["value"] for one in found["changes"]]
    assert differences == pytest.approx([-0.145, -0.01])
    for one in found["changes"]:
        assert one["over_seeds"]["value"] == pytest.approx(one["difference"]["value"])


def test_a_verdict_needs_more_than_the_scatter_of_the_seeds(found):
    assert [one["verdict"] for one in found["changes"]] == ["worse", "no verdict"]
    assert found["changes"][1]["difference"]["high"] < 0, "over instances alone it would be decided"


def test_over_seeds_is_the_interval_of_welch():
    """By hand: 4 and 2.9 degrees of freedom, of which 2 count; published quantiles 2.776 and 4.303."""
    base, alike, wild = ([[0.1], [0.2], [0.3]], [[0.5], [0.6], [0.7]], [[0.5], [0.7], [0.9]])
    for rest, middle, room in ((alike, 0.4, 0.22670), (wild, 0.5, 0.55548)):
        ends = ablations.over_seeds(np.array(rest) + np.zeros((3, 8)), np.array(base) + np.zeros((3, 8)))
        assert ends.value == pytest.approx(middle)
        assert (ends.high - ends.value, ends.value - ends.low) == pytest.approx((room, room), rel=1e-3)


def test_runs_that_do_not_scatter_leave_the_scatter_of_the_others():
    rows = np.array([[0.1], [0.2], [0.3]]) + np.zeros((3, 8))
    still = np.full((3, 8), 0.9)
    ends = ablations.over_seeds(still, rows)
    assert ends.high - ends.value == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert ablations.over_seeds(still, still - 0.5) == pytest.approx((0.5, 0.5, 0.5))


def test_the_table_has_a_row_per_change(runs, tmp_path, capsys):
    ablations.main([*map(str, runs[:7]), "--json", str(tmp_path / "a.json"), "--table"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [
        "nothing",
        "`ppo.price_warmup_rounds=3`",
        '`max_seeds=2, reward.rule="loss"`',
    ]
    assert "| -0.145 (-0.145 .. -0.145) |" in rows[1]


def test_arms_that_a_change_matters_for_may_differ(runs, tmp_path):
    file, arms = tmp_path / "a.json", {"wait": 0.0, "random": -0.1}
    alike = [changed(tmp_path / f"alike-{seed}", 0.1, seed=seed, others=arms) for seed in (1, 2)]
    other = [
        changed(tmp_path / f"other-{seed}", 0.1, seed=seed, others={**arms, "random": -0.3}, max_seeds=2)
        for seed in (1, 2)
    ]
    ablations.main([*map(str, (*alike, *other)), "--json", str(file)])
    assert json.loads(file.read_text())["arms"] == {"wait": pytest.approx(made_up_evaluations.HARD)}


def test_what_cannot_be_judged_is_refused_and_nothing_is_written(runs, tmp_path, capsys):
    base, worse, twin = runs[:3], runs[3:5], runs[7]
    file = ("--json", tmp_path / "a.json")
    assert "no RUN is given" in refused(capsys)
    alone = refused(capsys, base[0], worse[0], *file)
    assert "nothing: 1 run; want at least 2 with different seeds" in alone
    assert "`ppo.price_warmup_rounds=3`: 1 run; want at least 2 with different seeds" in alone
    assert "all 3 runs have the same settings" in refused(capsys, *base, *file)
    assert "`ppo.price_warmup_rounds=3`: 2 runs have seed 1; want each seed once" in refused(
        capsys, *base, *worse, twin, *file
    )
    other = made_up_evaluations.run(tmp_path / "other", 9, made_up_evaluations.evaluation(0.1, seed=5))
    assert "was evaluated with seed 5" in refused(capsys, *base, other, *file)
    assert not (tmp_path / "a.json").exists()


def preset_runs(folder, seeds, gain, *, others=(("wait", 0.0),), **fields):
    """Runs with all settings of the preset `digits`, but for these fields."""
    plain = merge_settings(to_settings(preset_settings("digits")), fields)
    del plain["seed"]
    return [changed(folder / f"{gain}-{seed}", gain, seed=seed, others=others, **plain) for seed in seeds]


def test_runs_that_are_added_give_what_all_give_at_once(tmp_path):
    base, flat = preset_runs(tmp_path, (1, 2), 0.2), preset_runs(tmp_path, (1, 2, 3), 0.1, **FLAT)
    small = preset_runs(tmp_path, (1, 2), 0.15, max_seeds=1)
    once, later = tmp_path / "once.json", tmp_path / "later.json"
    ablations.main([*map(str, (*base, *flat, *small)), "--json", str(once)])
    ablations.main([*map(str, (*base, *flat[:2])), "--json", str(later)])
    ablations.main([*map(str, (flat[2], *small)), "--json", str(later), "--add"])
    first, second = (json.loads(file.read_text()) for file in (once, later))
    assert [len(one["runs"]) for one in second["changes"]] == [3, 2]
    assert {**first, "machine": {}} == {**second, "machine": {}}


def test_runs_of_other_instances_are_not_added(runs, tmp_path, capsys):
    file = tmp_path / "a.json"
    asked = ("--json", file, "--add")
    base = preset_runs(tmp_path, (1, 2), 0.2)
    assert f"{file} cannot be added to" in refused(capsys, *base, *asked)
    ablations.main([*map(str, (*base, *preset_runs(tmp_path, (1, 2), 0.1, **FLAT))), "--json", str(file)])
    before = file.read_text()
    assert f"has envs 16, {file} 64; want equal ones" in refused(
        capsys, *preset_runs(tmp_path, (3,), 0.3, envs=16), *asked
    )
    assert "`ppo.price_warmup_rounds=3`: 2 runs have seed 1" in refused(
        capsys, *preset_runs(tmp_path, (1,), 0.4, **FLAT), *asked
    )
    (lone,) = preset_runs(tmp_path, (3,), 0.6, others=(), **FLAT)
    assert f"{lone} has no arm of the results, such as wait" in refused(capsys, lone, *asked)
    elsewhere = preset_runs(tmp_path, (3,), 0.5, others={"wait": 0.001}, **FLAT)
    assert "wait is not the same as in the results; want one seed, number of envs and kind of processor" in refused(
        capsys, *elsewhere, *asked
    )
    assert file.read_text() == before


def test_nothing_is_added_where_the_unchanged_runs_are_not_those_of_their_preset(runs, tmp_path, capsys):
    file = tmp_path / "a.json"
    ablations.main([*map(str, runs[:7]), "--json", str(file)])
    assert "the unchanged runs of the results have another rounds than their preset" in refused(
        capsys, runs[3], "--json", file, "--add"
    )
