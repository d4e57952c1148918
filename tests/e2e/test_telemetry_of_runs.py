"""Runs with telemetry: no level changes a run."""

import pytest
from support.run_comparison import same_policy, tree_differences
from support.small_runs import tiny

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.train.checkpoint import load_checkpoint
from morphogen.train.train import train_ppo_vectorized

CHECKPOINT = "checkpoints/round-000002-epoch-0000"


def accuracies(out, **telemetry):
    """Train two rounds in a folder -> mean accuracy of each."""
    spec = tiny(task="tiny", rounds=2, envs=2, telemetry=TelemetrySpec(**telemetry))
    result = train_ppo_vectorized(spec, out=out)
    assert result.losses.lines() == []
    return [summary.accuracy_mean for summary in result.history]


@pytest.mark.parametrize("level", ["off", "normal"])
def test_a_level_changes_no_bit_of_a_run(tmp_path, level):
    plain = tmp_path / "plain"
    run = tmp_path / "run"
    assert accuracies(plain) == accuracies(run, level=level)
    assert same_policy(plain, run)
    found, wanted = (load_checkpoint(place / CHECKPOINT) for place in (run, plain))
    assert not list(tree_differences(found.carry, wanted.carry, "carry"))
    assert not list(tree_differences(found.learner, wanted.learner, "learner"))
    assert (run / "events.jsonl").exists() == (level != "off")
