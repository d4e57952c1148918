"""The tuner: it finds a winner that is known, does not take luck for value, and writes what a run
takes.
"""

import json

import numpy as np
import pytest
from support.small_runs import QUICK, tiny

from morphogen.config.spec import build_limits
from morphogen.errors import ConfigError
from morphogen.extras.schedules.schedule_control import load_policy
from morphogen.extras.search.candidates import GrowthStep, build_schedule
from morphogen.extras.search.successive_halving import (
    choose_portfolio,
    cross_world_value,
    halve_candidates,
    read_portfolio,
    search_schedules,
)
from morphogen.vocab.action import Style
from morphogen.vocab.blueprint import Blueprint

SPEC = tiny(episode_length=12, lifecycle=QUICK)
# no member of the family: between two of its starts
WINNER = (GrowthStep(3, "r0c1", Blueprint.DEPTHWISE),)


def value_of(candidate, kind):
    """Half of the instances want the winner, the others want nothing."""
    if kind or not candidate:
        return 0.4 + 0.3 * (kind and not candidate)
    first = candidate[0]
    near = [
        first.slot == "r0c1",
        first.blueprint is Blueprint.DEPTHWISE,
        first.style is Style.SIGMOID_ADD,
    ]
    return 0.5 + 0.1 * sum(near) - 0.02 * abs(first.epoch - 3) - 0.1 * (len(candidate) - 1)


def made_up(noise=0.0):
    """Network values of candidates [K, W, n], with other noise in every world."""
    draw = np.random.default_rng(3)

    def play(candidates, count):
        rows = [[value_of(candidate, i % 2) for i in range(count)] for candidate in candidates]
        values = np.array([[row] * 2 for row in rows], dtype=float)
        return values + noise * draw.standard_normal(values.shape)

    return play


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_winner_is_found_beyond_the_family_and_the_portfolio_covers_all_kinds(noise):
    said = []
    found = halve_candidates(SPEC, made_up(noise), instances=48, report=said.append)
    assert found.best == WINNER
    [rows] = found.tables.values()
    assert {"never grow", WINNER[0].label} <= {row["schedule"] for row in rows}
    values = [
        found.numbers[f"value{more}"] for more in ("", " without growing", " of the portfolio")
    ]
    assert values == pytest.approx([0.6, 0.55, 0.75], abs=0.01)
    assert len(said) == 3
    if not noise:
        assert len(rows) == 2


def test_more_instances_are_played_by_fewer_schedules():
    asked = []

    def play(candidates, count):
        asked.append((len(candidates), count, len(set(candidates))))
        return made_up()(candidates, count)

    found = halve_candidates(SPEC, play, instances=48, report=lambda line: None)
    assert [count for _, count, _ in asked] == [4, 16, 48]
    assert asked[0][0] > asked[1][0] > asked[2][0]
    assert all(played == distinct for played, _, distinct in asked)
    assert found.numbers["schedules"] >= asked[0][0]


def test_a_pick_by_luck_has_no_value():
    values = np.random.default_rng(0).standard_normal((20, 2, 4_000))
    assert values.mean(axis=1).max(axis=0).mean() > 1
    assert cross_world_value(values) == pytest.approx(0, abs=0.05)


def test_a_pick_for_a_reason_has_all_of_its_value():
    values = np.zeros((2, 2, 10))
    values[0, :, :5], values[1, :, 5:] = 1.0, 0.5
    assert cross_world_value(values) == 0.75


def test_a_portfolio_takes_the_best_first_then_what_it_lacks_and_ends_where_nothing_is_gained():
    values = np.zeros((4, 2, 12))
    values[0], values[1, :, :4], values[2, :, 4:6], values[3, :, :2] = 0.5, 0.9, 1.0, 0.6
    chosen, portfolio_values = choose_portfolio(values, 4)
    assert chosen == [0, 1, 2]
    assert portfolio_values == pytest.approx(
        (0.5, 0.5 + 0.4 * 4 / 12, 0.5 + 0.4 * 4 / 12 + 0.5 * 2 / 12)
    )
    assert choose_portfolio(values, 2)[0] == [0, 1]


def test_files_are_what_a_run_and_an_oracle_take(tmp_path):
    found = halve_candidates(SPEC, made_up(), instances=12, report=lambda line: None)
    best = tmp_path / "new" / "best.json"
    portfolio = tmp_path / "new" / "best.portfolio.json"
    found.write([best, portfolio])
    assert load_policy(str(best), SPEC, build_limits(SPEC)).schedule == build_schedule(WINNER, SPEC)
    contents = json.loads(portfolio.read_text())
    assert (contents["instances"], contents["worlds"], contents["task"]) == (12, 2, "digits")
    [rows] = found.tables.values()
    names = [schedule.name for schedule in read_portfolio(portfolio, SPEC)]
    assert names == [row["schedule"] for row in rows]
    assert "depthwise in r0c1 from epoch 3" in str(found.numbers["best"])


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
        (
            '{"version": 1, "schedules": [{"version": 1, "name": "x", "steps": '
            '[{"epoch": 0, "env": 0, "op": "WAIT"}]}]}',
            r"schedules\[0\]: expected steps for every env, got a step that names an env",
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
        search_schedules(
            tiny(episode_length=12, disabled_ops=("FOSSILIZE",)),
            instances=2,
            worlds=2,
            report=print,
        )
