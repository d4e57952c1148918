"""Show that an extra can be taken away: the tests of the rest pass in a copy of the tree without
it.

    python tests/tools/without_extra.py NAME [ARGUMENT_OF_PYTEST ...]

The copy lacks the folder of the extra, its tests, its entry points, its public names, and the
extras that build on it. By default the fast suite runs there; `--collect-only -q` only collects it.
The pages are not tested, because they describe the whole tree.

Exit code: the one of pytest.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_BEHIND = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
BUILT_ON = {"gymnasium": ["sb3"]}  # extra -> extras that build on it
FAST = ("-m", "not slow", "--ignore", "tests/meta/test_readme.py")
METADATA = "from setuptools import setup; setup()"


def main(name: str, arguments: list[str]) -> int:
    """Copy the tree without an extra, and run pytest in the copy."""
    if not (ROOT / "src" / "morphogen" / "extras" / name).is_dir():
        print(f"NAME: expected a folder of src/morphogen/extras, got {name}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
        for extra in (name, *BUILT_ON.get(name, [])):
            remove_extra(copy, extra)
        quiet = {
            "cwd": copy,
            "check": True,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        subprocess.run([sys.executable, "-c", METADATA, "-q", "egg_info"], **quiet)
        environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *FAST, *arguments]
        return subprocess.run(command, cwd=copy, env=environment).returncode


def remove_extra(tree: Path, name: str) -> None:
    """Remove the files of an extra, and the lines that register it."""
    shutil.rmtree(tree / "src" / "morphogen" / "extras" / name)
    shutil.rmtree(tree / "tests" / "extras" / name, ignore_errors=True)
    named = re.compile(rf".*morphogen[./]extras[./]{name}[./].*\n")
    for path in (tree / "pyproject.toml", tree / "src" / "morphogen" / "__init__.pyi"):
        path.write_text(named.sub("", path.read_text()))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
