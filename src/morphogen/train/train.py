"""Entry points of training: a new run, or a run that is resumed."""

import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

import torch

from morphogen.config.config_files import dump_config
from morphogen.config.keywords import ResumeFields, RunFields
from morphogen.config.spec import RunSpec, resolve, warn_of_short_episodes
from morphogen.env.policies import build_arm, build_learner, check_policy
from morphogen.env.setup import Setup, build_setup
from morphogen.env.units import open_units
from morphogen.log import run_directory
from morphogen.log.console import Console
from morphogen.log.run_directory import RunDirectory, hold_directory, own_directory
from morphogen.log.run_log import read_rounds
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.train import manifest
from morphogen.train.checkpoint import restore
from morphogen.train.held_out_plays import has_curve
from morphogen.train.loop import DEMONSTRATOR, OnRound, Parts, Scheduler
from morphogen.train.resume import ResumePoint, branch_run, check_compatible, find_resume_point
from morphogen.train.session import Session, TrainResult
from morphogen.train.sinks import check_sinks
from morphogen.train.stop_signals import StopSignals
from morphogen.vocab.paths import expand_path

__all__ = ["TrainResult", "resume", "train_ppo_vectorized"]


def train_ppo_vectorized(
    spec: RunSpec | None = None,
    /,
    *,
    parts: Parts | None = None,
    on_round: OnRound | None = None,
    out: Path | str | None = None,
    console: Console | None = None,
    command: str = "",
    exchange: Exchange = ALONE,
    **fields: Unpack[RunFields],
) -> TrainResult:
    """Run a spec: train its policy (or run a baseline) for all rounds, save, and compare on
    held-out instances.

    Args:
        spec: settings of the run, resolved or not.
        fields: fields of RunSpec, which override the spec.
        parts: sinks of events, hooks and more.
        on_round: called with (summary, scheduler) after every round; False saves the run and stops
        it.
        out: run directory, new or empty; None writes nothing.
        console: shows progress and tables (`log.console.Console`); None: nothing is printed.
        command: command line, for the manifest.
        exchange: with other processes, which call this function with the same arguments and hold a
        part of the envs.

    Returns: history, policy and evaluation of the run.
    Warns: in one line, if no seed can be kept within an episode.
    Raises: ConfigError, DataError before anything is written; TrainingDiverged, CheckpointError
    while it runs; KeyboardInterrupt after a first Ctrl-C, once the epoch is over and the run is
    saved.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(preset="tiny", rounds=1, envs=4, final_episodes=0, ppo={"epochs": 1})
        >>> result = mg.train_ppo_vectorized(spec)
        >>> len(result.history), sorted(result.policy.keys())
        (1, ['net', 'observation', 'value_offset'])
    """
    parts = _with_on_round(parts or Parts(), on_round)
    out = None if out is None else expand_path(out)
    setup = set_up_alike(
        exchange, lambda: check_run((spec or RunSpec()).with_settings(**fields), out, exchange)
    )
    warn_of_short_episodes(setup.spec)
    parts = compile_units(setup, parts, console)
    with torch.no_grad():
        if out is None:
            return Session(setup, parts, console).run()
        path = Path(exchange.on_first(lambda: str(out)))
        description = manifest.build_manifest(setup, out=path, command=command)
        owned = run_directory.create_directory(
            path, config=dump_config(setup.spec), manifest=description
        )
        with share_directory(exchange, owned, path) as folder:
            return _run_interruptible(setup, parts, console, folder)


def check_run(spec: RunSpec, out: Path | None, exchange: Exchange = ALONE) -> Setup:
    """Resolve and check the spec of a new run, and build its parts; nothing is written.

    Raises: every ConfigError and DataError that a run ends with before its first epoch.
    """
    spec = resolve(spec)
    if out is not None:
        check_sinks(spec)
    setup = build_setup(spec, exchange)
    check_policy(setup)
    learner = build_learner(setup.spec)
    exchange.of_updates(setup.spec, learner)
    imitates = learner is not None and learner.demonstrations(setup.spec) > 0
    if imitates or has_curve(setup.spec) or setup.spec.final_episodes:
        build_arm(DEMONSTRATOR, setup)  # a rival too, and the only one with settings of its own
    if out is not None:
        run_directory.check_new_directory(out)
    return setup


