"""One thread, Hypothesis profiles, the marker `slow`, and the folder of the golden files."""

import gc
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from morphogen.config.part_files import IMPORTED
from morphogen.config.parts import (
    ARMS,
    BLUEPRINTS,
    DATASETS,
    HOSTS,
    LEARNERS,
    LOGGERS,
    NETWORKS,
    POLICIES,
    RULES,
)
from morphogen.config.task import TASKS

REGISTRIES = (
    TASKS,
    DATASETS,
    HOSTS,
    BLUEPRINTS,
    RULES,
    NETWORKS,
    LEARNERS,
    POLICIES,
    ARMS,
    LOGGERS,
)

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "unshrunk", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("ci")
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder with the golden *.jsonl files",
    )


def pytest_collection_modifyitems(items):
    """Mark whole runs and the check of the mutants as slow."""
    here = Path(__file__).parent
    for item in items:
        if here / "e2e" in item.path.parents or item.path == here / "meta" / "test_mutate.py":
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Leave out of the garbage collection all that the imports made: a tenth of the time of all
    tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def unsynced_files():
    """Leave files in the cache of the system: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@contextmanager
def closed_registries():
    """Remove the parts that were registered or imported in the block."""
    imported, path = list(IMPORTED), list(sys.path)
    before = [(registry, registry.registered()) for registry in REGISTRIES]
    yield
    for registry, parts in before:
        registry._registered = parts
    IMPORTED[:], sys.path[:] = imported, path


@pytest.fixture(autouse=True, scope="module")
def parts_of_fixtures():
    """Remove the parts that fixtures of a whole file register when the file ends."""
    with closed_registries():
        yield


@pytest.fixture(autouse=True)
def parts_of_tests():
    """Remove the parts that a test registers or imports when it ends."""
    with closed_registries():
        yield
