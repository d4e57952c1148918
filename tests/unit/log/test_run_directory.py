"""The run directory: new or empty, whole or absent, and a manifest that is always readable."""

import itertools
import json
import os
import re

import pytest
from support import generated_logs

from morphogen.config import files
from morphogen.errors import ConfigError
from morphogen.log import run_directory
from morphogen.log.run_log import events, read_rounds

CONFIG = '{"task": "digits"}\n'


def made(path, **manifest):
    """A run directory whose owner is gone."""
    with run_directory.create_directory(path, config=CONFIG, manifest=manifest):
        return run_directory.RunDirectory(path)


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def test_a_new_run_directory_holds_config_and_manifest(tmp_path):
    run = made(tmp_path / "a" / "b", status="running")
    assert names(run.path) == ["config.json", "manifest.json"]
    assert (run.path / "config.json").read_text() == CONFIG
    assert run.read_manifest() == {"status": "running"}


def test_an_empty_directory_is_used(tmp_path):
    made(tmp_path)
    assert names(tmp_path) == ["config.json", "manifest.json"]


def test_a_directory_is_owned_while_it_is_used_and_free_after(tmp_path):
    refused = pytest.raises(ConfigError, match="is in use by process")
    with (
        run_directory.create_directory(tmp_path, config=CONFIG, manifest={}),
        refused,
        run_directory.own_directory(tmp_path),
    ):
        pass
    with run_directory.own_directory(tmp_path):
        assert names(tmp_path) == ["config.json", "lock", "manifest.json"]


def test_what_a_dead_owner_left_is_no_reason_to_refuse(tmp_path):
    (tmp_path / "lock").write_text("{}")
    made(tmp_path)
    assert names(tmp_path) == ["config.json", "manifest.json"]


def test_the_same_directory_twice_is_refused_and_left_alone(tmp_path):
    run = made(tmp_path / "run", status="completed")
    for attempt in (run_directory.check_new_directory, made):
        with pytest.raises(
            ConfigError, match=r"expected a new or empty directory, got .*run, which is not empty"
        ):
            attempt(run.path)
    assert run.read_manifest()["status"] == "completed"


def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="which is a file"):
        run_directory.check_new_directory(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"file is a file|Not a directory"):
        run_directory.check_new_directory(tmp_path / "file" / "run")


def test_a_place_without_write_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="is not writable"):
        run_directory.check_new_directory(tmp_path / "run")


def test_checking_writes_nothing(tmp_path):
    run_directory.check_new_directory(tmp_path / "a" / "b")
    assert names(tmp_path) == []


def test_a_failure_half_way_leaves_no_directory_behind(tmp_path, monkeypatch):
    whole = files.write_atomic

    def full(path, data):
        if path.name == "manifest.json":
            raise OSError(28, "No space left on device")
        whole(path, data)

    monkeypatch.setattr(files, "write_atomic", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        made(tmp_path / "a" / "b")
    assert names(tmp_path) == []


def test_an_empty_directory_that_was_there_stays_after_a_failure(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    with pytest.raises(ConfigError, match="No space left"):
        made(tmp_path)
    assert names(tmp_path) == []


def test_updating_the_manifest_keeps_what_is_not_named(tmp_path):
    run = made(tmp_path / "run", run_id="x", status="running")
    run.update(status="completed", last_checkpoint="round-000001-epoch-0000")
    assert run.read_manifest() == {
        "run_id": "x",
        "status": "completed",
        "last_checkpoint": "round-000001-epoch-0000",
    }
    assert names(run.path) == ["config.json", "manifest.json"]


def default_paths():
    return run_directory.default_paths(task="digits", config=CONFIG, now=0.0)


def test_the_default_path_names_time_task_and_config():
    paths = default_paths()
    path = next(paths)
    assert re.fullmatch(r"runs/19700101T000000Z-digits-[0-9a-f]{6}", str(path))
    assert str(path).endswith(run_directory.config_hash(CONFIG)[:6])
    assert [str(next(paths)), str(next(paths))] == [f"{path}-1", f"{path}-2"]


def test_equal_commands_of_one_second_get_a_path_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, third = itertools.islice(default_paths(), 3)
    with (
        run_directory.reserve_path(default_paths()) as one,
        # the name was free when it was chosen
        run_directory.reserve_path([first, first, second]) as two,
        run_directory.reserve_path(default_paths()) as three,
    ):
        assert [one, two, three] == [first, second, third]
        made(two)
    assert names(tmp_path / "runs") == [two.name]


def test_a_reserved_path_is_gone_with_a_start_that_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError), run_directory.reserve_path(default_paths()):
        raise KeyError
    assert names(tmp_path) == []


def test_a_place_without_room_for_folders_is_refused(tmp_path, monkeypatch):
    def full(path, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "mkdir", full)
    with (
        pytest.raises(ConfigError, match=r"got runs/.*: No space left"),
        run_directory.reserve_path(default_paths()),
    ):
        pass


def test_the_environment_names_versions_and_hardware():
    found = run_directory.describe_environment()
    assert {"python", "morphogen", "torch", "tensordict", "torchrl", "numpy"} == set(
        found["versions"]
    )
    assert found["hardware"]["cores"] >= 1


@pytest.mark.parametrize("absolute", [False, True])
def test_the_event_folder_of_a_config_is_absolute_or_relative_to_the_run(
    tmp_path, monkeypatch, absolute
):
    run = generated_logs.write(tmp_path / "run", rounds=2, envs=1, epochs=2)
    folder = tmp_path / "logs" if absolute else run / "logs"
    folder.mkdir()
    (run / "events.jsonl").rename(folder / "events.jsonl")
    config = json.loads((run / "config.json").read_text())
    config["telemetry"]["dir"] = str(folder) if absolute else "logs"
    (run / "config.json").write_text(json.dumps(config))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(read_rounds(run)) == len(list(events(run, kinds={"RoundCompleted"}))) == 2
