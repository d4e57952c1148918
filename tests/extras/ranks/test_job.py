"""Variables of a launcher: unset, empty, or nonsense in one line."""

import pytest

from morphogen.errors import ConfigError
from morphogen.extras.ranks.job import local_rank, ranks_of_environment, restarts_of_environment

JOB = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}


def set_variables(monkeypatch, environment):
    for name in JOB:
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)


def test_a_job_names_rank_and_ranks(monkeypatch):
    set_variables(monkeypatch, JOB)
    assert ranks_of_environment() == (1, 2)


@pytest.mark.parametrize(
    "environment", [{}, dict.fromkeys(JOB, ""), {"RANK": "0"}, {"WORLD_SIZE": " 1 "}]
)
def test_outside_of_a_job_there_is_one_rank(monkeypatch, environment):
    set_variables(monkeypatch, environment)
    assert ranks_of_environment() == (0, 1)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"RANK": ""}, "RANK: expected an integer in 0 .. 1, got nothing"),
        ({"RANK": "2"}, 'RANK: expected an integer in 0 .. 1, got "2"'),
        ({"RANK": "-1"}, 'RANK: expected an integer in 0 .. 1, got "-1"'),
        (
            {"RANK": "1", "WORLD_SIZE": ""},
            'RANK: expected an integer in 0 .. 0, got "1"',
        ),
        ({"WORLD_SIZE": "9" * 5000}, None),
        (
            {"MASTER_PORT": "http"},
            'MASTER_PORT: expected an integer in 0 .. 65535, got "http"',
        ),
        (
            {"MASTER_ADDR": ""},
            "MASTER_ADDR: expected the address of rank 0, got nothing",
        ),
    ],
)
def test_a_job_with_a_broken_variable_is_refused_in_one_line(monkeypatch, changes, line):
    set_variables(monkeypatch, {**JOB, **changes})
    with pytest.raises(ConfigError) as refused:
        ranks_of_environment()
    assert "\n" not in str(refused.value)
    assert line in (None, str(refused.value))


@pytest.mark.parametrize(
    "name", ["TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "LOCAL_RANK"]
)
def test_other_variables_of_a_launcher_may_be_empty_and_not_nonsense(monkeypatch, name):
    read = local_rank if name == "LOCAL_RANK" else restarts_of_environment
    monkeypatch.setenv(name, "")
    assert read() in (0, (0, 0))
    monkeypatch.setenv(name, "x")
    with pytest.raises(
        ConfigError, match=f'^{name}: expected an integer in 0 .. 999999999, got "x"$'
    ):
        read()
