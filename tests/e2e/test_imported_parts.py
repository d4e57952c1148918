"""A run with parts of a file: its ranks, a resume, an evaluation and a series find them by
`--import`.
"""

import json
import subprocess
import sys

import pytest

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
SMALL = ("--rounds", "1", "--envs", "4", "--final-episodes", "4", "--quiet")


def morphogen(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "morphogen", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_ranks_resume_and_evaluation_find_the_parts_of_a_file(tmp_path):
    (tmp_path / "my_parts.py").write_text(SOURCE)
    parts = ("--import", "my_parts.py")
    done = morphogen(
        tmp_path, "train", "--task", "mine", *SMALL, *parts, "--ranks", "2", "--out", "run"
    )
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["imports"] == [str(tmp_path / "my_parts.py")]
    for words in (
        ("resume", "run", "--extend-rounds", "1"),
        ("evaluate", "run", "--episodes", "4", "--arms", "wait"),
    ):
        lost = morphogen(tmp_path, *words)
        assert lost.returncode == 2
        [line] = lost.stderr.splitlines()
        assert line.endswith(f"; the run needs --import {tmp_path / 'my_parts.py'}")
        done = morphogen(tmp_path, *words, *parts)
        assert done.returncode == 0, done.stderr
    words = (
        "bench",
        "--task",
        "mine",
        "--rounds",
        "2",
        "--envs",
        "4",
        "--set",
        "telemetry.level=normal",
    )
    measured = morphogen(tmp_path, *words, *parts)
    assert measured.returncode == 0, measured.stderr


def test_a_seed_that_fails_on_all_ranks_leaves_the_others_of_its_series(tmp_path):
    (tmp_path / "my_parts.py").write_text(SOURCE)
    words = ("--task", "mine", *SMALL, "--import", "my_parts.py", "--set", "policy_name=fussy")
    done = morphogen(
        tmp_path, "train", *words, "--ranks", "2", "--seeds", "1..3", "--json", "--out", "series"
    )
    assert done.returncode == 2
    rows = json.loads(done.stdout)["seeds"]
    assert [row["status"] for row in rows] == ["completed", "failed", "completed"]
    assert [row["network value"] is None for row in rows] == [False, True, False]
    assert "series/seed-2: " in done.stderr.splitlines()[-1]
    assert "ValueError: not seed 2" in done.stderr.splitlines()[-1]
