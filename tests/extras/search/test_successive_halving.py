"""The tuner: it finds a winner that is known, does not take luck for worth, and writes what a run takes."""

import json

import numpy as np
import pytest
from support.small_runs import tiny

from morphogen.cli import main
from morphogen.config.groups import LifecycleSpec
from morphogen.engine.action_control import load_schedule
from morphogen.errors import ConfigError
from morphogen.evaluation.schedule_search import GrowthStep, build_schedule
from morphogen.evaluation.successive_halving import (
    choose_portfolio,
    cross_world_value,
    halve_candidates,
    portfolio_table,
    read_portfolio,
    search_schedules,
    summary_lines,
    write_schedules,
)
from morphogen.vocab.action import Style
from morphogen.vocab.blueprint import Blueprint

QUICK = LifecycleSpec(min_training_epochs=1, min_prune_age=1, embargo_epochs=1, auto_forward=("TRAIN", "BLEND", "HOLD"))
SPEC = tiny(episode_length=12, lifecycle=QUICK)
WINNER = (GrowthStep(3, "r0c1", Blueprint.DEPTHWISE),)  # no member of the family: between two of its starts
SETTINGS = [
    "--preset=smoke",
    "--set=episode_length=5",
    "--set=data.minibatches=1",
    "--final-episodes=0",
    '--set=blueprints=["norm"]',
    "--set=lifecycle.min_training_epochs=1",
    '--set=lifecycle.auto_forward=["TRAIN", "BLEND", "HOLD"]',
    "--slots=r0c0",
]


def worth(line, kind):
    """Half of the instances want the winner, the others want nothing."""
    if kind or not line:
        return 0.4 + 0.3 * (kind and not line)
    near = [line[0].slot == "r0c1", line[0].blueprint is Blueprint.DEPTHWISE, line[0].style is Style.SIGMOID_ADD]
    return 0.5 + 0.1 * sum(near) - 0.02 * abs(line[0].epoch - 3) - 0.1 * (len(line) - 1)


def made_up(noise=0.0):
    """Network values of lines [K, W, n], with noise that is another one in every world."""
    draw = np.random.default_rng(3)

    def play(lines, count):
        values = np.array([[[worth(line, i % 2) for i in range(count)]] * 2 for line in lines], dtype=float)
        return values + noise * draw.standard_normal(values.shape)

    return play


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_winner_is_found_beyond_the_family_and_the_portfolio_covers_all_kinds(noise):
    said = []
    found = halve_candidates(SPEC, made_up(noise), instances=48, report=said.append)
    assert found.best == WINNER
    assert {(), WINNER} <= set(found.portfolio)
    assert found.best_mean == pytest.approx(0.6, abs=0.01)
    assert found.idle_mean == pytest.approx(0.55, abs=0.01)
    assert found.portfolio_values[-1] == pytest.approx(0.75, abs=0.01)
    assert len(said) == 3
    if not noise:
        assert len(found.portfolio) == 2


def test_more_instances_are_played_by_fewer_schedules():
    asked = []

    def play(lines, count):
        asked.append((len(lines), count, len(set(lines))))
        return made_up()(lines, count)

    found = halve_candidates(SPEC, play, instances=48, report=lambda line: None)
    assert [count for _, count, _ in asked] == [4, 16, 48]
    assert asked[0][0] > asked[1][0] > asked[2][0]
    assert all(lines == distinct for lines, _, distinct in asked)
    assert found.candidate_count >= asked[0][0]


def test_a_pick_by_luck_is_worth_nothing():
    values = np.random.default_rng(0).standard_normal((20, 2, 4_000))
    assert values.mean(axis=1).max(axis=0).mean() > 1
    assert cross_world_value(values) == pytest.approx(0, abs=0.05)


def test_a_pick_for_a_reason_is_worth_all_of_it():
    values = np.zeros((2, 2, 10))
    values[0, :, :5], values[1, :, 5:] = 1.0, 0.5
    assert cross_world_value(values) == 0.75


