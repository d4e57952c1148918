"""The notebook runs from top to bottom on saved results, and says nothing that it does not compute."""

import json
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from support import made_up_evaluations

from bench.studies import learning
from morphogen.cli import parser

ROOT = Path(__file__).parents[2]
BOOK = json.loads((ROOT / "notebooks" / "does_it_learn.ipynb").read_text())
SAVED, PLACE = 'ROOT / "bench" / "results" / "learning.json"', 'ROOT / "runs" / "notebook"'
GAINS = (0.14, 0.16, 0.18, 0.15, 0.17)


def cells(kind):
    return ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five runs and what `bench.learning` finds in them."""
    place = tmp_path_factory.mktemp("runs")
    runs = map(str, made_up_evaluations.several(place, GAINS))
    learning.main([*runs, "--json", str(place / "found.json"), "--picture", str(place / "found.svg")])
    return place


@pytest.fixture
def played(monkeypatch):
    """Runs the cells in the folder of the notebook, text replaced; the figures that were shown."""
    monkeypatch.chdir(ROOT / "notebooks")
    plt.switch_backend("Agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))

    def play(changed):
        text = "\n\n".join(cells("code"))
        for old, new in changed.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        exec(compile(text, "does_it_learn.ipynb", "exec"), {})
        return shown

    yield play
    plt.close("all")


def test_saved_results_become_a_table_and_figures(folder, played, capsys):
    figures = played({SAVED: f"Path({str(folder / 'found.json')!r})"})
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if line.startswith("wait "))
    assert "0.610 (" in row
    assert "+0.160 (+0.160 .. +0.160)" in row
    assert "wait: every interval lies above 0" in told
    assert "oracle: not every interval lies above 0" in told
    assert "all seeds: 0.800 (0.800 .. 0.800)" in told
    titles = [ax.get_title() for figure in figures for ax in figure.axes]
    assert titles[:4] == ["Mean", "The middle half of the episodes", "Over instances", "Over training seeds"]
    assert len(figures[2].axes[0].lines) == len(GAINS) + 1, "a curve per seed and their mean"


def test_what_the_repository_holds_can_be_shown(folder, played, capsys):
    place = learning.FILE if learning.FILE.is_file() else folder / "found.json"
    assert len(played({SAVED: f"Path({str(place)!r})"})) == 5
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in json.loads(place.read_text())["arms"])


def test_one_flag_makes_everything_anew(folder, played, monkeypatch):
    given = []

    def run(command, *, cwd, check):
        assert (cwd, check) == (ROOT, True)
        module, words = command[2], list(command[3:])
        given.append((module, words))
        if module == "bench.studies.learning":
            learning.main(words)

    monkeypatch.setattr(subprocess, "run", run)
    played({"FROM_SCRATCH = False": "FROM_SCRATCH = True", PLACE: f"Path({str(folder)!r})"})
    commands = [words for module, words in given if module == "morphogen.cli.main"]
    assert [words[0] for words in commands] == [*["train"] * 5, "tune", *["evaluate"] * 5]
    for words in commands:
        parser.parse_args(words, "0")
    made = json.loads((folder / "learning.json").read_text())
    assert made == json.loads((folder / "found.json").read_text()) | {"machine": made["machine"]}


def test_no_number_is_typed_into_the_text():
    assert not [text for text in cells("markdown") if any(letter.isdigit() for letter in text)]


def test_it_is_committed_without_outputs():
    assert BOOK["nbformat"] == 4
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in BOOK["cells"])
