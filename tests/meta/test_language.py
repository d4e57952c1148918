"""Tics of language stay away: each is counted by its pattern, in the files where it was a habit.

python -m meta.test_language        prints the counts, from the folder `tests`
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERYWHERE = ("src", "tests", "bench", "notebooks", "README.md")
SUFFIXES = (".py", ".pyi", ".md", ".ipynb", ".toml")
LISTS = {Path(__file__), ROOT / "tests/meta/test_house.py"}  # they name the words
TICS = {  # name -> (pattern, places)
    "those of, that of": (r"(?i)\b(?:those|that) of\b", EVERYWHERE),
    "told": (r"\b_?told\b", ("tests",)),
    "lived": (r"\b_?lived\b", ("tests",)),
    "in a row": (r"\w+s in a row", ("src", "tests")),
}


def files(places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in found if file.suffix in SUFFIXES and file not in LISTS)


def occurrences(pattern: str, places: tuple[str, ...]) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files(places)
        for line in file.read_text().splitlines()
        if re.search(pattern, line)
    ]


def first_lines(folder: str) -> Iterator[str]:
    """First lines of docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for file in files((folder,)):
        nodes = ast.walk(ast.parse(file.read_text())) if file.suffix == ".py" else ()
        texts = (ast.get_docstring(node) for node in nodes if isinstance(node, kinds))
        yield from (text.splitlines()[0] for text in texts if text)


def objects_named_what() -> list[str]:
    return [line for line in first_lines("src") if re.search(r"\w,? what\b", line)]


@pytest.mark.parametrize("tic", TICS)
def test_a_tic_stays_away(tic):
    assert not occurrences(*TICS[tic])


def test_a_first_line_names_its_object():
    assert not objects_named_what()


def test_a_planted_tic_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "one.py").write_text("# it lived like those of old\n")
    assert [bool(occurrences(*tic)) for tic in TICS.values()] == [True, False, True, False]


if __name__ == "__main__":
    for tic, where in TICS.items():
        print(f"{len(occurrences(*where)):>5}  {tic}")
    print(f"{len(objects_named_what()):>5}  what, as an object in a first line")
