"""A run with parts of a file: its ranks, a resume, an evaluation and a series find them by
`--import`.
"""

import json

import pytest
from support.extras import needs_extra
from support.forked_commands import run_command

pytestmark = pytest.mark.slow

SOURCE = '''"""A task, and a policy that fails for one seed."""

from dataclasses import replace

import morphogen as mg
from morphogen.policy.baselines import build_random


def build_fussy(spec, limits):
    if spec.seed == 2:
        raise ValueError("not seed 2")
    return build_random(spec, limits)


mg.TASKS.register("mine", replace(mg.TASKS["tiny"], name="mine"))
mg.POLICIES.register("fussy", build_fussy)
'''
SMALL = [
    "--rounds",
    "1",
    "--envs",
    "4",
    "--episode-length",
    "3",
    "--final-episodes",
    "4",
    "--quiet",
    "--ranks",
    "2",
    "--import",
    "my_parts.py",
]


@pytest.fixture
def morphogen(tmp_path):
    """Return a function that runs a command beside the file."""
    (tmp_path / "my_parts.py").write_text(SOURCE)
    return lambda *words: run_command(tmp_path, *words)


def test_ranks_resume_and_evaluation_find_the_parts_of_a_file(morphogen, tmp_path):
    done = morphogen("train", "--task", "mine", *SMALL, "--out", "run")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["imports"] == [str(tmp_path / "my_parts.py")]
    for words in (
        ("resume", "run", "--extend-rounds", "1", "--ranks", "1"),
        ("evaluate", "run", "--episodes", "4", "--arms", "wait"),
    ):
        lost = morphogen(*words)
        assert lost.returncode == 2
        [line] = lost.stderr.splitlines()
        assert line.endswith(f"; the run needs --import {tmp_path / 'my_parts.py'}")
        done = morphogen(*words, "--import", "my_parts.py")
        assert done.returncode == 0, done.stderr


@needs_extra("compare")
def test_a_seed_that_fails_on_all_ranks_leaves_the_others_of_its_series(morphogen):
    words = ("--task", "mine", *SMALL, "--set", "policy_name=fussy")
    done = morphogen("train", *words, "--seeds", "2..3", "--json", "--out", "series")
    assert done.returncode == 2
    rows = json.loads(done.stdout)["seeds"]
    assert [row["status"] for row in rows] == ["failed", "completed"]
    assert [row["network value"] is None for row in rows] == [True, False]
    assert "series/seed-2: " in done.stderr.splitlines()[-1]
    assert "ValueError: not seed 2" in done.stderr.splitlines()[-1]
