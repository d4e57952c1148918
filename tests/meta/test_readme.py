"""README and manual are true: commands as promised, paths and names exist, code runs."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from support.extras import needs_extra
from support.manual_gates import by_hand
from support.small_runs import live, tiny_setup, world_of

import morphogen
from bench.speed import summary
from bench.studies import ablations, learning, transfer
from morphogen.cli import main
from morphogen.config.task import TASKS
from morphogen.testing.laws import search

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "morphogen"
README, MANUAL, NAMES = ROOT / "README.md", SRC / "MANUAL.md", SRC / "ORIGINAL_NAMES.md"
SETTINGS = SRC / "SETTINGS.md"
PAGES = (
    README,
    MANUAL,
    SETTINGS,
    NAMES,
    ROOT / "bench" / "README.md",
    ROOT / "tests" / "README.md",
)
FRONT, BENCH = README.read_text(), (ROOT / "bench" / "README.md").read_text()
TEXT = "\n".join(page.read_text() for page in PAGES)
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("| ") and ".py`" in line.rpartition(" | ")[2]
]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^    (morphogen train.*?)(?: > .*)?$", TEXT, flags=re.MULTILINE)
ROOMS = {path.name for path in SRC.iterdir() if path.is_dir()} | {
    "tests",
    "bench",
    "notebooks",
    "src",
}
LINES, WORDS, FIRST_BLOCK = 150, 1100, 60  # limits of the front page


def defined(path):
    """Names that a module defines, at its top or as methods."""
    tree = ast.parse(path.read_text())
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_two_commands_stand_there_word_for_word():
    assert "    pip install -e . && morphogen train\n" in TEXT
    assert '    pip install -e ".[test]" && pytest\n' in TEXT


def test_the_front_page_is_short():
    lines = FRONT.splitlines()
    assert len(lines) <= LINES
    assert len(FRONT.split()) <= WORDS
    assert lines.index("```python") < FIRST_BLOCK


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.[a-z]+)?)`", TEXT)))
)
def test_every_path_exists(path):
    if path.split("/")[0] in ROOMS and "/" in path:
        assert (SRC / path).exists() or (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def headings(text):
    """Headings of a page below its title: level and words, in order."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^(##+) (.+)$", prose, flags=re.MULTILINE)


def anchors(text):
    """Anchors that GitHub gives to the headings of a page; the second of equal ones ends in -1."""
    found = []
    title = re.findall(r"^# (.+)$", text, flags=re.MULTILINE)[:1]
    for words in [*title, *(words for _, words in headings(text))]:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)  # a link leaves its words
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        copies = sum(re.fullmatch(rf"{slug}(-\d+)?", other) is not None for other in found)
        found.append(f"{slug}-{copies}" if copies else slug)
    return found