def test_a_cover_takes_the_best_first_then_what_it_lacks_and_ends_where_nothing_is_gained():
    values = np.zeros((4, 2, 12))
    values[0], values[1, :, :4], values[2, :, 4:6], values[3, :, :2] = 0.5, 0.9, 1.0, 0.6
    chosen, covers = choose_portfolio(values, 4)
    assert chosen == [0, 1, 2]
    assert covers == pytest.approx((0.5, 0.5 + 0.4 * 4 / 12, 0.5 + 0.4 * 4 / 12 + 0.5 * 2 / 12))
    assert choose_portfolio(values, 2)[0] == [0, 1]


def test_files_are_what_a_run_and_an_oracle_take(tmp_path):
    found = halve_candidates(SPEC, made_up(), instances=12, report=lambda line: None)
    best, portfolio = tmp_path / "new" / "best.json", tmp_path / "new" / "best.portfolio.json"
    write_schedules(found, SPEC, best, portfolio)
    made = load_schedule(f"schedule:{best}", SPEC)
    assert made == build_schedule(WINNER, SPEC)
    assert read_portfolio(portfolio, SPEC) == tuple(build_schedule(line, SPEC) for line in found.portfolio)
    told = json.loads(portfolio.read_text())
    assert (told["instances"], told["worlds"], told["task"]) == (12, 2, "digits")
    assert [row["schedule"] for row in portfolio_table(found)] == [
        "; ".join(growth.label for growth in line) or "nothing" for line in found.portfolio
    ]
    assert "depthwise in r0c1 from epoch 3" in summary_lines(found)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "cannot be used"),
        ("{}", "expected a portfolio of version 1"),
        ('{"version": 2, "schedules": []}', "expected a portfolio of version 1"),
        ('{"version": 1, "schedules": {}}', "expected a portfolio of version 1"),
        (
            '{"version": 1, "schedules": [{"version": 1, "name": "x", "steps": 3}]}',
            r"schedules\[0\]: steps: expected a list, got 3",
        ),
    ],
)
def test_a_portfolio_that_is_none_is_refused_by_name(tmp_path, text, said):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_portfolio(path, SPEC)
    with pytest.raises(ConfigError, match=r"nowhere\.json cannot be used"):
        read_portfolio(tmp_path / "nowhere.json", SPEC)


def test_a_run_in_which_nothing_can_be_kept_is_not_searched():
    with pytest.raises(ConfigError, match="no seed can be germinated and fossilized in 12 epochs"):
        search_schedules(tiny(episode_length=12, disabled_ops=("FOSSILIZE",)), instances=2, worlds=2, report=print)


@pytest.mark.slow
def test_the_command_searches_and_writes_and_a_run_takes_what_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.main(["tune", *SETTINGS, "--out", "best.json", "--on", "3"]) == 0
    shown = capsys.readouterr()
    assert "files: best.json, best.portfolio.json" in shown.out
    assert "mean value" in shown.out
    assert shown.err.count("schedules on") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.json", "best.portfolio.json"]
    words = [*SETTINGS, "--policy", "schedule:best.json", "--rounds=1", "--quiet", "--out=run"]
    assert main.main(["train", "heuristic", *words]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "new.json", "--on", "0"], "--on: expected an integer in 1"),
        (["--out", "new.json", "--worlds", "one"], "--worlds: expected an integer in 2"),
        (["--out", "there.json"], "--out: expected a new file, got there.json, which exists"),
        (["--out", "half.json"], "the portfolio: expected a new file, got half.portfolio.json, which exists"),
        (["--out", "."], "--out: expected a new file, got ., which exists"),
        ([], "the following arguments are required: --out"),
        (["ppo", "--out", "new.json"], "unrecognized arguments: ppo"),
    ],
)
def test_a_search_that_cannot_be_is_refused_and_writes_nothing(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    for name in ("there.json", "half.portfolio.json"):
        (tmp_path / name).write_text("")
    assert main.main(["tune", *words]) == 2
    assert said in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 2
