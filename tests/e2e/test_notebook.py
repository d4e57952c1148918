"""The notebook `does_it_learn` on other results, and from scratch."""

import json
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from support import made_up_evaluations

from bench.studies import learning
from morphogen.cli import main

ROOT = Path(__file__).parents[2]
BOOK = json.loads((ROOT / "notebooks" / "does_it_learn.ipynb").read_text())
SAVED, PLACE = 'ROOT / "bench" / "results" / "learning.json"', 'ROOT / "runs" / "notebook"'
CODE = ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"]
GAINS = (0.14, 0.16, 0.18, 0.15, 0.17)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with five runs and the result of `bench.studies.learning` on them."""
    runs_dir = tmp_path_factory.mktemp("runs")
    runs = map(str, made_up_evaluations.several(runs_dir, GAINS))
    learning.main(
        [
            *runs,
            "--json",
            str(runs_dir / "results.json"),
            "--picture",
            str(runs_dir / "results.svg"),
        ]
    )
    return runs_dir


@pytest.fixture
def play_notebook(monkeypatch):
    """Return a function that runs the cells with replaced text and returns the figures shown."""
    monkeypatch.chdir(ROOT / "notebooks")
    plt.switch_backend("Agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))

    def play(replacements):
        text = "\n\n".join(CODE)
        for old, new in replacements.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        exec(compile(text, "does_it_learn.ipynb", "exec"), {})
        return shown

    yield play
    plt.close("all")


def test_saved_results_become_a_table_and_figures(folder, play_notebook, capsys):
    figures = play_notebook({SAVED: f"Path({str(folder / 'results.json')!r})"})
    output = capsys.readouterr().out
    row = next(line for line in output.splitlines() if line.startswith("wait "))
    assert "0.610 (" in row
    assert "+0.160 (+0.160 .. +0.160)" in row
    assert "wait: every interval lies above 0" in output
    assert "oracle: not every interval lies above 0" in output
    titles = [ax.get_title() for figure in figures for ax in figure.axes]
    assert titles[1:5] == [
        "Mean",
        "The middle half of the episodes",
        "Over instances",
        "Over training seeds",
    ]
    assert len(figures[0].axes[0].lines) == len(GAINS) + 3, (
        "a curve per seed, their mean, and two rivals"
    )


def test_the_results_of_the_repository_can_be_shown(folder, play_notebook, capsys):
    path = learning.FILE if learning.FILE.is_file() else folder / "results.json"
    assert len(play_notebook({SAVED: f"Path({str(path)!r})"})) == 4
    output = capsys.readouterr().out
    assert all(f"\n{name} " in output for name in json.loads(path.read_text())["arms"])


def test_one_flag_recomputes_everything(folder, play_notebook, monkeypatch):
    commands = []

    def run(command, *, cwd, check):
        assert (cwd, check) == (ROOT, True)
        module, words = command[2], list(command[3:])
        commands.append((module, words))
        if module == "bench.studies.learning":
            learning.main(words)

    monkeypatch.setattr(subprocess, "run", run)
    play_notebook({"FROM_SCRATCH = False": "FROM_SCRATCH = True", PLACE: f"Path({str(folder)!r})"})
    of_morphogen = [words for module, words in commands if module == "morphogen"]
    assert [words[0] for words in of_morphogen] == [*["train"] * 5, *["evaluate"] * 5]
    for words in of_morphogen:
        main.parse_args(words, "0")
    written = json.loads((folder / "learning.json").read_text())
    assert written == json.loads((folder / "results.json").read_text()) | {
        "machine": written["machine"]
    }
