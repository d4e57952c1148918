"""The launcher of commands: the registered one, or the one of one process."""

from types import SimpleNamespace

import pytest

from morphogen.cli import launcher
from morphogen.cli.launcher import Launcher, find_launcher
from morphogen.config.spec import RunSpec, resolve
from morphogen.ppo.exchange import ALONE


@pytest.fixture
def offered(monkeypatch):
    """Entry points of launchers, which a test fills."""
    points: list[SimpleNamespace] = []
    found = SimpleNamespace(entry_points=lambda group: points)
    monkeypatch.setattr(launcher, "metadata", found)
    find_launcher.cache_clear()
    yield points
    find_launcher.cache_clear()


def test_without_an_extra_a_command_runs_in_this_process(offered):
    assert type(find_launcher()) is Launcher
    seen = []
    spec = resolve(RunSpec(preset="smoke"))
    assert (
        find_launcher().launch(spec, "morphogen train", lambda exchange: seen.append(exchange) or 6)
        == 6
    )
    assert seen == [ALONE]


def test_an_extra_offers_its_launcher(offered):
    class Mine(Launcher):
        pass

    offered.append(SimpleNamespace(load=lambda: Mine))
    assert type(find_launcher()) is Mine
