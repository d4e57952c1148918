"""Launcher of ranks: starts the ranks of a command, or runs its body as a rank.

Every rank runs the same command line.  Rank 0 has the console.  The process of the command starts
the ranks, forwards signals to them, and prints the error that ends them.  `torchrun` starts ranks
with the command as its program.  Loads no torch until then.
"""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from morphogen.cli import arguments, process
from morphogen.cli.launcher import Body, Launcher
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError, RankError
from morphogen.extras.ranks.agreement import is_common
from morphogen.extras.ranks.job import local_rank, ranks_of_environment, restarts_of_environment

PARENT = "MORPHOGEN_PARENT"  # variable with the process that started this rank
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # variable with the file for the error of a rank
DEATH_SIGNAL = 1  # option of prctl: signal at the death of the parent
MOST_CORES = 4  # of `engine.rank_per_core`: every rank takes the time of an update


class RankLauncher(Launcher):
    """Launcher of ranks on this machine, or of a rank of a job."""

    def add_flag(self, parser: ArgumentParser) -> None:
        """Add the flag `--ranks`."""
        parser.add_argument(
            "--ranks",
            metavar="N",
            default="1",
            help="processes that share the episodes (default 1)",
        )

    def read_flag(self, args: Namespace, spec: RunSpec) -> RunSpec:
        """Return the spec with the number of the flag.  Raises: ConfigError for any other text."""
        ranks = arguments.parse_int_flag("--ranks", args.ranks, 1, 65_536)
        return replace(spec, engine=replace(spec.engine, ranks=ranks))

    def restarts(self) -> tuple[int, int]:
        """Return how often `torchrun` has restarted the ranks, and how often it may."""
        return restarts_of_environment()

    def check(self, spec: RunSpec) -> None:
        """Raise a ConfigError for ranks without equal parts of the envs, devices or minibatches."""
        count = count_ranks(spec)
        setup = import_module("morphogen.env.setup")
        in_job = ranks_of_environment()[1] > 1
        for place in range(0 if in_job else count):
            setup.own_device(spec.engine, place)
        if count > 1:
            learner = import_module("morphogen.env.policies").build_learner(spec)
            import_module("morphogen.extras.ranks.rank_exchange").check_reduction(
                spec, learner, count
            )

    def launch(
        self, spec: RunSpec, command_line: str, body: Body, *, trains: bool = False
    ) -> int | None:
        """Run the body of a command on its ranks; return the exit code, which all ranks share.

        Raises: ConfigError if the ranks do not divide the envs; the error that ended a rank.
        """
        count = count_ranks(spec) if trains else spec.engine.ranks or 1
        if ranks_of_environment()[1] > 1:
            run_rank(spec, body)
        if count == 1:
            return super().launch(spec, command_line, body)
        threads = {} if spec.engine.threads else {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        workers = import_module("morphogen.extras.ranks.workers")
        return workers.run_workers(command_line, count, {**threads, PARENT: str(os.getpid())})


def count_ranks(spec: RunSpec) -> int:
    """Return the number of ranks of a run.

    Raises: ConfigError for a number that does not divide the envs.
    """
    in_job = ranks_of_environment()[1]
    count = in_job if in_job > 1 else spec.engine.ranks or count_places(spec)
    if spec.envs % count:
        raise ConfigError(
            f"engine.ranks: expected a divisor of envs = {spec.envs:,}, got {count:,}"
        )
    return count


def count_places(spec: RunSpec) -> int:
    """Return the number of devices; with `engine.rank_per_core` on a CPU, of cores that can share
    the envs.

    Raises: DeviceError for a missing device.
    """
    if spec.engine.rank_per_core and len(spec.engine.devices) == 1:
        device = import_module("morphogen.env.setup").own_device(spec.engine, 0)
        if device.type == "cpu":
            cores = min(count_cores(), MOST_CORES)
            return next(n for n in range(cores, 0, -1) if spec.envs % n == 0)
    return len(spec.engine.devices)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_rank(spec: RunSpec, body: Body) -> None:
    """Run the body of a command as a rank, and end the process.

    The process ends at once, because threads of torch can abort an orderly end of Python.  Rank 0
    prints an error that all ranks have.  The process that started this rank prints any error.
    """
    follow_parent()
    rank, _ = ranks_of_environment()
    try:
        device = import_module("morphogen.env.setup").own_device(spec.engine, local_rank())
        join = import_module("morphogen.extras.ranks.process_group").join_ranks
        exchange = join(device, timeout_s=spec.engine.collective_timeout_s)
        with open(os.devnull, "w") as sink:
            prints = exchange.first or is_child()
            out, err = (sys.stdout, sys.stderr) if prints else (sink, sink)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = body(exchange) or 0
        exchange.close()
    except tuple(process.EXITS) as error:
        code = process.exit_code(error)
        if not isinstance(error, RankError) and not is_common(error):
            error.args = (f"rank {rank}: {error}",)
        if is_child():
            Path(os.environ[ERROR_FILE]).write_text(str(error))
        elif rank == 0 or not is_common(error):
            process.print_error(error)
    except SystemExit as end:  # of a signal
        code = end.code if isinstance(end.code, int) else 0
    except Exception:
        traceback.print_exc()
        code = process.UNEXPECTED
    os._exit(process.finish(code))


def is_child() -> bool:
    """Return whether a command started this process as a rank."""
    return os.environ.get(PARENT) == str(os.getppid())


def follow_parent() -> None:
    """End with the process that started this rank, if one did."""
    if PARENT not in os.environ:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if not is_child():  # the parent has ended before the call
        os._exit(process.EXITS[RankError])
