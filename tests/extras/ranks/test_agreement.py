"""Actions of ranks: an error of one of them is raised on all of them, in one form."""

import pytest

from morphogen.errors import CheckpointError, ConfigError, DataError, DeviceError, RankError
from morphogen.extras.ranks.agreement import is_common
from tests.extras.ranks.thread_ranks import run_ranks


def fail(kind, text):
    raise kind(text)


def outcomes(ranks, failing, kind=ConfigError, text="envs: expected more"):
    """The text of the error of every rank, or the result."""

    def act(exchange):
        action = (lambda: fail(kind, text)) if exchange.rank in failing else lambda: exchange.rank
        return exchange.together(action)

    found = run_ranks(ranks, act)
    errors = [one for one in found if isinstance(one, Exception)]
    assert all(map(is_common, errors))
    return [(type(one), str(one)) for one in errors] or found


def test_without_errors_every_rank_has_its_own_result():
    assert outcomes(3, []) == [0, 1, 2]


@pytest.mark.parametrize("kind", [ConfigError, DeviceError, DataError, CheckpointError])
def test_an_error_of_some_ranks_is_raised_on_all_and_names_them(kind):
    assert outcomes(4, [1, 3], kind) == [(kind, "ranks 1, 3: envs: expected more")] * 4


def test_an_error_that_all_ranks_have_names_none_of_them():
    assert outcomes(3, [0, 1, 2]) == [(ConfigError, "envs: expected more")] * 3


def test_rank_0_acts_for_all_and_is_not_named():
    acted: list[int] = []
    found = run_ranks(
        3, lambda exchange: exchange.on_first(lambda: acted.append(exchange.rank) or {"name": "a"})
    )
    assert (acted, found) == ([0], [{"name": "a"}] * 3)
    found = run_ranks(3, lambda exchange: exchange.on_first(lambda: fail(DataError, "no data")))
    assert [(type(one), str(one)) for one in found] == [(DataError, "no data")] * 3


def test_ranks_that_differ_are_named_with_both_values():
    rows = [
        {"torch": "2.13", "numpy": "2"},
        {"torch": "2.12", "numpy": "2"},
        {"torch": "2.12", "numpy": "1"},
    ]
    for kind in (ConfigError, RankError):
        found = run_ranks(
            3, lambda exchange, kind=kind: exchange.check_equal(rows[exchange.rank], kind)
        )
        assert [type(one) for one in found] == [kind] * 3
        assert str(found[0]).splitlines() == [
            "torch: expected 2.13 as on rank 0, got 2.12 on ranks 1, 2",
            "numpy: expected 2 as on rank 0, got 1 on rank 2",
        ]
    assert run_ranks(3, lambda exchange: exchange.check_equal(rows[0])) == [None] * 3
