"""The mutation check itself: its list fits the source, and it tells a bug that is noticed from one that is not."""

import json
import textwrap
from pathlib import Path

import pytest
from tools.mutate import ROOT, Mutant, load, main

MUTANTS = load(ROOT / "tests" / "meta" / "mutants")
TOY = {
    "src/toy/__init__.py": "",
    "src/toy/sums.py": "def add(a, b):\n    return a + b\n\n\ndef last(x):\n    return x[-1]\n",
    "src/toy/unused.py": "LIMIT = 3\n",
    "tests/conftest.py": """
        from hypothesis import settings
        settings.register_profile("unshrunk", max_examples=5)
    """,
    "tests/test_sums.py": """
        from toy.sums import add

        def test_adding_nothing_changes_nothing():
            assert add(3, 0) == 3

        def test_one_and_one_is_two():
            assert add(1, 1) == 2
    """,
    "tests/test_last.py": """
        from toy.sums import last

        def test_the_last_one_is_at_the_end():
            assert last([1, 2]) == 2
    """,
    "tests/meta/mutants/toy.toml": """
        [[mutant]]
        name = "sums are differences"
        file = "sums.py"
        before = 'a + b'
        after = 'a - b'
        tests = ["test_sums.py"]

        [[mutant]]
        name = "the last is the first"
        file = "sums.py"
        before = 'x[-1]'
        after = 'x[0]'
        tests = ["test_sums.py"]

        [[mutant]]
        name = "a limit that nobody reads"
        file = "unused.py"
        before = '3'
        after = '4'
        tests = ["test_sums.py"]

        [[mutant]]
        name = "a sum that never ends"
        file = "sums.py"
        before = 'return a + b'
        after = 'return add(a, b) if __import__("time").sleep(60) else 0'
        tests = ["test_sums.py"]

        [[mutant]]
        name = "a module without its function"
        file = "sums.py"
        before = 'def add('
        after = 'def plus('
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
    [("c", "d", "occurs 0 times"), ("a", "b", "occurs 2 times"), ("# why", "# how", "changes no code")],
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


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def fates(path: Path) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["fate"], one["by"]) for one in json.loads(path.read_text())["results"]}


def test_it_says_which_test_caught_which_bug_and_leaves_the_project_alone(tmp_path, capsys):
    root, out = toy(tmp_path / "project"), tmp_path / "results.json"
    before = contents(root)
    assert main(["--only", "^(?!.*never ends)", "--jobs", "2", "--json", str(out)], root=root) == 1
    assert fates(out) == {
        "sums are differences": ("caught", "test_sums.py::test_one_and_one_is_two"),
        "the last is the first": ("survived", ""),
        "a limit that nobody reads": ("survived", ""),
        "a module without its function": ("broken", ""),
    }
    assert contents(root) == before
    assert "1 of 4 mutants caught" in capsys.readouterr().out


def test_only_when_all_are_caught_the_exit_code_is_zero(tmp_path):
    root = toy(tmp_path)
    assert main(["--only", "differences"], root=root) == 0
    assert main(["--only", "differences|limit"], root=root) == 1


def test_a_bug_that_hangs_the_tests_is_stopped_and_not_caught(tmp_path):
    root, out = toy(tmp_path / "project"), tmp_path / "results.json"
    assert main(["--timeout", "2", "--only", "never ends", "--json", str(out)], root=root) == 1
    assert fates(out) == {"a sum that never ends": ("timeout", "")}


def test_the_whole_suite_is_a_second_chance(tmp_path):
    root, out = toy(tmp_path / "project"), tmp_path / "results.json"
    assert main(["--whole", "--only", "last|limit", "--json", str(out)], root=root) == 1
    assert fates(out) == {
        "the last is the first": ("caught", "test_last.py::test_the_last_one_is_at_the_end"),
        "a limit that nobody reads": ("survived", ""),
    }


def test_nothing_is_judged_where_tests_fail_without_a_mutant_or_no_mutant_is_named(tmp_path, capsys):
    root = toy(tmp_path)
    assert main(["--only", "no such bug"], root=root) == 2
    (root / "tests" / "test_sums.py").write_text("def test_wrong():\n    assert False\n")
    assert main(["--only", "differences"], root=root) == 2
    assert "without a mutant" in capsys.readouterr().out
