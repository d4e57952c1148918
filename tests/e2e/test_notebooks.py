"""Every notebook runs from top to bottom in its short form, and is stored with the outputs of a
whole run.
"""

import json
import runpy
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from morphogen.testing.laws import search

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
# every number in them comes from a run or a file
COMPUTED = ("06_grown_or_static", "does_it_learn")
# a newcomer reads this one first, so it has no short form of its own
QUICKSTART = ("rounds=4,", "rounds=1, episode_length=5,")
every_book = pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)


def code_cells(book):
    return [cell for cell in json.loads(book.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@every_book
def test_the_short_form_runs(book, tmp_path, monkeypatch, capsys):
    """The last expression of a cell is not shown, figures are drawn into memory."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("MORPHOGEN_SMOKE", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(search, "MAX_SHRINKS", 5)  # of the smallest example of a broken law
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    program = tmp_path / "book.py"
    source = "\n\n".join("".join(cell["source"]) for cell in code_cells(book))
    if book.stem == "01_quickstart":
        assert QUICKSTART[0] in source
        source = source.replace(*QUICKSTART)
    program.write_text(source)
    runpy.run_path(str(program))
    assert capsys.readouterr().out


@every_book
def test_it_is_stored_with_outputs_and_without_warnings_or_paths(book):
    text, cells = book.read_text(), code_cells(book)
    assert len(text) < 300_000
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), (
        "run from top to bottom"
    )
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]
    assert "site-packages" not in text
    assert str(FOLDER.parent) not in text


@every_book
def test_it_is_in_the_index(book):
    assert f"(notebooks/{book.name})" in (FOLDER.parent / "README.md").read_text()


@pytest.mark.parametrize("name", COMPUTED)
def test_no_number_is_typed_into_the_text(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert texts
    assert not [text for text in texts if any(letter.isdigit() for letter in text)]


@pytest.mark.parametrize(("title", "most"), [("# A network", 12), ("# A blueprint", 30)])
def test_own_parts_are_short(title, most):
    book = FOLDER / "07_own_network.ipynb"
    cells = ["".join(cell["source"]).splitlines() for cell in code_cells(book)]
    (lines,) = [cell[1:] for cell in cells if cell[0] == title]
    assert 0 < len([line for line in lines if line]) <= most