def test_anchors_follow_the_rule_of_github():
    text = "# A page\n## `ppo.clip_end`, or not\n```\n## code\n```\n### Go on\n## Go on\n"
    assert anchors(text) == ["a-page", "ppoclip_end-or-not", "go-on", "go-on-1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_heading_resolves(page):
    links = re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", page.read_text())
    for file, anchor in links:
        target = page.parent / file if file else page
        assert anchor in anchors(target.read_text()), f"{file}#{anchor}"


def test_the_contents_of_the_manual_name_every_heading_in_order():
    text = MANUAL.read_text()
    contents = text.partition("## Contents")[2].partition("\n## ")[0]
    words = [words for _, words in headings(text) if words != "Contents"]
    assert re.findall(r"\[([^\]]+)\]\(#", contents) == words
    sections = [words for level, words in headings(text) if level == "##"]
    assert re.findall(r"^\* \[([^\]]+)\]", contents, flags=re.MULTILINE) == sections[1:]


def test_every_package_is_on_the_map():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")} | {"errors"}
    rows = FRONT.partition("## Folders")[2].partition("## Where the rest is")[0]
    assert packages <= set(re.findall(r"`(\w+)`", rows))


@pytest.mark.parametrize(
    "module", sorted(set(re.findall(r"bench\.(?:speed|studies)\.[a-z]+", TEXT)))
)
def test_every_benchmark_exists(module):
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_name_of_the_table_is_defined_where_it_says(row):
    for part in row.rpartition(" | ")[2].split(";"):
        quoted = re.findall(r"`([^`]+)`", part)
        files = [
            name
            for name in quoted
            if name.endswith(".py") and "/" in name and not name.startswith("tests/")
        ]
        names = [name for name in quoted if name.isidentifier()]
        known = set().union(*(defined(SRC / name) for name in files)) if files else set()
        assert set(names) <= known, f"{set(names) - known} not in {files}"


@needs_extra("schedules")
def test_the_schedule_can_be_followed(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(re.findall(r"^```json\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)[0])
    setup = tiny_setup(policy_name=f"schedule:{path}", episode_length=9, lifecycle=by_hand())
    epochs = live(world_of(setup), setup.spec.policy_name)
    assert not any(epoch.inputs.missed.any() for epoch in epochs)
    assert [env[0] for env in epochs[-1].after.slots.stage.tolist()] == [3, 3, 3, 7]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            block, marks=pytest.mark.slow if "train_ppo" in block or "laws" in block else ()
        )
        for block in BLOCKS
    ],
    ids=lambda block: block.splitlines()[-1][:40],
)
def test_the_code_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search, "MAX_SHRINKS", 5)  # of the smallest example of a broken law
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_examples_are_accepted(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.json").write_text("{}")
    Path("my_parts.py").write_text(
        "from dataclasses import replace; import morphogen as mg\n"
        "mg.TASKS.register('mine', replace(mg.TASKS['digits'], name='mine'))\n"
        "mg.RULES.register('thrift', mg.rule_from_function(lambda inputs: {'size': -1.0 * "
        "inputs.live_params}))\n"
    )
    words = command.split()[1:]
    assert main.main([*words, "--print-config"]) == 0


def test_the_table_of_costs_is_that_of_the_file():
    assert summary.markdown(json.loads(summary.RESULTS.read_text())) in BENCH


def test_the_front_page_quotes_the_tables():
    file = learning.FILE.with_stem("learning_fashion")
    learned = learning.markdown(json.loads(file.read_text())).splitlines()
    part = FRONT.partition("## Does it learn?")[2].partition("## Words")[0].splitlines()
    table = [line for line in learned if line.startswith("| ")]
    assert [line for line in part if line.startswith("| ")] == table
    assert {"`trained`", "`wait`", "`random`", "`heuristic`", "`fashion_schedule`"} <= {
        row.split()[1] for row in table[1:]
    }
    assert f"{learned[0]}:" in part


@pytest.mark.parametrize(
    ("bench", "name"),
    [
        (learning, "learning"),
        (learning, "learning_digits"),
        (learning, "learning_fashion"),
        (learning, "learning_fashion_cheap"),
        (ablations, "ablations"),
        (ablations, "ablations_epyc"),
        (transfer, "transfer"),
    ],
)
def test_the_tables_of_learning_are_those_of_their_files(bench, name):
    assert bench.markdown(json.loads(bench.FILE.with_stem(name).read_text())) in BENCH


@needs_extra("fashion")
@needs_extra("mnist")
@needs_extra("text")
@needs_extra("whitebox")
@needs_extra("search")  # which the study uses
@needs_extra("schedules")
def test_figures_of_tasks_are_those_of_the_file():
    worlds = import_module("bench.studies.worlds")
    found = json.loads(worlds.FILE.read_text())
    assert worlds.markdown(found) in BENCH
    assert {task: TASKS[task].figures for task in found["worlds"]} == {
        task: worlds.figures(row) for task, row in found["worlds"].items()
    }


def test_every_file_of_a_run_is_explained():
    for name in (
        "config.json",
        "manifest.json",
        "events.jsonl",
        "checkpoints/",
        "policy.safetensors",
    ):
        assert f"| `{name}` |" in TEXT


def flags_of(parsers) -> set[str]:
    """Every flag of a parser and of its commands."""
    commands = [
        command
        for action in parsers._subparsers._group_actions
        for command in action.choices.values()
    ]
    return {flag for command in (parsers, *commands) for flag in command._option_string_actions}


def test_flags_that_the_pages_name_exist():
    of_other_commands = {
        "--add",
        "--full",
        "--search",
        "--train",
        "--write",
        "--kills",
        "--kinds-on",
        "--reactive",
        "--table",
        "--markdown",
        "--picture",
        "--no-show-source",
        "--hypothesis-profile",
    }
    of_torchrun = {
        "--nproc-per-node",
        "--max-restarts",
        "--nnodes",
        "--rdzv-backend",
        "--rdzv-endpoint",
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", TEXT)) <= (
        flags_of(main.build_parser("0")) | of_other_commands | of_torchrun
    )


def test_the_registry_names_every_package_and_resolves():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")} | {"errors"}
    assert packages == {name for name, home in morphogen._HOMES.items() if home == "morphogen"}
    assert morphogen.__all__ == sorted(morphogen._HOMES)
    assert set(dir(morphogen)) == {*morphogen.__all__, "__version__"}
