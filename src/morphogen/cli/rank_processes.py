"""Ranks of a command: processes with a part of the envs each, started by `torchrun` or by the command itself.

Every rank runs the same command line.  Rank 0 has the console; a rank that the command started is silent, is not
reached by signals of the terminal, and ends with the command.  Loads no torch until ranks are joined.
"""

import contextlib
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, NoReturn

from morphogen.cli import arguments
from morphogen.config.spec import RunSpec
from morphogen.device.job import ranks_of_environment
from morphogen.errors import CheckpointError, ConfigError, DataError, RankError, TrainingDiverged

if TYPE_CHECKING:  # it loads torch
    from morphogen.device.collectives import Collectives

EXITS: dict[type[Exception], int] = {
    ConfigError: 2,
    DataError: 3,
    CheckpointError: 4,
    TrainingDiverged: 5,
    RankError: 8,
}
COMMAND = (sys.executable, "-m", "morphogen")
PARENT = "MORPHOGEN_PARENT"  # variable with the process that started this rank
LOCALHOST, LOOPBACK = "127.0.0.1", "lo"
END_S = 10.0  # for a started rank to end by itself, after the run
DEATH_SIGNAL = 1  # option of prctl: signal at the death of the parent
_joined: list["Collectives"] = []  # of this process; the threads behind them can abort an orderly end of Python


def check_ranks(envs: int, ranks: int) -> None:
    """Raise a ConfigError unless every rank gets equally many envs."""
    if envs % ranks == 0:
        return
    divisors = [number for number in range(1, envs + 1) if envs % number == 0]
    below = [number for number in divisors if number < ranks][-2:]
    above = [number for number in divisors if number > ranks][:2]
    near = ", ".join(map(str, (*below, *above)))
    raise ConfigError(f"engine.ranks: expected a divisor of envs = {envs:,}, such as {near}, got {ranks:,}")


def add_flag(parser: ArgumentParser) -> None:
    """Add the flag `--ranks` to a command without the settings of a run."""
    parser.add_argument("--ranks", metavar="N", default="1", help="processes that share the episodes (default 1)")


def parse_ranks(args: Namespace) -> int:
    """Return the number of the flag `--ranks`.  Raises: ConfigError for any other text."""
    return arguments.parse_int_flag("--ranks", args.ranks, 1, 65_536)


def is_child() -> bool:
    """Return whether a command started this process as a rank."""
    return os.environ.get(PARENT) == str(os.getppid())


def follow_parent() -> None:
    """End with the process that started this rank, if one did."""
    if is_child() and sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if not is_child():  # the parent has ended before the call
            leave(EXITS[RankError])


def leave(code: int) -> NoReturn:
    """End this process at once, with all output written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_if_joined(code: int) -> None:
    """End this process at once if it was a rank of several."""
    if _joined:
        leave(code)


class ChildRanks:
    """Ranks 1 .. W - 1 on this machine, as child processes.

    Attributes: listener, socket of rank 0 for their store; environment, their variables; processes, by rank.
    """

    def __init__(self, ranks: int, command_line: str) -> None:
        self.listener = socket.create_server((LOCALHOST, 0))
        self.environment = {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": LOCALHOST,
            "MASTER_PORT": str(self.listener.getsockname()[1]),
        }
        if sys.platform == "linux":
            self.environment["GLOO_SOCKET_IFNAME"] = LOOPBACK
        self._words = shlex.split(command_line)[1:]
        self._errors: dict[int, IO[bytes]] = {}  # what a rank wrote to stderr
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for rank in range(1, ranks):
                self._start(rank)
        except BaseException:
            self.end(0)
            raise

    def _start(self, rank: int) -> None:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), PARENT: str(os.getpid())}
        self._errors[rank] = tempfile.TemporaryFile()  # noqa: SIM115
        self.processes[rank] = subprocess.Popen(
            [*COMMAND, *self._words],
            env={**os.environ, **self.environment, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors[rank],
            start_new_session=True,
        )

    def find_ended(self) -> dict[int, str]:
        """Return the ranks that ended, and how: first the one that did not end because of another one."""
        codes = {rank: process.poll() for rank, process in self.processes.items()}
        ended = {rank: code for rank, code in codes.items() if code is not None}
        order = sorted(ended, key=lambda rank: (ended[rank] == EXITS[RankError], rank))
        return {rank: self._describe_end(rank, ended[rank]) for rank in order}

    def _describe_end(self, rank: int, code: int) -> str:
        if code < 0:
            return f"ended by signal {-code} ({signal.Signals(-code).name})"
        line = self._last_line(rank)
        return f"ended with exit code {code}{': ' * bool(line)}{line}"

    def _last_line(self, rank: int) -> str:
        """Return the last line that a rank wrote to stderr, without its head."""
        stream = self._errors[rank]
        stream.seek(0)
        lines = stream.read().decode(errors="backslashreplace").splitlines()
        return lines[-1].removeprefix("morphogen: error: ") if lines else ""

    def find_error(self) -> Exception | None:
        """Return the error that ended a rank, unless it was the end of another rank."""
        for rank, process in self.processes.items():
            for kind, code in EXITS.items():
                if kind is not RankError and process.poll() == code:
                    return kind(f"rank {rank}: {self._last_line(rank)}")
        return None

    def end(self, grace_s: float) -> None:
        """End all ranks, after they had `grace_s` seconds to end by themselves."""
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
            process.kill()
            process.wait()
        for stream in self._errors.values():
            stream.close()
        self.listener.close()


@contextlib.contextmanager
def open_ranks(spec: RunSpec, ranks: int, command_line: str, *, envs: int = 0) -> Iterator[Callable[[], "Collectives"]]:
    """Start `ranks` - 1 further ranks, unless this process is a rank already; yield a function that joins them.

    Args:
        spec: resolved; its threads are those of every rank, which has one unless it says otherwise.
        ranks: their number; without effect in a job.
        envs: number that the ranks have to divide.

    Yields: a function that returns the collectives; it loads torch.
    Raises: ConfigError if the ranks do not divide the envs; the error that ended another rank.
    """
    in_job = ranks_of_environment()[1]
    ranks = in_job if in_job > 1 else ranks
    check_ranks(envs, ranks)
    if in_job > 1 or ranks == 1:
        with _one_line():
            yield lambda: _join(spec)
        return
    with _variables({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}):
        children = ChildRanks(ranks, command_line)
        grace_s = 0.0
        try:
            with _variables({**children.environment, "RANK": "0", "LOCAL_RANK": "0"}):
                yield lambda: _join(spec, listener=children.listener, ended=children.find_ended)
            grace_s = END_S
        except RankError as error:
            raise children.find_error() or error from None
        finally:
            children.end(grace_s)


def _join(spec: RunSpec, **own: Any) -> "Collectives":
    device = import_module("morphogen.engine.setup").own_device(spec.engine)
    group = import_module("morphogen.device.process_group")
    collectives = group.open_collectives(device, timeout_s=spec.engine.collective_timeout_s, **own)
    if collectives.ranks > 1:
        _joined.append(collectives)
    return collectives


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Let the first rank of a job that fails print its error; the others end with the code of theirs alone.

    A rank that the command started prints for the command, which reads it.
    """
    try:
        yield
    except tuple(EXITS) as error:
        if is_child():
            raise
        if _joined and not _joined[-1].claim("error"):
            raise SystemExit(exit_code(error)) from None
        if _joined and not isinstance(error, RankError) and not getattr(error, "common", False):
            error.args = (f"rank {_joined[-1].rank}: {error}",)
        raise


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error of the user."""
    return next(code for kind, code in EXITS.items() if isinstance(error, kind))


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
