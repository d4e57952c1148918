"""Checkpointer: times of saves, retention, failed saves."""

import itertools
import json

import pytest
from support.run_comparison import events
from support.small_runs import tiny

from morphogen.config.execution_spec import CheckpointSpec
from morphogen.errors import CheckpointError
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import Checkpoint
from morphogen.train.loop import Parts
from morphogen.train.train import train_ppo_vectorized


def history(place, *, rounds=5, epochs=2, parts=None, **saving):
    """The events about checkpoints of a run."""
    sizes = {"rounds": rounds, "episode_length": epochs}
    spec = tiny(policy_name="wait", checkpoint=CheckpointSpec(**saving), **sizes)
    train_ppo_vectorized(spec, out=place, parts=parts)
    return reported(place)


def reported(place):
    return [one["data"] for one in events(place) if one["event"].startswith("Checkpoint")]


def names(place):
    return [
        path.name for path in reversed(checkpoint_store.list_checkpoints(place / "checkpoints"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "rounds"), [(2, [2, 4, 5]), (5, [5]), (None, [5])])
def test_a_run_is_saved_every_so_many_rounds_and_at_its_end(tmp_path, every, rounds):
    found = history(tmp_path / "run", every_rounds=every, keep=9)
    assert names(tmp_path / "run") == [checkpoint_store.checkpoint_name(one, 0) for one in rounds]
    assert [one["path"] for one in found] == [
        f"checkpoints/{name}" for name in names(tmp_path / "run")
    ]
    last = "periodic" if every == 5 else "final"
    assert [one["kind"] for one in found] == ["periodic"] * (len(rounds) - 1) + [last]
    assert (
        json.loads((tmp_path / "run" / "manifest.json").read_bytes())["last_checkpoint"]
        == found[-1]["path"]
    )


@pytest.mark.slow
def test_a_run_is_saved_by_the_clock_inside_rounds_too(tmp_path):
    ticks = itertools.count(0, 7.0)
    history(
        tmp_path / "run",
        rounds=2,
        epochs=6,
        parts=Parts(clock=lambda: next(ticks)),
        every_minutes=1.0,
        keep=99,
    )
    inside = [name for name in names(tmp_path / "run") if not name.endswith("epoch-0000")]
    assert len(inside) > 2
    assert all(
        checkpoint_store.read_manifest(tmp_path / "run" / "checkpoints" / name)["score"] is None
        for name in inside
    )


@pytest.fixture
def failing(monkeypatch):
    """Every save of a round before the fourth fails."""
    real = Checkpoint.save

    def save(checkpoint, folder, **knobs):
        if checkpoint.position < (4, 0):
            raise CheckpointError("No space left on device")
        return real(checkpoint, folder, **knobs)

    monkeypatch.setattr(Checkpoint, "save", save)


@pytest.mark.slow
def test_a_save_that_fails_is_told_and_the_run_goes_on(tmp_path, failing):
    found = history(tmp_path / "run", every_rounds=2)
    assert found[0] == {
        "path": f"checkpoints/{checkpoint_store.checkpoint_name(2, 0)}",
        "error": "No space left on device",
    }
    assert names(tmp_path / "run") == [
        checkpoint_store.checkpoint_name(4, 0),
        checkpoint_store.checkpoint_name(5, 0),
    ]


def test_a_save_that_fails_ends_the_run_where_that_is_asked_for(tmp_path, failing):
    with pytest.raises(CheckpointError, match="No space left"):
        history(tmp_path / "run", every_rounds=2, on_failure="stop")
    assert events(tmp_path / "run")[-1]["data"]["status"] == "failed"
    assert names(tmp_path / "run") == []


@pytest.mark.slow
def test_the_last_save_has_to_succeed(tmp_path, failing):
    with pytest.raises(CheckpointError, match="No space left"):
        history(tmp_path / "run", rounds=3, every_rounds=None)
    assert [set(one) for one in reported(tmp_path / "run")] == [{"path", "error"}]
