"""Mutation check: do the tests notice a bug?  Small hand-made bugs, one at a time, in a copy of the
project.

    python tests/tools/mutate.py [--only PATTERN] [--jobs N] [--timeout S]

The bugs stand in `tests/meta/mutants/*.toml`: a sentence that says what is wrong, the file under
the package, the text before and after, and the test files (or `file::test`) that should notice.

Exit code 0: all were noticed; 1: not all; 2: no verdict.
"""

import argparse
import ast
import importlib.util
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

import pytest

ROOT = Path(__file__).parents[2]
PYTEST = (
    "-x",
    "-q",
    "-n0",
    "-p",
    "no:cacheprovider",
    "--tb=no",
    "-rfE",
    "--hypothesis-profile=unshrunk",
)
ALL_TESTS = 3600.0  # seconds
LEFT_BEHIND = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "runs")
NOTICED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(\S+?\.py::\w+(?:\[\S+)?)", re.MULTILINE)
# Every run of tests is a fresh fork.
FRESH = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: in `file`, the only `before` becomes `after`; one of `tests` should fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The source with the bug in it; a ValueError where it does not fit the source or changes
        nothing.  Line breaks and trailing commas of the source do not matter.
        """
        tokens = re.findall(r"\w+|[^\w\s]", self.before)
        pattern = r"\s*".join(
            (r",?\s*" if token in ")]}" else "") + re.escape(token) for token in tokens
        )
        count = len(re.findall(pattern, text))
        if count != 1:
            raise ValueError(f"{self.name!r}: `before` occurs {count} times in {self.file}; want 1")
        changed = re.sub(pattern, lambda _: self.after, text)
        if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text)):
            raise ValueError(f"{self.name!r} changes no code in {self.file}")
        return changed


class Fate(StrEnum):
    """Outcome of a mutant.  Only the first is good."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the tests could not even be collected: no bug that anybody would overlook


@dataclass(frozen=True, slots=True)
class Result:
    """One mutant judged: its fate, by which test, after how long."""

    name: str
    file: str
    fate: Fate
    by: str
    seconds: float

    def line(self) -> str:
        """For the terminal."""
        caught = f"  <- {self.by}" if self.by else ""
        return f"{self.fate:8} {self.seconds:5.1f} s  {self.file}: {self.name}{caught}"


def load(folder: Path) -> tuple[Mutant, ...]:
    """All mutants of a folder of TOML files, in the order of files and entries."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            found.append(Mutant(**{**entry, "tests": tuple(entry["tests"])}))
    return tuple(found)


class Workspace:
    """A copy of the project in which mutants are tried one after the other."""

    def __init__(self, source: Path, where: Path) -> None:
        shutil.copytree(source, where, ignore=LEFT_BEHIND)
        self.root = where
        (self.package,) = (path.parent for path in where.glob("src/*/__init__.py"))

    def pytest(
        self, tests: Sequence[str], timeout: float, *, cached: bool = False
    ) -> tuple[int | None, str]:
        """Exit code (None: too slow) and output.  `cached`: byte code may be written."""
        child = FRESH.Process(
            target=_tests, args=(self.package, [f"tests/{name}" for name in tests], cached)
        )
        child.start()
        child.join(timeout)
        if child.is_alive():
            child.kill()
            child.join()
            return None, ""
        return child.exitcode, (self.root / "output").read_text()

    def judge(self, mutant: Mutant, timeout: float) -> Result:
        """Try one mutant on its own test files."""
        path, started = self.package / mutant.file, time.perf_counter()
        kept = path.with_name(path.name + ".orig")
        shutil.copy2(path, kept)  # with its time, so that its byte code stays valid
        path.write_text(mutant.applied(path.read_text()))
        later = kept.stat().st_mtime + 10.0  # byte code is judged by size and whole seconds
        os.utime(path, (later, later))
        fate, by = _fate(*self.pytest(mutant.tests, timeout))
        kept.replace(path)
        return Result(mutant.name, mutant.file, fate, by, round(time.perf_counter() - started, 1))


def _tests(package: Path, files: list[str], cached: bool) -> None:
    """Run pytest in a new process on the copy of the package, with the output in a file."""
    root = package.parents[1]
    os.chdir(root)
    with open("output", "wb") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    sys.dont_write_bytecode = not cached  # a mutant leaves nothing behind
    sys.path.insert(0, str(package.parent))
    found = importlib.util.find_spec(package.name)
    if found is None or Path(str(found.origin)).parent != package:
        sys.exit(f"{package.name} would not be imported from the copy")
    sys.exit(pytest.main([*PYTEST, *files]))


def _fate(code: int | None, output: str) -> tuple[Fate, str]:
    noticed = NOTICED.search(output)
    if code is None:
        return Fate.TIMEOUT, ""
    if code == 1 and noticed:
        return Fate.CAUGHT, noticed[1]
    return (Fate.SURVIVED, "") if code == 0 else (Fate.BROKEN, "")


def unfit(workspace: Workspace, mutants: Sequence[Mutant]) -> str:
    """Why nothing can be judged: the tests fail without any mutant.  Empty: all is well."""
    files = tuple(dict.fromkeys(name for mutant in mutants for name in mutant.tests))
    code, output = workspace.pytest(files, ALL_TESTS, cached=True)
    return "" if code == 0 else f"the tests fail without a mutant:\n{output}"


def judged(
    mutants: Sequence[Mutant], spaces: Sequence[Workspace], timeout: float
) -> Iterator[Result]:
    """All results, as they come in; every workspace works on one mutant at a time."""
    free: SimpleQueue[Workspace] = SimpleQueue()
    for space in spaces:
        free.put(space)

    def one(mutant: Mutant) -> Result:
        space = free.get()
        try:
            return space.judge(mutant, timeout)
        finally:
            free.put(space)

    with ThreadPoolExecutor(len(spaces)) as pool:
        for future in as_completed([pool.submit(one, mutant) for mutant in mutants]):
            yield future.result()


def summary(results: Sequence[Result]) -> str:
    """Every mutant that was not caught, and how many were."""
    missed = [result.line() for result in results if result.fate is not Fate.CAUGHT]
    caught = len(results) - len(missed)
    return "\n".join([*missed, f"{caught} of {len(results)} mutants caught"])


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Do the tests notice a bug?")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="regular expression on `file: name`"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="mutants at a time, each in its own copy"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one mutant"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Judge the mutants; the exit code."""
    given, started = arguments(argv), time.perf_counter()
    mutants = [
        m
        for m in load(root / "tests" / "meta" / "mutants")
        if re.search(given.only, f"{m.file}: {m.name}")
    ]
    if not mutants:
        print(f"no mutant matches {given.only!r}")
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        first = Workspace(root, Path(folder) / "0")
        reason = unfit(first, mutants)
        if reason:
            print(reason)
            return 2
        spaces = [
            first,
            *(Workspace(first.root, Path(folder) / str(i)) for i in range(1, given.jobs)),
        ]
        results = []
        for result in judged(mutants, spaces, given.timeout):
            results.append(result)
            print(f"[{len(results):3}/{len(mutants)}] {result.line()}", flush=True)
    seconds = round(time.perf_counter() - started, 1)
    print(f"\n{summary(results)} in {seconds} s")
    return int(any(result.fate is not Fate.CAUGHT for result in results))


if __name__ == "__main__":
    # A fork has what takes longest to import: a third of the time.  Not for importers of this
    # module, whose other forks have their own list.
    FRESH.set_forkserver_preload(["torch", "tensordict", "torchrl", "pytest"])
    sys.exit(main())
