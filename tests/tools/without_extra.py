"""Show that an extra can be taken away: the tests of the rest pass in a copy of the tree without
it.

    python tests/tools/without_extra.py NAME [--whole] [ARGUMENT_OF_PYTEST ...]

The copy lacks the folder of the extra, its tests, its entry points, its public names, and the
extras that build on it. All tests are collected there, a run is trained, and the tests run that can
notice the loss: of the tree, of the registries, of the environment and of the command line, and
every file that names the extra or one of its parts. `--whole` runs all tests of the rest.
Pages and budgets are not tested, because they describe the complete tree.

Exit code: the one of the first command that failed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILDS_ON = {
    "export": ("arrays", "modules"),
    "mnist": ("modules",),
    "pictures": ("inspection",),
    "sb3": ("gymnasium",),
    "search": ("schedules",),
    "whitebox": ("regimes",),
}  # extra -> the extras that it needs
LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
PYTEST = ["-m", "pytest", "-p", "no:cacheprovider"]
PYTEST += [f"--ignore=tests/meta/test_{name}.py" for name in ("readme", "budget")]
SMOKE = ["-m", "morphogen", "train", "--preset", "smoke", "--quiet", "--out"]
NOTICING = ("meta", "unit/config", "unit/cli", "unit/env/test_environment.py")


def main(name: str, *arguments: str) -> int:
    """Copy the tree without an extra, and run commands in the copy."""
    if not (ROOT / "src" / "morphogen" / "extras" / name).is_dir():
        print(f"NAME: expected a folder of src/morphogen/extras, got {name}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
        names = {name, *(extra for extra, bases in BUILDS_ON.items() if name in bases)}
        parts = set().union(*(remove_extra(copy, extra) for extra in names))
        options = [argument for argument in arguments if argument != "--whole"]
        noticing = {f"tests/{place}" for place in NOTICING} | files_that_name(copy, parts)
        fast = [*sorted(noticing), "-m", "not slow"]
        environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
        for command in (
            ["-c", "from setuptools import setup; setup()", "-q", "egg_info"],
            [*PYTEST, "--collect-only", "-n", "0"],
            [*SMOKE, str(Path(folder) / "run")],
            [*PYTEST, *(fast if options == list(arguments) else []), *options],
        ):
            process = subprocess.run(
                [sys.executable, *command],
                cwd=copy,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            lines = process.stdout.splitlines()
            print(*(lines if process.returncode else lines[-1:]), sep="\n", flush=True)
            if process.returncode:
                break
        return process.returncode


def remove_extra(tree: Path, name: str) -> set[str]:
    """Remove the files of an extra, and the lines that register it; return the names in them."""
    shutil.rmtree(tree / "src" / "morphogen" / "extras" / name)
    shutil.rmtree(tree / "tests" / "extras" / name, ignore_errors=True)
    line = re.compile(rf'.*?(?:"?([\w.-]+)"? = ")?morphogen[./]extras[./]{name}[./:].*\n')
    parts = {name}
    for path in (tree / "pyproject.toml", tree / "src" / "morphogen" / "__init__.pyi"):
        parts |= set(line.findall(path.read_text())) - {""}
        path.write_text(line.sub("", path.read_text()))
    return parts


def files_that_name(tree: Path, parts: set[str]) -> set[str]:
    """Return the test files that hold one of the names in quotes."""
    quoted = re.compile(rf"[\"'](?:{'|'.join(sorted(map(re.escape, parts)))})[\"']")
    files = (tree / "tests").rglob("test_*.py")
    return {str(path.relative_to(tree)) for path in files if quoted.search(path.read_text())}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
