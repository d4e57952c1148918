"""Command `data`: tasks with their questions, their files, and whether a run would find them."""

import json

import pytest
from support.extras import needs_extra
from support.offered_packages import write_package
from support.small_runs import cifar_files

from morphogen.cli import main
from morphogen.config.parts import DATASETS
from morphogen.config.task import TASKS
from morphogen.data.data_files import FileData
from morphogen.errors import DataError

BINARY = "cifar-10-batches-bin"
PACKAGE = """
import numpy as np

import morphogen as mg

points = mg.from_arrays("points", np.arange(240, dtype=np.uint8).reshape(60, 4), np.arange(60) % 3)
host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
task = mg.TaskSpec(name="wide", dataset="points", host=host, question="does it fit?")
"""


@pytest.fixture(autouse=True)
def fresh_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MORPHOGEN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def listing(capsys, *words, code=0):
    """The JSON of the command, tasks and files by name, and stderr."""
    assert main.main(["data", *words, "--json"]) == code
    shown = capsys.readouterr()
    listed = json.loads(shown.out)
    return {
        **listed,
        "tasks": {row["task"]: row for row in listed["tasks"]},
        "files": {row["file"]: row["bytes"] for row in listed["files"]},
        "err": shown.err,
    }


@pytest.mark.slow
def test_every_task_is_listed_with_its_question_and_state(capsys):
    tasks = listing(capsys)["tasks"]
    assert {name: row["question"] for name, row in tasks.items()} == {
        name: TASKS[name].question for name in TASKS
    }
    assert {name: row["figures"] or "" for name, row in tasks.items()} == {
        name: TASKS[name].figures for name in TASKS
    }
    assert tasks["digits"]["state"] == "ready"
    assert tasks["digits"]["samples"] == "1,197 train, 300 validation, 300 test"
    assert main.main(["data"]) == 0
    assert TASKS["digits"].question[:20] in capsys.readouterr().out


def test_every_built_in_data_set_declares_its_files():
    for name in DATASETS.builtin():
        part = DATASETS[name]
        assert isinstance(part, FileData), name
        assert part.name == name
        assert part.source.name


@needs_extra("cifar")
def test_complete_files_are_ready_with_their_sizes(tmp_path, capsys):
    cifar_files(tmp_path / "data")
    found = listing(capsys, "cifar_minimal")
    assert found["tasks"]["cifar_minimal"]["samples"] == "180 train, 20 validation, 40 test"
    assert found["errors"] == []
    assert len(found["files"]) == 12
    for path, size in found["files"].items():
        file = tmp_path / "data" / path
        assert size == (file.stat().st_size if file.exists() else None)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def relabel(path):
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])


@needs_extra("cifar")
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), cut, relabel])
def test_a_fault_is_the_fault_of_the_reader_and_ends_the_listing_of_one_task_with_3(
    tmp_path, capsys, damage
):
    cifar_files(tmp_path / "here")
    damage(tmp_path / "here" / BINARY / "data_batch_4.bin")
    with pytest.raises(DataError, match="data_batch_4") as caught:
        DATASETS["cifar"](tmp_path / "here")
    words = ["--data-dir", str(tmp_path / "here")]
    found = listing(capsys, *words)
    assert str(caught.value) in found["errors"]
    assert str(caught.value) in found["err"]
    assert found["tasks"]["cifar_scale"]["state"] == "not ready"
    alone = listing(capsys, "cifar_scale", *words, code=3)
    assert list(alone["tasks"]) == ["cifar_scale"]
    assert str(caught.value) in alone["err"]


def test_the_folder_is_named_with_its_origin(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MORPHOGEN_DATA", "/some/where")
    assert listing(capsys, "digits")["folder"] == "/some/where"
    assert listing(capsys, "digits", "--data-dir", "given")["folder"] == str(tmp_path / "given")


def test_parts_of_packages_are_listed_and_faulty_ones_stop_nothing(tmp_path, monkeypatch, capsys):
    offers = {
        "morphogen.tasks": {"wide": "task", "broken": "nothing_there"},
        "morphogen.datasets": {"points": "points"},
    }
    write_package(tmp_path / "site", PACKAGE, offers, name="pointed_parts")
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = listing(capsys)
    assert found["tasks"]["wide"]["of"] == "pointed_parts 0.1"
    assert "as the host takes" in found["err"]
    assert "broken of pointed_parts 0.1: cannot be imported" in found["err"]
    assert {found["tasks"][name]["state"] for name in ("wide", "broken")} == {"not ready"}
    listing(capsys, "wide", code=3)
