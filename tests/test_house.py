"""The house rules, checked by reading the source: who may import whom, how big a room may be, who may ask the host."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from morphogen.testing.audit import source_reads

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "morphogen"
FLOORS = {
    "errors": -1,
    "kernels": 0,
    "vocab": 0,
    "state": 1,
    "rules": 2,
    "nets": 2,
    "steps": 3,
    "learn": 4,
    "run": 5,
    "testing": 5,
}
GLOBAL_DRAWS = re.compile(
    r"manual_seed|torch\.rand|torch\.normal|torch\.multinomial|np\.random|random\.(random|seed|choice)"
)
FILES = sorted(SRC.rglob("*.py"))
LINES, FUNCTION, POSITIONAL, NESTING = 300, 40, 5, 2
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try)
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "bench",
    "notebooks",
    "pyproject.toml",
    "src",
    "tests",
}


def room(path: Path) -> str:
    parts = path.relative_to(SRC).parts
    return parts[0].removesuffix(".py")


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
        if node.module == "morphogen":
            names = [f"morphogen.{alias.name}" for alias in node.names]
        return names
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def depth(node: ast.AST) -> int:
    """How deep blocks are nested inside a statement; an `elif` is not a level of its own."""
    own = isinstance(node, BLOCKS)
    below = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda):
            continue
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        below = max(below, depth(child) - (1 if chained else 0))
    return below + int(own)


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))


@every_file
def test_imports_point_down(path):
    here = FLOORS.get(room(path), 9)  # the front door is above all floors
    for node in ast.walk(ast.parse(path.read_text())):
        for name in imported(node):
            if not name.startswith("morphogen."):
                continue
            other = name.split(".")[1]
            assert other == room(path) or FLOORS[other] < here or (room(path), other) == ("nets", "rules"), (
                f"{path.name} imports {name}, which is not below it"
            )


@every_file
def test_imports_stand_at_the_top_of_a_module(path):
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert id(node) in top, f"{path.name}:{node.lineno} imports inside a block"


@every_file
def test_rooms_are_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{path.name}:{node.lineno} {node.name}"
        assert (node.end_lineno or 0) - node.lineno < FUNCTION, f"{where} is longer than {FUNCTION} lines"
        positional = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
        assert len(positional) <= POSITIONAL, f"{where} has {len(positional)} positional parameters"
        assert max((depth(child) for child in node.body), default=0) <= NESTING, f"{where} nests blocks too deep"


@every_file
def test_nothing_below_the_top_floor_asks_the_host(path):
    if FLOORS.get(room(path), 9) >= FLOORS["run"]:
        return
    text = path.read_text()
    for line, name in source_reads(text):
        pytest.fail(f"{path.name}:{line} leaves the device with .{name}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            assert node.id not in ("open", "print", "input"), f"{path.name}:{node.lineno} does input or output"


@every_file
def test_no_draw_reads_a_global_generator(path):
    assert not GLOBAL_DRAWS.search(path.read_text())


def test_the_vocabulary_is_standard_library_only():
    for path in [*(SRC / "vocab").glob("*.py"), SRC / "errors.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            for name in imported(node):
                assert name.split(".")[0] not in {"torch", "tensordict", "torchrl", "numpy", "rich"}, f"{path}: {name}"


def test_the_top_level_holds_nothing_else():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip(f"the tree is not a git checkout here: {tracked.stderr.strip()}")
    assert {line.split("/")[0] for line in tracked.stdout.splitlines()} <= TOP_LEVEL
