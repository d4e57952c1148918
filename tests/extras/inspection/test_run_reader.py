"""A run directory is read only if its files hold what they should."""

import json
import os

import pytest
from support import generated_logs

from morphogen.errors import DataError
from morphogen.extras.inspection.inspect_run import inspect_path
from morphogen.extras.inspection.run_reader import read_run


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "events.jsonl"])
def test_a_pipe_in_a_run_directory_is_refused_by_name(tmp_path, name):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(DataError, match=f"{name} cannot be read: expected a file"):
        read_run(run)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"rounds": "3"}, "config.rounds: expected"),
        ("config.json", {"telemetry": 3}, "config.telemetry: expected"),
        (
            "config.json",
            {"telemetry": {"level": "off", "dir": 3}},
            "config.telemetry.dir: expected .* got 3",
        ),
        ("config.json", {"instance": {"width": [1]}}, "config.instance.width"),
        ("manifest.json", {"versions": {"torch": 2}}, "manifest.versions.torch: expected"),
        ("manifest.json", {"status": None}, "manifest.status: expected .* got null"),
    ],
)
def test_a_run_directory_is_read_only_if_its_files_hold_what_they_should(
    tmp_path, name, change, message
):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **change}))
    with pytest.raises(DataError, match=rf"{name} is damaged: {message}"):
        read_run(run)


def test_events_that_are_read_from_outside_of_the_run_are_said_to_be(tmp_path):
    run, outside = (
        generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2),
        tmp_path / "elsewhere",
    )
    outside.mkdir()
    (run / "events.jsonl").rename(outside / "events.jsonl")
    config = json.loads((run / "config.json").read_text())
    config["telemetry"]["dir"] = str(outside)
    (run / "config.json").write_text(json.dumps(config))
    assert inspect_path(run).facts["events"] == f"read from {outside}, outside of the run directory"
