"""The number of ranks that a run has by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.spec import RunSpec, resolve
from morphogen.extras.ranks import rank_choice
from morphogen.extras.ranks.rank_choice import choose_ranks, default_ranks

COSTS = {"start_s": 5.0, "crowding": 1.1, "memory_mib": 400}
# an epoch costs the same for any number of envs
LAUNCHES = {"epoch_s": 0.04, "env_s": 0.0, "update_s": 0.5, "row_s": 0.0}
ENVS = {"epoch_s": 0.0, "env_s": 0.03, "update_s": 0.0, "row_s": 0.0}
RUN = {"epochs": 16, "rounds": 70, "most": 8}


@given(st.integers(1, 300), st.integers(1, 70))
def test_chosen_ranks_divide_the_envs_and_have_two_or_more_each(envs, most):
    ranks = choose_ranks(COSTS, ENVS, envs=envs, epochs=16, rounds=70, most=most)
    assert 1 <= ranks <= most
    assert envs % ranks == 0
    assert ranks == 1 or envs // ranks >= 2


def test_envs_that_cost_time_are_shared_by_all_cores_and_launches_by_none():
    assert choose_ranks(COSTS, ENVS, envs=64, **RUN) == 8
    assert choose_ranks(COSTS, LAUNCHES, envs=64, **RUN) == 1


def test_a_short_run_does_not_pay_for_the_start_of_ranks():
    short, long = ({**RUN, "rounds": rounds} for rounds in (1, 1_000))
    assert choose_ranks(COSTS, ENVS, envs=4, **short) == 1
    assert choose_ranks(COSTS, ENVS, envs=4, **long) == 2


def test_a_task_without_costs_has_one_rank():
    assert choose_ranks(COSTS, None, envs=64, **RUN) == 1
    assert default_ranks(resolve(RunSpec(preset="tiny")), cores=8, free=None) == 1


@pytest.mark.parametrize(
    "engine",
    [{"threads": 2}, {"compile": "default"}, {"reduce": "allreduce"}, {"devices": ["cuda"]}],
    ids=lambda engine: next(iter(engine)),
)
def test_settings_that_would_change_bits_or_use_the_cores_otherwise_keep_one_rank(engine):
    spec = resolve(RunSpec(preset="digits", rounds=1_000, engine={"devices": ["cpu"]} | engine))
    assert default_ranks(spec, cores=2, free=None) == 1
    usual = resolve(RunSpec(preset="digits", rounds=1_000, engine={"devices": ["cpu"]}))
    assert default_ranks(usual, cores=2, free=None) == 2


def test_ranks_fit_into_the_memory():
    spec = resolve(RunSpec(preset="digits", envs=1_024, rounds=1_000, engine={"devices": ["cpu"]}))
    free = 5 * rank_choice.read_costs()["ranks"]["memory_mib"] * 2**20
    assert default_ranks(spec, cores=16, free=free) == 2  # of half of it


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)]
)
def test_cores_are_those_that_the_process_may_use(limit, cores, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(rank_choice, "CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert rank_choice.count_cores() == cores
