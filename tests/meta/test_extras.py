"""Extras: no file of the core contains the words of an extra, other than its declared hooks."""

import ast
import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "morphogen"
RANKS = (
    "config/execution_spec.py",  # the settings
    "telemetry/jsonl.py",  # a field of every line of the event file
    "telemetry/record_files.py",  # names of the records of earlier versions
)
EXTRAS = {  # name: words, and the files of the core that contain them, its hooks
    "ranks": (r"(?i)\branks?\b|collective|torchrun|world_size", RANKS)
}
each_extra = pytest.mark.parametrize("extra", [name for name in EXTRAS if (SRC / "extras" / name).exists()])


@each_extra
def test_the_core_does_not_know_the_words_of_an_extra(extra):
    words, hooks = EXTRAS[extra]
    files = {str(path.relative_to(SRC)) for path in SRC.rglob("*.py") if re.search(words, path.read_text())}
    assert {file for file in files if not file.startswith("extras/")} == set(hooks)


@each_extra
def test_an_extra_says_what_it_holds_and_where_it_plugs_in(extra):
    text = ast.get_docstring(ast.parse((SRC / "extras" / extra / "__init__.py").read_text())) or ""
    assert 15 <= len(text.splitlines()) <= 30
    assert "torch" in text
    assert "lugs in" in text
