"""Choice of the checkpoint to resume from, check of the requested settings, and the promise for the
rest of the run.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from morphogen.config.config_files import dump_config, flatten_settings
from morphogen.config.fields import to_settings
from morphogen.config.files import error_line
from morphogen.config.spec import RunSpec, may_change_on_resume, resolve
from morphogen.env.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.log import run_directory
from morphogen.log.kinds.run import SkippedCheckpoint
from morphogen.log.run_directory import RunDirectory
from morphogen.ppo.exchange import Exchange
from morphogen.train import checkpoint_store, sinks
from morphogen.train.checkpoint import Checkpoint, load_checkpoint
from morphogen.vocab.text import format_value


class ResumePoint(NamedTuple):
    """Checkpoint that a run is resumed from."""

    path: Path
    checkpoint: Checkpoint
    skipped: Sequence[SkippedCheckpoint]  # newer ones, and why

    @property
    def position(self) -> tuple[int, int]:
        """Round and epoch of the next epoch to run."""
        return self.checkpoint.position


def find_resume_point(
    folder: RunDirectory, run_id: str, requested: RunSpec, exchange: Exchange
) -> ResumePoint | None:
    """Return the checkpoint that the first process chooses, with the envs of this one; None if none
    was saved.

    Raises: CheckpointError, in all processes, if there are checkpoints, but none is usable.
    """
    found = exchange.on_first(lambda: _find_newest(folder, run_id, requested))
    if found is None:
        return None
    name, skipped = found
    path = folder.checkpoints / name
    checkpoint = exchange.together(lambda: load_checkpoint(path).map_envs(exchange.take_envs))
    return ResumePoint(path, checkpoint, skipped)


def _find_newest(
    folder: RunDirectory, run_id: str, requested: RunSpec
) -> tuple[str, list[SkippedCheckpoint]] | None:
    """Return the name of the newest undamaged checkpoint of the run whose events are complete, and
    the newer ones; None if none was saved.
    """
    skipped: list[SkippedCheckpoint] = []
    for path in checkpoint_store.list_checkpoints(folder.checkpoints):
        try:
            _check_candidate(path, folder, run_id, requested)
            return path.name, skipped
        except CheckpointError as error:
            skipped.append({"checkpoint": path.name, "reason": str(error)})
    if not skipped:
        return None
    reasons = [f"{row['checkpoint']}: {row['reason']}" for row in skipped]
    raise CheckpointError("\n".join([f"{folder.checkpoints} has no usable checkpoint", *reasons]))


def _check_candidate(path: Path, folder: RunDirectory, run_id: str, requested: RunSpec) -> None:
    """Raise a CheckpointError unless the run can be resumed from a checkpoint."""
    checkpoint = load_checkpoint(path)
    round, epoch = checkpoint.position
    if (round, epoch) != checkpoint_store.parse_position(path):
        raise CheckpointError(f"checkpoint {path} is of round {round}, epoch {epoch}")
    saved = checkpoint.manifest["run_id"]
    if saved != run_id:
        raise CheckpointError(
            f"checkpoint {path}: run_id: expected {run_id}, got {format_value(saved)}"
        )
    sinks.check_position(requested, folder, checkpoint.log)


def check_compatible(resume_point: ResumePoint | None, original: RunSpec, setup: Setup) -> None:
    """Raise a CheckpointError that lists every setting, and the data, in which `setup` differs from
    the run.

    Args:
        original: config of the run, compared if no checkpoint was saved.
    """
    requested = setup.spec
    fingerprint = setup.dataset.fingerprint
    manifest = None if resume_point is None else resume_point.checkpoint.manifest
    saved = to_settings(resolve(original)) if manifest is None else manifest["config"]
    before = dict(flatten_settings(saved))
    now = dict(flatten_settings(to_settings(requested)))
    lines = [
        f"{name}: expected {format_value(before.get(name))}, got {format_value(now.get(name))}"
        for name in {**before, **now}
        if not may_change_on_resume(name) and before.get(name) != now.get(name)
    ]
    if manifest is not None and manifest["data_sha256"] != fingerprint:
        lines.append(f"sha256 of the data: expected {manifest['data_sha256']}, got {fingerprint}")
    if resume_point is not None and resume_point.position > (requested.rounds, 0):
        least = resume_point.position[0] + (resume_point.position[1] > 0)
        lines.append(f"rounds: expected at least {least}, got {requested.rounds}")
    if lines:
        source = "the run" if resume_point is None else f"checkpoint {resume_point.path}"
        raise CheckpointError("\n".join([f"{source} has other settings:", *lines]))


def describe_reproducibility(original: Mapping[str, str], current: Mapping[str, str]) -> str:
    """Return the promise for the rest of a run, from its first environment fingerprint and the
    current one.
    """
    different = [name for name in current if original.get(name) != current[name]]
    if not different:
        return "bitwise equal to a run without the stop"
    changes = [
        f"{name} was {original.get(name, 'unknown')}, is {current[name]}" for name in different
    ]
    return f"equal up to rounding to a run without the stop, because {'; '.join(changes)}"


def remove_newer(folder: RunDirectory, resume_point: ResumePoint) -> None:
    """Delete the checkpoints after the resume point; the run computes them again."""
    for path in checkpoint_store.list_checkpoints(folder.checkpoints) if folder.is_writer else ():
        if (checkpoint_store.parse_position(path) or (0, 0)) > resume_point.position:
            checkpoint_store.remove_checkpoint(path)


def branch_run(source: RunDirectory, name: str, out: Path) -> None:
    """Create the run directory `out` from a checkpoint of `source`, which is not changed.

    Raises: CheckpointError if the checkpoint is unknown or damaged, or a file cannot be copied.
    """
    path = source.checkpoints / name
    names = [path.name for path in checkpoint_store.list_checkpoints(source.checkpoints)]
    if name not in names:
        raise CheckpointError(
            f"--checkpoint: expected one of {', '.join(names) or 'no checkpoint'}, got "
            f"{format_value(name)}"
        )
    checkpoint_store.check_undamaged(path)
    _, spec, manifest = run_directory.open_directory(source.path)
    # the event file of the source must not be cut
    spec = replace(spec, telemetry=replace(spec.telemetry, dir=None))
    try:
        with run_directory.create_directory(
            out, config=dump_config(spec), manifest=manifest
        ) as branch:
            shutil.copytree(path, branch.checkpoints / name)
            _copy_telemetry(source, branch)
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise CheckpointError(
            f"{source.path} cannot be copied to {out}: {error_line(error)}"
        ) from error


def _copy_telemetry(source: RunDirectory, branch: RunDirectory) -> None:
    events = source.path / run_directory.EVENTS
    if events.is_file():
        shutil.copyfile(events, branch.path / events.name)
    for folder in (run_directory.RECORDS, run_directory.METRICS):
        if (source.path / folder).is_dir():
            shutil.copytree(source.path / folder, branch.path / folder, symlinks=True)
