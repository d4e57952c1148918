"""Ranks of a run before its first epoch: what they have to have in common, and the run directory that they share."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from morphogen.analysis.console import Console
from morphogen.config.config_files import dump_config
from morphogen.config.execution_spec import COMPILE_OFF
from morphogen.device.agreement import mark_common, name_ranks, run_together
from morphogen.device.collectives import Collectives
from morphogen.engine.compile import CompiledUnits, stay_silent
from morphogen.engine.scheduler import Parts
from morphogen.engine.setup import Setup
from morphogen.engine.warm_up import warm_up
from morphogen.errors import ConfigError
from morphogen.run import manifest
from morphogen.storage import run_directory
from morphogen.storage.run_directory import RunDirectory, hold_directory

FACT_CHARS = 500  # of a reason that ranks exchange


def set_up_together(collectives: Collectives, prepare: Callable[[], Setup]) -> Setup:
    """Return the setup that every rank prepares.

    Raises: the error of a rank, on all ranks; ConfigError if the ranks differ in versions, config or data.
    """
    setup = run_together(collectives, prepare)
    facts = {
        **run_directory.describe_environment()["versions"],
        "kernels": manifest.describe_kernels(),
        "sha256 of the config": run_directory.config_hash(dump_config(setup.spec)),
        "sha256 of the data": setup.dataset.fingerprint,
    }
    check_equal_ranks(collectives.gather_facts(facts))
    return setup


def compile_together(
    collectives: Collectives, setup: Setup, parts: Parts, console: Console | None, *, first: int = 0
) -> Parts:
    """Return the parts of a run with its units compiled; under `auto` all ranks compile, or none.

    Raises: CompileError of a rank, on all ranks.
    """
    engine, screen = setup.spec.engine, console if collectives.rank == 0 else None
    if engine.compile == COMPILE_OFF:
        return parts
    announce = stay_silent if screen is None else screen.end_compiling
    compiled = parts.compiled or CompiledUnits(engine, device=setup.device, clock=parts.clock, announce=announce)
    run_together(collectives, lambda: warm_up(setup, parts, compiled, first))
    reasons = [reason for reason in collectives.gather_facts(compiled.failure[:FACT_CHARS]) if reason]
    if reasons:
        compiled.turn_eager(reasons[0])
        if screen is not None:
            screen.warn([f"engine.compile: auto runs eager: {reasons[0]}"])
    return replace(parts, compiled=compiled)


def describe_ranks(setup: Setup, collectives: Collectives) -> dict[str, str]:
    """Return the row about the ranks of a run in its description; none for one process."""
    if collectives.ranks == 1:
        return {}
    threads = torch.get_num_threads()
    each = "one thread" if threads == 1 else f"{threads} threads"
    return {"ranks": f"{collectives.ranks} of {each} each (E = {setup.spec.envs:,}, {setup.spec.task})"}


def check_equal_ranks(facts: list[Mapping[str, str]]) -> None:
    """Raise a ConfigError that lists in what the ranks differ from rank 0.  facts: by rank."""
    lines: list[str] = []
    for name, wanted in facts[0].items():
        values = [other.get(name) for other in facts]
        for value in dict.fromkeys(value for value in values if value != wanted):
            ranks = [rank for rank, other in enumerate(values) if other == value]
            lines.append(f"{name}: expected {wanted} as on rank 0, got {value} on {name_ranks(ranks)}")
    if lines:
        raise mark_common(ConfigError("\n".join(lines)))


@contextmanager
def share_directory(
    collectives: Collectives, owned: AbstractContextManager[RunDirectory], path: Path
) -> Iterator[RunDirectory]:
    """Open a run directory on all ranks: rank 0 owns it and writes what the ranks share.

    Args:
        owned: opens the directory for rank 0.
        path: of the directory, which all ranks reach.

    Raises: the error of a rank, on all ranks.
    """
    with ExitStack() as stack:
        first = owned if collectives.rank == 0 else nullcontext()
        run = run_together(collectives, lambda: stack.enter_context(first), named=False)
        yield run_together(collectives, lambda: run or stack.enter_context(hold_directory(path, is_writer=False)))
