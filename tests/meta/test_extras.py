"""Extras: no file of the core contains the words of an extra, other than its declared hooks."""

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "morphogen"
EXTRAS = {  # name: words, and the files of the core that contain them, its hooks
    "search": (r"clairvoyant|successive_halving|schedule_search|portfolio", ()),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_core_does_not_know_the_words_of_an_extra(extra):
    words, hooks = EXTRAS[extra]
    files = {str(path.relative_to(SRC)) for path in SRC.rglob("*.py") if re.search(words, path.read_text())}
    assert {file for file in files if not file.startswith(f"extras/{extra}/")} == set(hooks)
