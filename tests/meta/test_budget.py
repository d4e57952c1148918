"""Budgets of the source tree in syntax nodes, which packing lines does not change.

`budget.toml` holds them.  A change that raises a budget says what it deletes.
"""

import ast
import tomllib
from collections import Counter
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


TREES = {path: ast.parse(path.read_text()) for path in SRC.rglob("*.py")}
NODES = [node for tree in TREES.values() for node in ast.walk(tree)]
ROOMS: Counter[str] = Counter()
for _path, _tree in TREES.items():
    ROOMS[room(_path)] += count_nodes(_tree)


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_a_room_keeps_its_budget(name):
    assert ROOMS[name] <= BUDGET["rooms"][name]


def test_the_budget_names_no_room_that_is_gone():
    assert set(BUDGET["rooms"]) == set(ROOMS)


def test_no_room_is_far_bigger_than_the_others():
    assert max(ROOMS.values()) <= BUDGET["biggest_room"] * sum(ROOMS.values())


def test_values_are_assigned_one_by_one():
    packed = [
        node
        for node in NODES
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
    ]
    assert len(packed) <= BUDGET["packed_assignments"]


def test_arguments_are_named_where_they_are_passed():
    calls = [node for node in NODES if isinstance(node, ast.Call)]
    assert sum(word.arg is None for call in calls for word in call.keywords) <= BUDGET["splats"]


def test_functions_take_few_parameters():
    long = []
    for node in NODES:
        if isinstance(node, ast.FunctionDef):
            names = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > PARAMETERS:
                long.append(node.name)
    assert len(long) <= BUDGET["long_signatures"], long


def test_lines_are_short():
    wide = [
        f"{path.relative_to(SRC)}:{number}"
        for path in TREES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not wide


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_other_folders_keep_their_budgets(folder):
    trees = [ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")]
    assert sum(map(count_nodes, trees)) <= BUDGET["folders"][folder]
