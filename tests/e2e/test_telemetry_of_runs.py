"""Runs with telemetry: no level and no sink changes a run."""

from collections import Counter

import pytest
import torch
from support.faulty_sinks import Blocked, Broken
from support.run_comparison import leaves
from support.small_runs import tiny

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.run_log import events as read_all
from morphogen.state.tensor_trees import load_tree
from morphogen.train.loop import Parts
from morphogen.train.train import train_ppo_vectorized

CHECKPOINT = "checkpoints/round-000002-epoch-0000"


def small(**telemetry):
    return tiny(task="tiny", rounds=2, telemetry=TelemetrySpec(**telemetry))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The folder of an undisturbed run."""
    out = tmp_path_factory.mktemp("plain") / "run"
    assert train_ppo_vectorized(small(), out=out).losses.lines() == []
    return out


def tensors(out):
    """Every leaf of the final state and of the policy."""
    names = (f"{CHECKPOINT}/state.safetensors", "policy.safetensors")
    trees = {name: load_tree(out / name, label="file") for name in names}
    return [leaf for leaf in leaves(trees).values() if torch.is_tensor(leaf)]


def bitwise(one, other):
    first, second = tensors(one), tensors(other)
    assert len(first) == len(second) > 20
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def reported(out):
    return list(read_all(out))


def lives(events):
    """Events of epochs, seeds and hosts, which have no fields of clocks."""
    return [one for one in events if one.epoch is not None]


@pytest.mark.parametrize("level", ["off", "normal"])
def test_a_level_changes_no_bit_of_a_run(plain, tmp_path, level):
    result = train_ppo_vectorized(small(level=level), out=tmp_path / "run")
    assert bitwise(plain, tmp_path / "run")
    assert (tmp_path / "run/events.jsonl").exists() == (level != "off")
    assert (result.history[0].accuracy_mean, len(result.history)) == (
        told_rounds(plain)[0].accuracy_mean,
        2,
    )


def told_rounds(out):
    return [one.data for one in reported(out) if one.name == "RoundCompleted"]


def test_sinks_that_block_or_raise_change_no_bit_of_a_run_and_take_no_line_from_the_file(
    plain, tmp_path
):
    blocked, broken = Blocked(), Broken(at=3)
    parts, spec = Parts(sinks=(blocked, broken)), small(close_timeout_s=0.2)
    result = train_ppo_vectorized(spec, parts=parts, out=tmp_path / "run")
    blocked.free.set()
    assert bitwise(plain, tmp_path / "run")
    assert lives(reported(tmp_path / "run")) == lives(reported(plain))
    assert Counter(
        one.data.sink for one in reported(tmp_path / "run") if one.name == "SinkFailed"
    ) == {
        "Blocked": 1,
        "Broken": 1,
    }
    assert reported(tmp_path / "run")[-1].name == "RunCompleted"
    assert set(result.losses.failed) == {"Blocked", "Broken"}
    assert not result.losses.incomplete
