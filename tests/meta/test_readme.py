"""The README is true: commands as promised, paths and names exist, code runs."""

import ast
import json
import re
from pathlib import Path

import pytest
from support.small_runs import live, tiny_setup, world_of

from bench.speed import summary
from bench.studies import ablations, landscape, learning
from morphogen.cli import grid, main, parser
from morphogen.config.spec import LifecycleSpec

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "morphogen"
TEXT = (ROOT / "README.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and ".py`" in line.rpartition(" | ")[2]]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^    (morphogen train.*?)(?: > .*)?$", TEXT, flags=re.MULTILINE)


def defined(path):
    """Names that a module defines, at its top or as methods."""
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_two_commands_stand_there_word_for_word():
    assert "    pip install -e . && morphogen train\n" in TEXT
    assert '    pip install -e ".[test]" && pytest\n' in TEXT


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.(?:py|npz))?)`", TEXT))))
def test_every_path_exists(path):
    known = {"vocab", "state", "rules", "nets", "steps", "learn", "run", "tests"}
    if path.split("/")[0].rstrip("/") in known and "/" in path:
        assert (SRC / path).exists() or (ROOT / path).exists(), path


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_name_of_the_table_is_defined_where_it_says(row):
    for part in row.rpartition(" | ")[2].split(";"):
        quoted = re.findall(r"`([^`]+)`", part)
        files = [name for name in quoted if name.endswith(".py") and not name.startswith("tests/")]
        names = [name for name in quoted if name.isidentifier()]
        found = set().union(*(defined(SRC / name) for name in files)) if files else set()
        assert set(names) <= found, f"{set(names) - found} not in {files}"


def test_the_schedule_can_be_followed(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(re.findall(r"^```json\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)[0])
    setup = tiny_setup(policy_name=f"schedule:{path}", episode_length=9, lifecycle=LifecycleSpec())
    epochs = live(world_of(setup), setup.spec.policy_name)
    assert not any(epoch.act.missed.any() for epoch in epochs)
    assert [env[0] for env in epochs[-1].score.after.slots.stage.tolist()] == [3, 3, 3, 7]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1][:40])
def test_the_code_runs(block, tmp_path, monkeypatch, capsys, open_table):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_examples_are_accepted(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.json").write_text("{}")
    words = command.split()[1:]
    assert main.main([*words, "--print-config"]) == 0


@pytest.mark.parametrize("command", re.findall(r"^    morphogen (bench.*)$", TEXT, flags=re.MULTILINE))
def test_the_grids_of_the_page_are_accepted(command):
    assert grid.expand_grid(parser.parse_args(command.split(), "0"))


def test_the_table_of_costs_is_that_of_the_file():
    assert summary.markdown(json.loads(summary.RESULTS.read_text())) in TEXT


def test_the_coverage_is_that_of_the_file():
    found = json.loads((ROOT / "bench" / "results" / "coverage.json").read_text())
    held = [100 * row["coverage"] for row in found["rows"]]
    given = [100 * row["verdicts"] for row in found["a_against_a"]]
    words = " ".join(TEXT.split())
    assert f"held the truth in {min(held):.1f} to {max(held):.1f} % of samples" in words
    assert f"got a verdict in {min(given):.1f} to {max(given):.1f} %" in words


@pytest.mark.parametrize("bench", [learning, ablations], ids=["learning", "ablations"])
def test_the_tables_of_learning_are_those_of_their_files(bench):
    assert bench.markdown(json.loads(bench.FILE.read_text())) in TEXT


def test_the_calibration_is_that_of_the_file():
    found = json.loads(landscape.FILE.read_text())
    gain = next(one for one in found["gains"] if one["grows"] == "conv_heavy in r0c0")
    near, far = (gain[f"points at reach {at}"] for at in (0, 1))
    closed = [round(100 * one["closed_by_fixed"]) for one in found["prices"] if one["param_price"][1] in (0.1, 0.5)]
    words = " ".join(TEXT.split())
    assert f"these gain {near:.1f} points from `conv_heavy` in `r0c0`, the others {far:.1f}" in words
    assert f"one fixed schedule closes {closed[0]}%" in words
    assert f"it closes {closed[1]}%" in words


def test_every_file_of_a_run_is_explained():
    for name in ("config.json", "manifest.json", "events.jsonl", "checkpoints/", "policy.pt"):
        assert f"| `{name}` |" in TEXT


def words_of(whole) -> set[str]:
    """Every flag of a parser and of its commands."""
    commands = [one for action in whole._subparsers._group_actions for one in action.choices.values()]
    return {word for one in (whole, *commands) for word in one._option_string_actions}


def test_flags_that_the_page_names_exist():
    of_benchmarks = {"--full", "--kills", "--runs", "--table"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) <= words_of(parser.build_parser("0")) | of_benchmarks
