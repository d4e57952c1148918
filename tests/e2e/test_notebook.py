"""The notebook `does_it_learn` from scratch."""

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
CODE = ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"]
GAINS = (0.14, 0.16, 0.18, 0.15, 0.17)


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_one_flag_recomputes_everything(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "notebooks")
    plt.switch_backend("Agg")
    made_up_evaluations.several(tmp_path, GAINS)
    commands = []

    def run(command, *, cwd, check):
        assert (cwd, check) == (ROOT, True)
        module, words = command[2], list(command[3:])
        if module == "bench.studies.learning":
            learning.main(words)
        else:
            commands.append(words)

    monkeypatch.setattr(subprocess, "run", run)
    text = "\n\n".join(CODE)
    for old, new in {
        "FROM_SCRATCH = False": "FROM_SCRATCH = True",
        'ROOT / "runs" / "notebook"': f"Path({str(tmp_path)!r})",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    exec(compile(text, "does_it_learn.ipynb", "exec"), {})
    plt.close("all")
    assert [words[0] for words in commands] == [*["train"] * 5, *["evaluate"] * 5]
    for words in commands:
        main.parse_args(words, "0")
    assert set(json.loads((tmp_path / "learning.json").read_text())["arms"]) >= {"trained", "wait"}
