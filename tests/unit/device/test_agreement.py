"""Actions of ranks: an error of one of them is raised on all of them, in one form."""

import pytest
from support.thread_ranks import run_ranks

from morphogen.device.agreement import TEXT_BYTES, run_on_first, run_together
from morphogen.device.collectives import FACT_BYTES, Collectives
from morphogen.errors import CheckpointError, ConfigError, DataError, DeviceError

KINDS = [ConfigError, DeviceError, DataError, CheckpointError]


def fail(kind, text):
    raise kind(text)


def outcomes(ranks, failing, kind=ConfigError, text="envs: expected more", **more):
    """The text of the error of every rank, or the result."""

    def act(group):
        action = (lambda: fail(kind, text)) if group.rank in failing else lambda: group.rank
        return run_together(group, action, **more)

    found = run_ranks(ranks, act)
    return [(type(one), str(one)) if isinstance(one, Exception) else one for one in found]


def test_without_errors_every_rank_has_its_own_result():
    assert outcomes(3, []) == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_some_ranks_is_raised_on_all_and_names_them(kind):
    assert outcomes(3, [1], kind) == [(kind, "rank 1: envs: expected more")] * 3
    assert outcomes(4, [1, 3], kind) == [(kind, "ranks 1, 3: envs: expected more")] * 4


def test_an_error_that_all_ranks_have_names_none_of_them():
    assert outcomes(3, [0, 1, 2]) == [(ConfigError, "envs: expected more")] * 3
    assert outcomes(3, [0], named=False) == [(ConfigError, "envs: expected more")] * 3


def test_an_error_of_all_ranks_is_marked_as_such():
    for failing in ([1], [0, 1]):
        found = run_ranks(2, lambda group, failing=failing: run_together(group, lambda: fail_in(group, failing)))
        assert [getattr(one, "common", False) for one in found] == [True, True]


def fail_in(group, failing):
    if group.rank in failing:
        raise ConfigError("envs: expected more")


def test_an_error_is_described_before_it_leaves_its_rank():
    assert outcomes(2, [1], describe=lambda error: str(error).upper())[0][1] == "rank 1: ENVS: EXPECTED MORE"


@pytest.mark.parametrize("letter", ["x", "ä", "\N{SEEDLING}", "\n", '"'])
def test_an_error_of_any_length_fits_into_a_fact(letter):
    (kind, text), other = outcomes(2, [0], text=letter * 9 * FACT_BYTES)
    assert (kind, text) == other
    assert text.endswith("...")
    assert len(text) < TEXT_BYTES


def test_rank_0_acts_for_all():
    acted: list[int] = []
    found = run_ranks(3, lambda group: run_on_first(group, lambda: acted.append(group.rank) or {"name": "a"}))
    assert (acted, found) == ([0], [{"name": "a"}] * 3)
    found = run_ranks(3, lambda group: run_on_first(group, lambda: fail(DataError, "no data")))
    assert [(type(one), str(one)) for one in found] == [(DataError, "no data")] * 3


def test_one_process_raises_its_own_error():
    cause = ConfigError("x" * 9 * FACT_BYTES)

    def act():
        raise cause

    with pytest.raises(ConfigError) as caught:
        run_together(Collectives(), act)
    assert caught.value is cause
