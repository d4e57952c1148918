"""The mutation check itself: its list fits the source, and it tells a bug that is noticed from one
that is not.
"""

import textwrap
from pathlib import Path

import pytest
from tools.mutate import ROOT, Mutant, load, main

MUTANTS = load(ROOT / "tests" / "meta" / "mutants")
TOY = {
    "src/toy/__init__.py": "",
    "src/toy/sums.py": "LIMIT = 3\n\n\ndef add(a, b):\n    return a + b\n",
    "tests/conftest.py": """
        from hypothesis import settings
        settings.register_profile("unshrunk", max_examples=5)
    """,
    "tests/test_sums.py": """
        from toy.sums import add

        def test_one_and_one_is_two():
            assert add(1, 1) == 2
    """,
    "tests/meta/mutants/toy.toml": """
        [[mutant]]
        name = "sums are differences"
        file = "sums.py"
        before = 'a + b'
        after = 'a - b'
        tests = ["test_sums.py"]

        [[mutant]]
        name = "a limit that nobody reads"
        file = "sums.py"
        before = '3'
        after = '4'
        tests = ["test_sums.py"]
    """,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_every_mutant_fits_one_place_of_the_source_and_changes_its_code(mutant):
    assert mutant.applied((ROOT / "src" / "morphogen" / mutant.file).read_text())
    assert mutant.tests
    for name in mutant.tests:
        file, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / "tests" / file).read_text()


def test_every_bug_has_a_name_of_its_own():
    names = [(mutant.file, mutant.name) for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("c", "d", "occurs 0 times"),
        ("a", "b", "occurs 2 times"),
        ("# why", "# how", "changes no code"),
    ],
)
def test_a_mutant_that_does_not_fit_is_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        Mutant("wrong", "x.py", before, after, ()).applied("a = a  # why\n")


def toy(root: Path) -> Path:
    for name, text in TOY.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


def test_only_when_all_are_caught_the_exit_code_is_zero(tmp_path):
    root = toy(tmp_path)
    assert main(["--only", "differences"], root=root) == 0
    assert main(["--only", "differences|limit"], root=root) == 1
