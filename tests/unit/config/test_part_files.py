"""Parts in files of `--import`: registered once, listed and used by name; every fault is one line
with its place.
"""

import json
import sys

import pytest
from support.extras import needs_extra

from morphogen.cli import main
from morphogen.config import part_files
from morphogen.config.part_files import import_parts
from morphogen.config.parts import RULES
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.log import run_directory

SOURCE = '''"""A task and a rule."""

from dataclasses import replace

import helper_of_parts
import morphogen as mg

print("a word on stdout")
mg.TASKS.register("mine", replace(mg.TASKS["tiny"], name="mine", question=helper_of_parts.QUESTION))
mg.RULES.register("thrift", mg.rule_from_function(lambda inputs: {"size": -1.0 * inputs.live_params}))
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a file of parts; what a test imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "my_parts.py").write_text(SOURCE)
    (tmp_path / "helper_of_parts.py").write_text("QUESTION = 'is it mine?'\n")
    yield tmp_path
    for name in [
        name
        for name, module in sys.modules.items()
        if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["my_parts.py", "./my_parts.py", "my_parts"])
def test_parts_of_a_file_or_module_have_names_and_it_runs_once(folder, name, capsys):
    for _ in range(2):
        import_parts(name)
    assert (TASKS["mine"].question, "thrift" in RULES) == ("is it mine?", True)
    assert part_files.IMPORTED[-1] == (
        "my_parts" if name == "my_parts" else str(folder / "my_parts.py")
    )
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "a word on stdout\n")


BROKEN = {
    "x = 1\n": "bad.py registers no part: expected a call such as morphogen.TASKS.register",
    "import os\n\n1 / 0\n": "bad.py, line 3: ZeroDivisionError: division by zero",
    "import json\n\n\ndef read():\n    "
    "json.loads('{')\n\n\nread()\n": "bad.py, line 5: JSONDecodeError: ",
    "def f(:\n": "bad.py: SyntaxError: ",
    "import nowhere_at_all\n": "bad.py, line 1: ModuleNotFoundError: No module named "
    "'nowhere_at_all'",
    "raise SystemExit(3)\n": "bad.py, line 1: SystemExit: 3",
    "import morphogen as mg\n\nmg.RULES.register('delta', "
    "len)\n": "bad.py, line 3: reward rule delta: expected a new",
    "import morphogen as mg\n\nmg.RunSpec(envs=0, "
    "rounds=0)\n": "bad.py, line 3: rounds: expected a number greater",
}


@pytest.mark.parametrize("source", list(BROKEN))
def test_a_file_that_raises_or_registers_nothing_is_refused_in_one_line(folder, source, capsys):
    (folder / "bad.py").write_text(source)
    assert main.main(["train", "--dry-run", "--import", "bad.py"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"morphogen: error: --import: {BROKEN[source]}")
    assert part_files.IMPORTED == []


@pytest.mark.parametrize(
    "name",
    ["none.py", "folder.py", "nowhere_at_all", "helper_of_parts.nothing", "a/b", "~/none.py"],
)
def test_a_name_without_a_file_or_module_is_refused(folder, name):
    (folder / "folder.py").mkdir()
    with pytest.raises(
        ConfigError,
        match=r"--import: expected a Python file \(.py\) or the dotted name of a module, got",
    ):
        import_parts(name)


@needs_extra("catalogue")
def test_a_command_finds_the_names(capsys):
    assert main.main(["data", "mine", "--json", "--import", "my_parts.py"]) == 0
    [row] = json.loads(capsys.readouterr().out)["tasks"]
    assert (row["task"], row["of"]) == ("mine", "this program")


def test_a_run_whose_parts_are_not_imported_says_which_file_it_needs(folder, capsys):
    run = folder / "run"
    run.mkdir()
    (run / run_directory.CONFIG).write_text('{"task": "mine"}')
    (run / run_directory.MANIFEST).write_text(
        json.dumps({"imports": [str(folder / "my_parts.py")]})
    )
    assert main.main(["resume", "run"]) in (2, 3)
    assert capsys.readouterr().err.endswith(f"; the run needs --import {folder / 'my_parts.py'}\n")


@pytest.mark.parametrize("imports", [None, 3, "x.py", [3], [], {"a": 1}])
def test_a_manifest_with_other_imports_does_no_harm(folder, imports):
    (folder / run_directory.MANIFEST).write_text(json.dumps({"imports": imports}))
    hint = run_directory.missing_imports(folder)
    assert hint == ("; the run needs --import 3" if imports == [3] else "")
