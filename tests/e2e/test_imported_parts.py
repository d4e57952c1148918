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
    "--task",
    "mine",
    "--set",
    "policy_name=fussy",
    "--rounds",
    "1",
    "--envs",
    "2",
    "--episode-length",
    "2",
    "--final-episodes",
    "2",
    "--quiet",
    "--ranks",
    "2",
    "--import",
    "my_parts.py",
]


@needs_extra("compare")
def test_ranks_a_series_resume_and_evaluation_find_the_parts_of_a_file(tmp_path):
    file = tmp_path / "my_parts.py"
    file.write_text(SOURCE)
    done = run_command(tmp_path, "train", *SMALL, "--seeds", "2..3", "--json", "--out", "series")
    fails_on_all_ranks_and_leaves_the_other(done)
    manifest = json.loads((tmp_path / "series/seed-3/manifest.json").read_text())
    assert manifest["imports"] == [str(file)]
    for words in (
        ("resume", "series/seed-3", "--extend-rounds", "1", "--ranks", "1"),
        ("evaluate", "series/seed-3", "--episodes", "2", "--arms", "wait"),
    ):
        lost = run_command(tmp_path, *words)
        assert lost.returncode == 2
        [line] = lost.stderr.splitlines()
        assert line.endswith(f"; the run needs --import {file}")
        done = run_command(tmp_path, *words, "--import", "my_parts.py")
        assert done.returncode == 0, done.stderr


def fails_on_all_ranks_and_leaves_the_other(done):
    """Check a series of which the first seed fails."""
    assert done.returncode == 2
    rows = json.loads(done.stdout)["seeds"]
    assert [row["status"] for row in rows] == ["failed", "completed"]
    assert [row["network value"] is None for row in rows] == [True, False]
    assert "series/seed-2: " in done.stderr.splitlines()[-1]
    assert "ValueError: not seed 2" in done.stderr.splitlines()[-1]