def resume(
    run: Path | str,
    spec: RunSpec | None = None,
    /,
    *,
    parts: Parts | None = None,
    on_round: OnRound | None = None,
    checkpoint: str | None = None,
    out: Path | str | None = None,
    console: Console | None = None,
    exchange: Exchange = ALONE,
    **fields: Unpack[ResumeFields],
) -> TrainResult:
    """Resume the run in a directory from its newest undamaged checkpoint; without a checkpoint it
    starts again.

    Args:
        run: run directory.
        spec, fields: changed settings; rounds, devices, threads, compile mode, telemetry,
        checkpoint may change.
        parts, on_round, console, exchange: as in `train_ppo_vectorized`.
        checkpoint: name of an older checkpoint; the run continues in a new directory `out`, `run`
        is not changed.

    Returns: the result; of a completed run, without changes.
    Raises: CheckpointError that lists all other changed settings, or the reasons why no checkpoint
    is usable; ConfigError if the config of the run, and no argument, names a folder of events
    outside of the run directory.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 1,
        ...     "envs": 4,
        ...     "policy_name": "wait",
        ...     "episode_length": 2,
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = mg.train_ppo_vectorized(**fields, final_episodes=0, out=folder)
        ...     more = mg.resume(folder, rounds=3)  # two rounds more
        >>> [summary.round for summary in more.history]
        [1, 2]
    """
    requested = None if spec is None else spec.with_settings(**fields)
    path = expand_path(run)
    parts = _with_on_round(parts or Parts(), on_round)
    folder, original, _ = run_directory.open_directory(path)
    if checkpoint is None and requested is None and "telemetry" not in fields:
        run_directory.refuse_outside(path, original.telemetry.dir)
    if checkpoint is not None:
        if out is None:
            raise TypeError(
                "out: expected the path of a new run directory for an older checkpoint, got None"
            )
        path = expand_path(out)
        exchange.on_first(partial(branch_run, folder, checkpoint, path))
        if requested is not None and requested.telemetry.dir == original.telemetry.dir:
            requested = replace(requested, telemetry=replace(requested.telemetry, dir=None))
    with torch.no_grad(), share_directory(exchange, own_directory(path), path) as folder:
        _, original, description = run_directory.open_directory(folder.path)
        spec = requested or original.with_settings(**fields)
        setup = set_up_alike(exchange, lambda: build_setup(spec, exchange))
        point = find_resume_point(folder, description["run_id"], setup.spec, exchange)
        check_compatible(point, original, setup)
        completed = description.get("status") == run_directory.STATUS_COMPLETED
        if point is not None and completed and point.position[0] == setup.spec.rounds:
            return _load_result(setup, point, folder)
        first = 0 if point is None else point.position[0]
        parts = compile_units(setup, parts, console, first=first)
        return _run_interruptible(setup, parts, console, folder, point)


def _load_result(setup: Setup, point: ResumePoint, folder: RunDirectory) -> TrainResult:
    """Return the result of a completed run."""
    scheduler = Scheduler(setup)
    restore(scheduler, point.checkpoint)
    return TrainResult(tuple(read_rounds(folder.path)), scheduler.arm, (), folder.path)


def set_up_alike(exchange: Exchange, prepare: Callable[[], Setup]) -> Setup:
    """Return the setup that every process prepares.

    Raises: ConfigError if the processes of a run differ in versions, config or data.
    """
    setup = exchange.together(prepare)
    facts = {
        **run_directory.describe_environment()["versions"],
        "kernels": manifest.describe_kernels(),
        "sha256 of the config": run_directory.config_hash(dump_config(setup.spec)),
        "sha256 of the data": setup.dataset.fingerprint,
    }
    exchange.check_equal(facts)
    return setup


def compile_units(setup: Setup, parts: Parts, console: Console | None, *, first: int = 0) -> Parts:
    """Return the parts of a run with its units prepared for its rounds from `first` on.

    Raises: CompileError.
    """
    units = parts.compiled or open_units(setup.spec.engine, setup.device, parts.clock)
    units.prepare(setup, parts.control, console if setup.exchange.first else None, first)
    return replace(parts, compiled=units)


@contextmanager
def share_directory(
    exchange: Exchange, owned: AbstractContextManager[RunDirectory], path: Path
) -> Generator[RunDirectory, None, None]:
    """Open a run directory: the first process owns it and writes its files.

    Args:
        owned: opens the directory for the first process.
        path: of the directory, which all processes reach.
    """
    with ExitStack() as stack:
        opened: list[RunDirectory] = []
        exchange.on_first(lambda: opened.append(stack.enter_context(owned)))
        yield exchange.together(
            lambda: (
                opened[0] if opened else stack.enter_context(hold_directory(path, is_writer=False))
            )
        )


def _run_interruptible(
    setup: Setup,
    parts: Parts,
    console: Console | None,
    folder: RunDirectory,
    point: ResumePoint | None = None,
) -> TrainResult:
    """Run a session; the first Ctrl-C stops it where it can be resumed, unless the caller handles
    SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return Session(setup, parts, console, folder, point).run()
    asked = parts.hooks.should_stop
    with StopSignals((signal.SIGINT,)) as stop:
        hooks = replace(parts.hooks, should_stop=lambda: stop.exit_code is not None or asked())
        result = Session(setup, replace(parts, hooks=hooks), console, folder, point).run()
    if result.stopped and stop.exit_code is not None:
        raise KeyboardInterrupt(
            f"the run is saved: morphogen.resume({str(result.run_dir)!r}) continues it"
        )
    return result


def _with_on_round(parts: Parts, on_round: OnRound | None) -> Parts:
    """Return the parts with a hook after each round."""
    return replace(parts, hooks=replace(parts.hooks, on_round=on_round)) if on_round else parts
