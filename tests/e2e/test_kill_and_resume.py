"""A run that is killed and resumed ends with the same bits; and whoever compares two runs sees
every difference.
"""

import random
import shutil

import pytest
import torch
from support import run_comparison
from support.extras import CSV
from support.small_runs import tiny
from tools import kill_runs

from morphogen.config.execution_spec import CheckpointSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.state.tensor_trees import load_tree, save_tree
from morphogen.train.checkpoint_store import STATE
from morphogen.train.train import train_ppo_vectorized

SHORT = {
    **kill_runs.CONFIG,
    "rounds": 2,
    "envs": 2,
    "episode_length": 3,
    "final_episodes": 2,
    "ppo": {"epochs": 1, "minibatches": 1},
}


def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(tmp_path):
    trial = kill_runs.Trial(tmp_path, SHORT, random.Random(2))
    assert trial.find_difference(2) is None
    assert trial.kills == 2
    reported = run_comparison.events(tmp_path / "alone" / kill_runs.RUN)
    assert {"PpoUpdated", "Evaluated", "RunCompleted"} <= {event["event"] for event in reported}
    kept = run_comparison.records(tmp_path / "alone" / kill_runs.RUN)
    assert kept == ["records/round-000001.npz.xz", "records/round-000002.npz.xz"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run directory with everything that is compared."""
    out = tmp_path_factory.mktemp("made") / "run"
    telemetry = TelemetrySpec(loggers=CSV)
    train_ppo_vectorized(
        tiny(
            rounds=2,
            envs=2,
            episode_length=2,
            final_episodes=2,
            telemetry=telemetry,
            checkpoint=CheckpointSpec(every_rounds=1),
        ),
        out=out,
    )
    return out


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


SEEN = {
    "an event is lost": lambda lines: lines[:-1],
    "an event is doubled": lambda lines: [lines[0], *lines],
    "another number": lambda lines: [
        line.replace('"accuracy_mean":', '"accuracy_mean":1') for line in lines
    ],
}


@pytest.mark.parametrize("change", SEEN.values(), ids=SEEN)
def test_what_is_lost_or_double_is_seen(made, copy, change):
    path = copy / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert change(lines) != lines
    path.write_text("".join(change(lines)))
    assert any(found.startswith("events.jsonl") for found in run_comparison.differences(made, copy))


def nudged(tree):
    """The tree with one bit more in its last tensor."""
    leaves = run_comparison.leaves(tree)
    last = [leaf for leaf in leaves.values() if torch.is_tensor(leaf) and leaf.numel()][-1]
    last.view(-1)[-1:].view(torch.uint8)[0] ^= 1
    return tree


@pytest.mark.parametrize("file", [STATE, "policy.safetensors"])
def test_a_bit_of_a_tensor_is_seen(made, copy, file):
    path = (
        copy / file
        if file == "policy.safetensors"
        else max((copy / "checkpoints").iterdir()) / file
    )
    save_tree(nudged(load_tree(path, label="file")), path)
    assert [found.split(".")[0] for found in run_comparison.differences(made, copy)] == [
        file.split(".")[0]
    ]
