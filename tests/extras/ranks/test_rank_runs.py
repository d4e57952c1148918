"""Runs of several ranks: they write the files of one process, and what fails on one rank fails on
all alike.
"""

import errno
import json
from dataclasses import replace

import pytest
from support.small_runs import tiny

import morphogen as mg
from morphogen.config import files
from morphogen.config.execution_spec import CheckpointSpec
from morphogen.errors import CheckpointError, ConfigError
from morphogen.log.record_files import list_records
from morphogen.train import checkpoint_store
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import resume, train_ppo_vectorized
from tests.extras.ranks.rank_runs import differences
from tests.extras.ranks.thread_ranks import run_ranks

SMALL = {"rounds": 2, "envs": 8, "episode_length": 4, "final_episodes": 2}


def train(out, ranks=2, stop=None, **fields):
    """Train on threads; `stop`: epochs after which every rank asks to stop."""
    saving = CheckpointSpec(every_rounds=1, keep=9)
    spec = tiny(**{**SMALL, "checkpoint": saving, **fields})
    return run_ranks(
        ranks, lambda it: train_ppo_vectorized(spec, out=out, exchange=it, parts=parts_of(stop))
    )


def go_on(out, ranks, stop=None):
    return run_ranks(ranks, lambda it: resume(out, exchange=it, parts=parts_of(stop)))


def parts_of(stop=None):
    seen = []
    hooks = Hooks(
        on_epoch=lambda round, epoch: seen.append(epoch), should_stop=lambda: len(seen) == stop
    )
    return Parts(hooks=hooks)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process."""
    path = tmp_path_factory.mktemp("alone") / "run"
    train(path, 1)
    return path


@pytest.mark.slow
def test_files_of_two_ranks_read_as_one_run_are_those_of_one_process(alone, tmp_path):
    first, second = train(tmp_path / "run")
    assert not [*differences(alone, tmp_path / "run")]
    assert [*list_records(tmp_path / "run")] == [0, 1]
    assert repr(first) == repr(second)
    start = next(mg.events(tmp_path / "run")).data
    assert (start.world, start.devices) == (2, ("cpu", "cpu"))
    manifest = checkpoint_store.read_manifest(next((tmp_path / "run" / "checkpoints").iterdir()))
    assert manifest["devices"] == ["cpu", "cpu"]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks_to_the_same_bits(alone, tmp_path):
    out = tmp_path / "run"
    assert [result.stopped for result in train(out, 2, stop=3)] == [True, True]
    assert [result.stopped for result in go_on(out, 1, stop=3)] == [True]
    newest, *_ = checkpoint_store.list_checkpoints(out / "checkpoints")
    assert newest.name == checkpoint_store.checkpoint_name(1, 2)
    assert [*list_records(out)] == [0]
    assert [result.stopped for result in go_on(out, 2)] == [False, False]
    assert not [*differences(alone, out)]
    assert [*list_records(out)] == [0, 1]
    assert [result.history[-1].round for result in go_on(out, 2)] == [1, 1]  # it is over


def fail_on(monkeypatch, part, round):
    """Let the writes of one file fail, of a checkpoint of a round."""
    real = files.write_new

    def write(path, data):
        if path.name == part and f"round-{round:06}" in path.parent.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "write_new", write)


@pytest.mark.slow
def test_a_run_continues_after_a_save_that_failed(tmp_path, monkeypatch):
    out = tmp_path / "run"
    fail_on(monkeypatch, checkpoint_store.STATE, round=1)
    quick = {"policy_name": "wait", "episode_length": 2, "final_episodes": 0}
    assert all(isinstance(result, mg.TrainResult) for result in train(out, **quick))
    failed = [event.data for event in mg.events(out, kinds={"CheckpointFailed"})]
    path = out / "checkpoints" / checkpoint_store.checkpoint_name(1, 0)
    assert [one.error for one in failed] == [
        f"checkpoint {path} cannot be written: No space left on device"
    ]
    names = [path.name for path in (out / "checkpoints").iterdir()]
    assert names == [checkpoint_store.checkpoint_name(2, 0)]


@pytest.mark.slow
def test_a_save_that_failed_ends_all_ranks_where_that_is_asked_for(tmp_path, monkeypatch):
    fail_on(monkeypatch, checkpoint_store.STATE, round=1)
    saving = CheckpointSpec(every_rounds=1, on_failure="stop")
    found = train(tmp_path / "run", policy_name="wait", checkpoint=saving)
    assert [type(one) for one in found] == [CheckpointError] * 2
    assert {str(one).partition(": ")[2] for one in found} == {"No space left on device"}
    assert [*(tmp_path / "run" / "checkpoints").iterdir()] == []
    assert json.loads((tmp_path / "run" / "manifest.json").read_bytes())["status"] == "failed"


def test_what_rank_0_refuses_before_a_run_is_raised_on_all_ranks(tmp_path):
    (tmp_path / "file").write_text("mine")
    found = train(tmp_path)
    assert [type(one) for one in found] == [ConfigError] * 2
    assert {str(one) for one in found} == {
        f"out: expected a new or empty directory, got {tmp_path}, which is not empty"
    }
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_ranks_of_different_settings_do_not_start(tmp_path):
    def start(exchange):
        spec = replace(tiny(envs=4), seed=exchange.rank // 2)
        return train_ppo_vectorized(spec, out=tmp_path / "run", exchange=exchange)

    found = run_ranks(4, start)
    assert [type(one) for one in found] == [ConfigError] * 4
    assert len({str(one) for one in found}) == 1
    assert str(found[0]).startswith("sha256 of the config: expected ")
    assert str(found[0]).endswith(" on ranks 2, 3")
    assert not (tmp_path / "run").exists()
