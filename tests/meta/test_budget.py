"""Budgets of the source tree in syntax nodes, which packing lines does not change.

`budget.toml` holds them.  A change that raises a budget says what it deletes.
"""

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "morphogen"
BUDGET = tomllib.loads((Path(__file__).parent / "budget.toml").read_text())
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
PARAMETERS = 7
COLUMNS = 100


def docstrings(tree: ast.Module) -> set[int]:
    """Identities of the nodes of all docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, DOCUMENTED) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            found |= {id(first), id(first.value)}
    return found


def count_nodes(tree: ast.Module) -> int:
    """Number of syntax nodes without docstrings and contexts."""
    left_out = docstrings(tree)
    nodes = ast.walk(tree)
    return sum(
        not isinstance(node, ast.expr_context) and id(node) not in left_out for node in nodes
    )


def room(path: Path) -> str:
    """Folder of a file; an extra is a room of its own."""
    parts = path.relative_to(SRC).parts
    name = "/".join(parts[:2]) if parts[0] == "extras" else parts[0]
    return name.removesuffix(".py")


@cache
def trees() -> dict[Path, ast.Module]:
    """Syntax trees of all modules."""
    return {path: ast.parse(path.read_text()) for path in SRC.rglob("*.py")}


def nodes(kind):
    """Nodes of a kind in all modules."""
    found = (node for tree in trees().values() for node in ast.walk(tree))
    return [node for node in found if isinstance(node, kind)]


@cache
def rooms() -> Counter[str]:
    """Number of nodes of every room."""
    found: Counter[str] = Counter()
    for path, tree in trees().items():
        found[room(path)] += count_nodes(tree)
    return found


@pytest.mark.parametrize("name", BUDGET["rooms"])
def test_a_room_keeps_its_budget(name):
    assert rooms()[name] <= BUDGET["rooms"][name]


def test_the_budget_names_no_room_that_is_gone():
    assert set(BUDGET["rooms"]) == set(rooms())


def test_no_room_is_far_bigger_than_the_others():
    assert max(rooms().values()) <= BUDGET["biggest_room"] * sum(rooms().values())


def test_values_are_assigned_one_by_one():
    packed = [
        node
        for node in nodes(ast.Assign)
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple)
    ]
    assert len(packed) <= BUDGET["packed_assignments"]


def test_arguments_are_named_where_they_are_passed():
    calls = nodes(ast.Call)
    assert sum(word.arg is None for call in calls for word in call.keywords) <= BUDGET["splats"]


def test_functions_take_few_parameters():
    long = []
    for node in nodes(ast.FunctionDef):
        names = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
        if len(names) - (names[:1] in (["self"], ["cls"])) > PARAMETERS:
            long.append(node.name)
    assert len(long) <= BUDGET["long_signatures"], long


def test_lines_are_short():
    wide = [
        f"{path.relative_to(SRC)}:{number}"
        for path in trees()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not wide


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_other_folders_keep_their_budgets(folder):
    modules = [ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")]
    assert sum(map(count_nodes, modules)) <= BUDGET["folders"][folder]
