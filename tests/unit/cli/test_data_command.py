"""Command `data`: what a task asks and needs, and whether a run would find it."""

import json

import numpy as np
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
PYTHON = "cifar-10-batches-py"
POINTS = """
import numpy as np

import morphogen as mg

points = mg.from_arrays("points", np.arange(240, dtype=np.uint8).reshape(60, 4), np.arange(60) % 3)

def photos(folder):
    return (folder / "photos").read_bytes()


task = mg.TaskSpec(name="wide", dataset="points", host=mg.CnnSpec(4, 2, 3, 1, 1, 8, 10), question="does it fit?")
"""


@pytest.fixture(autouse=True)
def fresh_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MORPHOGEN_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def listing(capsys, *words, code=0):
    """The JSON of the command, tasks and data sets by name, and stderr."""
    assert main.main(["data", *words, "--json"]) == code
    shown = capsys.readouterr()
    reported = json.loads(shown.out)
    return {
        **reported,
        "tasks": {row["task"]: row for row in reported["tasks"]},
        "data": {row["data"]: row for row in reported["data"]},
        "err": shown.err,
    }


def test_every_task_is_listed_with_its_question_and_state(capsys):
    reported = listing(capsys)
    assert {name: row["question"] for name, row in reported["tasks"].items()} == {
        n: TASKS[n].question for n in TASKS
    }
    assert {row["state"] for row in reported["tasks"].values() if row["data"] == "digits"} == {
        "ready"
    }
    assert {row["state"] for row in reported["tasks"].values() if row["data"] == "cifar"} <= {
        "missing"
    }
    assert reported["err"] == ""
    assert main.main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in TASKS:
        assert any(line.split()[:1] == [name] and TASKS[name].question in line for line in lines), (
            name
        )


def test_every_built_in_data_set_declares_its_files():
    for name in DATASETS.builtin():
        part = DATASETS[name]
        assert isinstance(part, FileData), name
        assert part.name == name
        assert part.source.name


@needs_extra("cifar")
def test_complete_files_are_ready_with_their_sizes(tmp_path, capsys):
    cifar_files(tmp_path / "data")
    row = listing(capsys)["data"]["cifar"]
    assert (row["state"], row["error"], row["form"]) == ("ready", None, "binary")
    assert row["sizes"] == {"train": 180, "validation": 20, "test": 40}
    sizes = {each["path"]: each["bytes"] for form in row["forms"] for each in form["files"]}
    for path, size in sizes.items():
        file = tmp_path / "data" / path
        assert size == (file.stat().st_size if file.exists() else None)
    assert len(sizes) == 12


def write_tokens(folder, tokens, vocabulary=257):
    for name in ("train.bin", "val.bin"):
        (folder / name).write_bytes(np.array(tokens, dtype=np.uint16).tobytes())
    (folder / "meta.json").write_text(json.dumps({"vocab_size": vocabulary, "eos": vocabulary - 1}))


@needs_extra("text")
def test_the_documentation_of_python_needs_no_files(capsys):
    row = listing(capsys, "pydoc")["data"]["pydoc"]
    assert (row["state"], row["forms"], row["unit"]) == ("ready", [], "tokens")
    assert sum(row["sizes"].values()) > 100_000


@needs_extra("text")
@pytest.mark.parametrize("prefix", ["TinyStories", "TinyStoriesV2-GPT4"])
def test_stories_are_texts_of_either_name(tmp_path, monkeypatch, capsys, prefix):
    monkeypatch.setenv("MORPHOGEN_DATA", str(tmp_path))
    assert "TinyStories-train.txt is missing" in listing(capsys, "tinystories", code=3)["err"]
    for name in ("train", "valid"):
        assert listing(capsys, "tinystories", code=3)["data"]["tinystories"]["state"] == "missing"
        (tmp_path / f"{prefix}-{name}.txt").write_text("A cat.<|endoftext|>A dog.")
    row = listing(capsys, "tinystories")["data"]["tinystories"]
    assert row["state"] == "ready"
    assert row["sizes"]["train"] >= len("A cat.A dog.")


