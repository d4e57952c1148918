"""Which checkpoint a run goes on from, whether what is asked for fits it, and what is promised for the rest."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from morphogen.config.config_files import Settings, dump_config, flatten_settings, to_settings
from morphogen.config.spec import RunSpec, may_change_on_resume, resolve
from morphogen.engine.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.run import sinks
from morphogen.run.sink_checks import METRICS_FOLDER
from morphogen.run.snapshot import RunSnapshot
from morphogen.storage import checkpoint_store, run_directory
from morphogen.storage.checkpoint_files import load_checkpoint
from morphogen.storage.run_directory import RunDirectory
from morphogen.storage.tensor_trees import Tree
from morphogen.telemetry.kinds.run import SkippedCheckpoint
from morphogen.vocab.text import format_value


class ResumePoint(NamedTuple):
    """The checkpoint that a run goes on from."""

    path: Path
    manifest: Tree
    snapshot: RunSnapshot
    skipped: tuple[SkippedCheckpoint, ...]  # newer ones, and why

    @property
    def position(self) -> tuple[int, int]:
        """The next epoch to run: round, epoch."""
        return self.manifest["round"], self.manifest["epoch"]


def find_resume_point(folder: RunDirectory, run_id: str, requested: RunSpec) -> ResumePoint | None:
    """The newest checkpoint that is whole and of this run, as are its events; None where the run was never saved.

    A CheckpointError where it was, but no checkpoint can be used.
    """
    skipped: list[SkippedCheckpoint] = []
    saved = checkpoint_store.list_checkpoints(folder.checkpoints)
    for path in saved:
        try:
            return ResumePoint(path, *_load_candidate(path, folder, run_id, requested), tuple(skipped))
        except CheckpointError as error:
            skipped.append({"checkpoint": path.name, "reason": str(error)})
    if not saved:
        return None
    tried = [f"{one['checkpoint']}: {one['reason']}" for one in skipped]
    raise CheckpointError("\n".join([f"{folder.checkpoints} holds no checkpoint that can be used", *tried]))


def _load_candidate(path: Path, folder: RunDirectory, run_id: str, requested: RunSpec) -> tuple[Tree, RunSnapshot]:
    found = load_checkpoint(path)
    manifest = found["manifest"]
    if (manifest["round"], manifest["epoch"]) != checkpoint_store.parse_position(path):
        raise CheckpointError(f"checkpoint {path} stands at round {manifest['round']}, epoch {manifest['epoch']}")
    if manifest["run_id"] != run_id:
        raise CheckpointError(f"checkpoint {path} is of run {format_value(manifest['run_id'])}; want one of {run_id}")
    standing = RunSnapshot(found["envs"], found["shared"])
    sinks.check_position(requested, folder, standing.sink_positions)
    return manifest, standing


def check_compatible(resume_point: ResumePoint | None, original: RunSpec, setup: Setup) -> None:
    """A CheckpointError that lists every setting that a run was not made with, and data that is not the same.

    `made`: its config, for one that was never saved.
    """
    asked, fingerprint = setup.spec, setup.dataset.fingerprint
    lines = list(
        _setting_differences(
            to_settings(resolve(original)) if resume_point is None else resume_point.manifest["config"],
            to_settings(asked),
        )
    )
    if resume_point is not None and resume_point.manifest["data_sha256"] != fingerprint:
        lines.append(f"the data has sha256 {fingerprint}; the run was made with {resume_point.manifest['data_sha256']}")
    if resume_point is not None and resume_point.position > (asked.rounds, 0):
        lines.append(
            f"rounds is {asked.rounds}; want at least {resume_point.position[0] + (resume_point.position[1] > 0)}"
        )
    if lines:
        place = "the run" if resume_point is None else f"checkpoint {resume_point.path}"
        raise CheckpointError("\n".join([f"{place} does not fit:", *lines]))


def _setting_differences(original: Settings, requested: Settings) -> Iterator[str]:
    before, now = dict(flatten_settings(original)), dict(flatten_settings(requested))
    for name in {**before, **now}:
        if not may_change_on_resume(name) and before.get(name) != now.get(name):
            yield f"{name} is {format_value(now.get(name))}; the run was made with {format_value(before.get(name))}"


def describe_reproducibility(original: Mapping[str, str], current: Mapping[str, str]) -> str:
    """What can be said of the rest of a run, by the circumstances it was made in and those it goes on in."""
    changed = [
        f"{name} {original.get(name)}, now {current[name]}" for name in current if original.get(name) != current[name]
    ]
    if not changed:
        return "bit for bit what it would have been without the stop"
    return f"from the saved bits, with the same draws, equal up to rounding: {'; '.join(changed)}"


def remove_newer(folder: RunDirectory, resume_point: ResumePoint) -> None:
    """Remove the checkpoints after the one that a run goes on from: what they stand for is made again."""
    for path in checkpoint_store.list_checkpoints(folder.checkpoints):
        at = checkpoint_store.parse_position(path)
        if at is not None and at > resume_point.position:
            checkpoint_store.remove_checkpoint(path)


def branch_run(source: RunDirectory, name: str, out: Path) -> RunDirectory:
    """A new run directory that stands where a checkpoint of another one stands, which is not changed."""
    path = source.checkpoints / name
    if checkpoint_store.parse_position(Path(name)) is None or not os.path.isdir(path):
        known = ", ".join(one.name for one in checkpoint_store.list_checkpoints(source.checkpoints)) or "none"
        raise CheckpointError(f"--checkpoint is {format_value(name)}; the run has {known}")
    wrong = checkpoint_store.find_damage(path)
    if wrong is not None:
        raise CheckpointError(f"checkpoint {path} {wrong}")
    _, spec, said = run_directory.open_directory(source.path)
    own = replace(spec, telemetry=replace(spec.telemetry, dir=None))  # the other file is not ours to cut
    with run_directory.create_directory(out, config=dump_config(own), manifest=said) as made:
        shutil.copytree(path, made.checkpoints / name)
        if source.events.is_file():
            shutil.copyfile(source.events, made.events)
        if (source.path / METRICS_FOLDER).is_dir():
            shutil.copytree(source.path / METRICS_FOLDER, made.path / METRICS_FOLDER)
    return made
