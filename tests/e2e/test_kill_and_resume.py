"""A run that is killed and resumed ends with the same bits; and whoever compares two runs sees
every difference.
"""

import json
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
    "episode_length": 4,
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


def rewrite(path, change):
    """Change the events of a file; it has one a line afterwards, numbered anew."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = change([event for line in lines for event in run_comparison.split_line(line)])
    path.write_text(
        "".join(json.dumps({**event, "seq": number}) + "\n" for number, event in enumerate(changed))
    )


def of(reported, kind):
    return next(number for number, event in enumerate(reported) if event["event"] == kind)


def put(reported, number, **fields):
    event = reported[number]
    return [
        *reported[:number],
        {**event, "data": {**event["data"], **fields}},
        *reported[number + 1 :],
    ]


SEEN = {
    "an event is lost": lambda reported: reported[:-1],
    "an event is doubled": lambda reported: [*reported[:7], reported[7], *reported[7:]],
    "another number": lambda reported: put(
        reported, of(reported, "RoundCompleted"), accuracy_mean=1.25
    ),
}


@pytest.mark.parametrize("change", SEEN.values(), ids=SEEN)
def test_what_is_lost_or_double_is_seen(made, copy, change):
    rewrite(copy / "events.jsonl", change)
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
