"""Which checkpoint a run goes on from, whether what is asked for fits it, and what is promised for the rest."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from morphogen.config.config_files import Settings, dump_config, flat, plain
from morphogen.config.spec import RunSpec, free, resolve
from morphogen.engine.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.run import sinks
from morphogen.run.sink_checks import METRICS
from morphogen.run.snapshot import Standing
from morphogen.storage import checkpoint_store, run_directory
from morphogen.storage.checkpoint_files import load_checkpoint
from morphogen.storage.run_directory import RunDirectory
from morphogen.storage.tensor_trees import Tree
from morphogen.telemetry.kinds.run import Skipped
from morphogen.vocab.text import show


class Found(NamedTuple):
    """The checkpoint that a run goes on from."""

    path: Path
    manifest: Tree
    standing: Standing
    skipped: tuple[Skipped, ...]  # newer ones, and why

    @property
    def position(self) -> tuple[int, int]:
        """The next epoch to run: round, epoch."""
        return self.manifest["round"], self.manifest["epoch"]


def newest(folder: RunDirectory, run_id: str, asked: RunSpec) -> Found | None:
    """The newest checkpoint that is whole and of this run, as are its events; None where the run was never saved.

    A CheckpointError where it was, but no checkpoint can be used.
    """
    skipped: list[Skipped] = []
    saved = checkpoint_store.candidates(folder.checkpoints)
    for path in saved:
        try:
            return Found(path, *_loaded(path, folder, run_id, asked), tuple(skipped))
        except CheckpointError as error:
            skipped.append({"checkpoint": path.name, "reason": str(error)})
    if not saved:
        return None
    tried = [f"{one['checkpoint']}: {one['reason']}" for one in skipped]
    raise CheckpointError("\n".join([f"{folder.checkpoints} holds no checkpoint that can be used", *tried]))


def _loaded(path: Path, folder: RunDirectory, run_id: str, asked: RunSpec) -> tuple[Tree, Standing]:
    found = load_checkpoint(path)
    manifest = found["manifest"]
    if (manifest["round"], manifest["epoch"]) != checkpoint_store.position(path):
        raise CheckpointError(f"checkpoint {path} stands at round {manifest['round']}, epoch {manifest['epoch']}")
    if manifest["run_id"] != run_id:
        raise CheckpointError(f"checkpoint {path} is of run {show(manifest['run_id'])}; want one of {run_id}")
    standing = Standing(found["envs"], found["shared"])
    sinks.checked(asked, folder, standing.written)
    return manifest, standing


def check(found: Found | None, made: RunSpec, setup: Setup) -> None:
    """A CheckpointError that lists every setting that a run was not made with, and data that is not the same.

    `made`: its config, for one that was never saved.
    """
    asked, fingerprint = setup.spec, setup.dataset.fingerprint
    lines = list(_differences(plain(resolve(made)) if found is None else found.manifest["config"], plain(asked)))
    if found is not None and found.manifest["data_sha256"] != fingerprint:
        lines.append(f"the data has sha256 {fingerprint}; the run was made with {found.manifest['data_sha256']}")
    if found is not None and found.position > (asked.rounds, 0):
        lines.append(f"rounds is {asked.rounds}; want at least {found.position[0] + (found.position[1] > 0)}")
    if lines:
        place = "the run" if found is None else f"checkpoint {found.path}"
        raise CheckpointError("\n".join([f"{place} does not fit:", *lines]))


def _differences(made: Settings, asked: Settings) -> Iterator[str]:
    before, now = dict(flat(made)), dict(flat(asked))
    for name in {**before, **now}:
        if not free(name) and before.get(name) != now.get(name):
            yield f"{name} is {show(now.get(name))}; the run was made with {show(before.get(name))}"


def promise(made: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What can be said of the rest of a run, by the circumstances it was made in and those it goes on in."""
    changed = [f"{name} {made.get(name)}, now {here[name]}" for name in here if made.get(name) != here[name]]
    if not changed:
        return "bit for bit what it would have been without the stop"
    return f"from the saved bits, with the same draws, equal up to rounding: {'; '.join(changed)}"


def forget_newer(folder: RunDirectory, found: Found) -> None:
    """Remove the checkpoints after the one that a run goes on from: what they stand for is made again."""
    for path in checkpoint_store.candidates(folder.checkpoints):
        at = checkpoint_store.position(path)
        if at is not None and at > found.position:
            checkpoint_store.remove(path)


def branch(source: RunDirectory, name: str, out: Path) -> RunDirectory:
    """A new run directory that stands where a checkpoint of another one stands, which is not changed."""
    path = source.checkpoints / name
    if checkpoint_store.position(Path(name)) is None or not os.path.isdir(path):
        known = ", ".join(one.name for one in checkpoint_store.candidates(source.checkpoints)) or "none"
        raise CheckpointError(f"--checkpoint is {show(name)}; the run has {known}")
    wrong = checkpoint_store.fault(path)
    if wrong is not None:
        raise CheckpointError(f"checkpoint {path} {wrong}")
    _, spec, said = run_directory.opened(source.path)
    own = replace(spec, telemetry=replace(spec.telemetry, dir=None))  # the other file is not ours to cut
    with run_directory.created(out, config=dump_config(own), manifest=said) as made:
        shutil.copytree(path, made.checkpoints / name)
        if source.events.is_file():
            shutil.copyfile(source.events, made.events)
        if (source.path / METRICS).is_dir():
            shutil.copytree(source.path / METRICS, made.path / METRICS)
    return made