@needs_extra("text")
def test_stories_are_tokens_too_and_one_beyond_the_vocabulary_is_damage(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    write_tokens(tmp_path / "data", [1, 2, 3, 256, 4, 5, 6, 256])
    reported = listing(capsys, "tinystories")
    assert (reported["data"]["tinystories"]["form"], reported["tasks"]["tinystories"]["state"]) == (
        "tokens",
        "ready",
    )
    write_tokens(tmp_path / "data", [1, 2, 300, 256, 4, 5, 6, 256])
    reported = listing(capsys, "tinystories", code=3)
    assert reported["tasks"]["tinystories"]["state"] == "damaged"
    assert "train.bin: expected tokens in 0 .. 256" in reported["err"]
    write_tokens(tmp_path / "data", [1, 2, 300, 499, 4, 5, 6, 499], vocabulary=500)
    assert listing(capsys, "tinystories", code=3)["tasks"]["tinystories"]["state"] == "unfit"


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def relabel(path):
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])


@needs_extra("cifar")
@pytest.mark.parametrize(
    ("damage", "state"),
    [(lambda path: path.unlink(), "missing"), (cut, "damaged"), (relabel, "damaged")],
)
def test_a_fault_is_that_of_the_reader_and_ends_the_listing_of_one_task_with_3(
    tmp_path, capsys, damage, state
):
    cifar_files(tmp_path / "here")
    damage(tmp_path / "here" / BINARY / "data_batch_4.bin")
    with pytest.raises(DataError, match="data_batch_4") as caught:
        DATASETS["cifar"](tmp_path / "here")
    words = ["--data-dir", str(tmp_path / "here")]
    reported = listing(capsys, *words)
    assert (
        reported["data"]["cifar"]["error"]
        == reported["tasks"]["cifar_scale"]["error"]
        == str(caught.value)
    )
    assert reported["data"]["cifar"]["state"] == reported["tasks"]["cifar_scale"]["state"] == state
    alone = listing(capsys, "cifar_scale", *words, code=3)
    assert list(alone["tasks"]), list(alone["data"]) == (["cifar_scale"], ["cifar"])
    assert str(caught.value) in alone["err"]
    assert main.main(["data", *words]) == 0
    assert str(caught.value) in capsys.readouterr().out


@needs_extra("cifar")
def test_one_task_shows_each_of_its_files(tmp_path, capsys):
    cifar_files(tmp_path / "data", records=3)
    assert main.main(["data", "cifar_minimal"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert f"{BINARY}/test_batch.bin  {3 * 3073:,} bytes" in lines
    assert f"{PYTHON}/test_batch  missing" in lines
    assert not any("digits" in line for line in lines)


def test_the_folder_is_named_with_what_chose_it(tmp_path, monkeypatch, capsys):
    def place(*words):
        reported = listing(capsys, "digits", *words)
        return reported["folder"], reported["folder_from"]

    assert place() == (str(tmp_path / "data"), "default")
    monkeypatch.setenv("MORPHOGEN_DATA", "/some/where")
    assert place() == ("/some/where", "$MORPHOGEN_DATA")
    assert place("--data-dir", "given") == (str(tmp_path / "given"), "--data-dir")


def test_parts_of_packages_are_listed_and_faulty_ones_stop_nothing(tmp_path, monkeypatch, capsys):
    offers = {
        "morphogen.tasks": {"wide": "task", "broken": "nothing_there"},
        "morphogen.datasets": {"points": "points", "photos": "photos"},
    }
    write_package(tmp_path / "site", POINTS, offers, name="pointed_parts")
    monkeypatch.syspath_prepend(tmp_path / "site")
    reported = listing(capsys)
    assert reported["data"]["points"]["sizes"] == {"train": 40, "validation": 10, "test": 10}
    assert (reported["data"]["points"]["state"], reported["data"]["points"]["forms"]) == (
        "ready",
        [],
    )
    assert reported["data"]["points"]["part_of"] == "pointed_parts 0.1"
    assert reported["data"]["photos"]["state"] == "unusable"
    assert "FileNotFoundError" in reported["data"]["photos"]["error"]
    assert reported["tasks"]["wide"]["state"] == "unfit"
    assert "as the host takes" in reported["tasks"]["wide"]["error"]
    assert "broken of pointed_parts 0.1: cannot be imported" in reported["err"]
    assert "broken" not in reported["tasks"]
    listing(capsys, "wide", code=3)
