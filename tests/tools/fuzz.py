"""Inputs that somebody else may have written, thousands of each kind.

    PYTHONPATH=tests python tests/tools/fuzz.py [--examples N] ...

Whatever the input, the outcome is a result or one of our errors whose text names the file or the
field; nothing else is raised or warned of, nothing is written, and no memory is taken for what a
file merely claims.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import chdir, contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from support.fuzz_inputs import KINDS, import_plots

from morphogen.errors import CheckpointError, ConfigError, DataError

REFUSALS = (ConfigError, DataError, CheckpointError)  # a ScheduleError is a ConfigError
SLOWEST, PATIENCE_S = 2.0, 60.0  # seconds of the processor for one input, and of the clock
# bytes that one input may take, and more of them for each of its own
MOST, MOST_FOR_BYTE = 64 * 2**20, 4
TALK = 1000  # inputs between two lines


class Trial:
    """One kind of input in a folder of its own, and the count of its outcomes."""

    def __init__(self, name, folder, talk=False):
        self.name, self.kind, self.talk = name, KINDS[name](folder / "given"), talk
        self.longest, self.largest = 0.0, 0
        self.home, self.seen, self.began = folder / "home", Counter(), time.perf_counter()
        self.home.mkdir()

    def check(self, value):
        """Try one input; an AssertionError, or what was raised instead of an error of ours, where
        it is not handled.
        """
        self.kind.put(value)
        before, most = listing(self.home.parent), peak()
        began = time.process_time()
        with warnings.catch_warnings(), chdir(self.home), in_time():
            warnings.simplefilter("error")
            self.seen[self.outcome(value)] += 1
        spent = time.process_time() - began
        assert spent <= SLOWEST, f"{spent:.1f} s were spent"
        self.longest = max(self.longest, spent)
        assert listing(self.home.parent) == before, "something was written"
        taken, size = peak() - most, sum(facts[0] for facts in before.values())
        self.largest = max(self.largest, taken)
        assert taken <= MOST + MOST_FOR_BYTE * size, f"{taken} bytes were taken for files of {size}"
        if self.talk and self.seen.total() % TALK == 0:
            print(f"{self.name}: {self.seen.total()} inputs", file=sys.stderr, flush=True)

    def outcome(self, value):
        """`accepted` or `refused`."""
        try:
            return self.kind.read(value) or "accepted"
        except REFUSALS as error:
            reported = str(error)
            assert all(line.isprintable() and line for line in reported.splitlines()), (
                f"not printable: {reported!a}"
            )
            assert any(name in reported for name in self.kind.names(value)), (
                f"names nothing: {reported!a}"
            )
            return "refused"

    def run(self, examples, start):
        """As many inputs as wanted; the first failure is raised, as small as it could be made."""

        @seed(start)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(self.kind.inputs())
        def every(value):
            self.check(value)

        every()

    def row(self):
        """A line of the closing table."""
        spent = time.perf_counter() - self.began
        return f"{self.name:<12}{self.seen.total():>8}{self.seen['accepted']:>10}{self.seen['refused']:>10}{spent:>9.0f}{self.longest:>11.2f}{self.largest / 2**20:>10.1f}"


def peak():
    """Most memory that the process ever took, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10


class Waits(BaseException):
    """An input that is not read to its end; no reader catches this."""


@contextmanager
def in_time():
    """Raise where something waits for what never comes."""

    def late(number, frame):
        raise Waits(f"not done after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def listing(folder):
    """Every name below a folder, with size and time."""
    found = {}
    for home, folders, names in os.walk(folder):
        for name in (*folders, *names):
            facts = os.lstat(os.path.join(home, name))
            found[home, name] = facts.st_size, facts.st_mtime_ns, facts.st_mode
    return found


def main(argv=None):
    """Try every kind that is asked for; the exit code."""
    parser = argparse.ArgumentParser(description="Is every input read or refused?")
    parser.add_argument(
        "--examples", type=int, default=10_000, metavar="N", help="inputs of each kind"
    )
    parser.add_argument(
        "--kind", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), help="default: all"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    asked, rows = parser.parse_args(argv), []
    import_plots()  # not part of the time of the first input
    for name in asked.kind:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            trial = Trial(name, Path(folder), talk=True)
            trial.run(asked.examples, asked.seed)
            rows.append(trial.row())
    print(
        f"{'kind':<12}{'inputs':>8}{'accepted':>10}{'refused':>10}{'seconds':>9}{'longest s':>11}{'MiB more':>10}",
        *rows,
        sep="\n",
    )


if __name__ == "__main__":
    main()
