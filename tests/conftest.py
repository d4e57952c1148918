"""One thread, hypothesis profiles, and where the golden files are."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from morphogen.rules.rewards.table import BUILDERS
from morphogen.vocab.reward import RULES

settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("unshrunk", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("ci")
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder with the golden *.jsonl files",
    )


@pytest.fixture
def open_table():
    """Rules that a test adds to the table of reward rules are gone when it ends."""
    before = dict(RULES), dict(BUILDERS)
    yield
    for table, rows in zip((RULES, BUILDERS), before, strict=True):
        table.clear()
        table.update(rows)
